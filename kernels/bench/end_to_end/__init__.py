"""Benches of a whole model: random weights of a published shape, made on the device."""
