"""Drawings of deck 10: what a prompted model reads and says, and what it takes on a disk and in a pass."""
