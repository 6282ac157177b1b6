"""Figures of the deck of lesson 07 that no cell of its notebook draws."""
