"""Pruning: which weights of a pretrained model go, what the others do about it, and how a model is walked."""
