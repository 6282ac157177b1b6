"""Signals that a human may want to look at: code equal to another answer's, and calls of the course's own functions."""
