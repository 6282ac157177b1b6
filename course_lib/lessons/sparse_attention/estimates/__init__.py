"""The estimates that decide the claims of lesson 11 and enter its figures, one module per result."""
