"""Attention without a cache: windows, sinks that take a share and say nothing, models trained so; sparse prefill."""
