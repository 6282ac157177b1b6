"""All that makes a model smaller, in one recipe: what it says, the model it makes, and what that holds and reads."""
