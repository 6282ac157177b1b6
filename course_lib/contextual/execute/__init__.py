"""Computing chosen neurons alone, one token at a time, and how fast that is."""
