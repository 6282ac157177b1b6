"""Sparsity patterns, sparse formats and the bytes that they save; no model is pruned here."""
