"""Lesson 01: sparsity patterns, the formats that store them, and what hardware makes of them."""
