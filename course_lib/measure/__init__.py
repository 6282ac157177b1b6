"""Perplexity, accuracy, times, rooflines, and the files they go to; knows no cache, no pruner and no lesson."""
