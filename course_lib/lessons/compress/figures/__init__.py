"""Figures of lesson 10's long measurement."""
