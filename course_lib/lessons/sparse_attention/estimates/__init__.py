"""The estimates behind the claims and figures of lesson 11, one module per result."""
