"""Contextual sparsity: which neurons and heads a token needs, chosen anew for every token. Deja Vu and its successors."""
