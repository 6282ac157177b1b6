"""Benches of a whole model with random weights of a published shape, which are made on the device."""
