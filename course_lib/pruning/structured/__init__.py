"""Structured pruning of neurons, heads, key-value groups, width channels and blocks; the pruned model is dense."""
