"""Benches of the kernels in kernels/per_token/."""
