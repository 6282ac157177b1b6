"""Contextual sparsity: which neurons and heads a token needs (Deja Vu and its successors)."""
