"""Small language models trained from nothing, with and without a sink; weights next to their training."""
