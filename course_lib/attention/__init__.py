"""Attention without a cache: windows, sinks that take a share and say nothing, and models trained with them."""
