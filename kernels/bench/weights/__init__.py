"""Benches of the kernels in kernels/weights/."""
