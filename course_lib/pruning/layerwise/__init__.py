"""The least squares of one layer: its Gram matrix, the inverse's Cholesky factor, the solver; knows no model."""
