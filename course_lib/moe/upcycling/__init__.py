"""Dense models made into mixtures: an MLP copied into experts, or divided among them."""
