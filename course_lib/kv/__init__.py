"""A key-value cache with eviction: slots, policies that choose the tokens to evict, and attention over the slots."""
