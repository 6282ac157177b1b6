"""Gradients of a router that draws one expert: one estimator a file, and exactly how wrong and noisy each is."""
