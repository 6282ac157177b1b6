"""The challenge: a budget in bytes, the measurement of a recipe, and the points for a loss."""
