"""Pruning of pretrained models: choose weights to prune, update the kept ones, and process a model block by block."""
