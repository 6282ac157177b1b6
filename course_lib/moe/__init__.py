"""Mixture of experts: who goes to which expert, the layer that computes only those, and what keeps them balanced."""
