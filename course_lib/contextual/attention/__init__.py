"""Which heads a token needs, and what becomes of the keys and values of those that it does not use."""
