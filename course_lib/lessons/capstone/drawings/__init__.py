"""Figures of lesson 12."""
