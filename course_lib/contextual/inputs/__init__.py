"""Thresholds on what every linear reads, and densities of its own for each input: TEAL."""
