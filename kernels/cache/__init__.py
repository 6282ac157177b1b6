"""The key-value cache: attention over the kept slots, and the statistics that a policy needs."""
