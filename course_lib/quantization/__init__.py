"""Quantized weights: grids, packed codes, and GPTQ, which compensates each rounding error with other weights."""
