"""Lesson 03: SparseGPT; exercises, figures, what is measured."""
