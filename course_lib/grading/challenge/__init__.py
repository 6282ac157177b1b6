"""The graded challenge: measure the recipes of a class, rank them, and write grades."""
