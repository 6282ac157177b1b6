"""Triton kernels that make sparsity pay: one file each, with the reference in plain torch beside it."""
