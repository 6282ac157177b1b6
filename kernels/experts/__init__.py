"""Layers of experts: who works on which token, and the products by expert."""
