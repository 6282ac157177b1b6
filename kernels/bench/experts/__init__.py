"""Benches of the kernels in kernels/experts/."""
