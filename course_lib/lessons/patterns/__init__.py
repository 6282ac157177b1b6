"""Lesson 01: sparsity patterns; exercises, figures, what is measured."""
