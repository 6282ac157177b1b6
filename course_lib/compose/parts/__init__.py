"""What a recipe can have, one part to a file: embedding, weights, neurons, attention, cache, prompt."""
