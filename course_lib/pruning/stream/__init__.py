"""Pruning a checkpoint that is larger than memory: read, prune and write block by block, and resume."""
