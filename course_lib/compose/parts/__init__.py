"""The parts of a recipe, one part to a file: embedding, weights, neurons, attention, cache, prompt."""
