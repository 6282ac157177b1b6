"""Benches of the kernels in kernels/cache/."""
