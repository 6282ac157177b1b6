"""The part of a complete layer that one token computes: its neurons, its inputs, its heads."""
