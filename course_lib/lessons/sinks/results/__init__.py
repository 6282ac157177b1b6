"""Figures and tables of lesson 08 from its committed results, one module per result."""
