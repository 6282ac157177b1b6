"""What a recipe can have, one part to a file: weights, neurons, attention, cache, prompt."""
