"""Which entries of a matrix stay, how zeros are not stored, and what that saves; no model is pruned here."""
