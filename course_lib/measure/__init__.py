"""Perplexity, accuracy, times, rooflines, and result files; independent of caches, pruners and lessons."""
