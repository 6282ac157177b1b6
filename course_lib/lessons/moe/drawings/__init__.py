"""Drawings of lesson 06 that measure nothing: the layer, its places, gate and balance, and how all of it learns."""
