"""One paper, one file: what tells which neurons a token needs."""
