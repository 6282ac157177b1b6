"""Weights on few bits: grids, packing, and quantization that lets the weights still to come make up for each error."""
