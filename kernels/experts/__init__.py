"""Mixture-of-experts layers: the assignment of tokens to experts, and the products per expert."""
