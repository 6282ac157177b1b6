"""A key-value cache that forgets: slots, policies that say what leaves, and the attention that reads what is left."""
