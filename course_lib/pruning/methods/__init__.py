"""Pruning methods, one paper per file. The conformance tests and `course prune` find every LayerPruner here."""
