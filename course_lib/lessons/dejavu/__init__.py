"""Lesson 09: contextual sparsity (Deja Vu)."""
