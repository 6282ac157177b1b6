"""Least squares for one layer, independent of models: Gram matrix, Cholesky factor of the inverse, solver."""
