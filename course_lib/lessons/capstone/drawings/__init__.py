"""Drawings of lesson 12: fronts of recipes, shares of parts, pairs and orders, drafts, bytes beside time."""
