"""A small language model whose neurons are ReLUs; weights beside its training."""
