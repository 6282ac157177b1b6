"""Weights that are pruned once for all tokens: kernels that choose them, and products with the kept ones."""
