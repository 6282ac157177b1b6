"""Figures of lesson 09: drawn from what the notebook computes, and of what was measured."""
