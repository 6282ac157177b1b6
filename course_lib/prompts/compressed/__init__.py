"""Compressed copies of a model, for prompts to be learned on: which there are, how they are stored and kept."""
