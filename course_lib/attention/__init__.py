"""Attention where the softmax itself changes: sinks that take a share and say nothing, and models trained with them."""
