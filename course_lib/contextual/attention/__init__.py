"""Which heads a token needs, and what happens to the keys and values of those that it does not use."""
