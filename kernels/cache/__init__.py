"""The key-value cache: attention over the slots that are left, and what a policy needs to know of it."""
