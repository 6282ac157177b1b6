"""One paper, one file: how to choose the neurons that a token needs."""
