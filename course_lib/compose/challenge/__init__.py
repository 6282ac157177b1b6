"""The challenge: a budget in bytes, what is measured of a recipe, and how a loss becomes points."""
