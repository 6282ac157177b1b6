"""The parts of a recipe, one file per part: embedding, weights, neurons, attention, cache, prompt."""
