"""Figures of what lesson 11 measured, a paper a file."""
