"""A small language model whose neurons are ReLUs; weights next to its training."""
