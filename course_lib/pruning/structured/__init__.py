"""Structured pruning: neurons, heads, key-value groups, width channels and blocks leave; what stays is dense."""
