"""Weights that are pruned once for all tokens: finding them, and multiplying by what is left."""
