"""Find signals for a human: code equal to another answer's, and calls of the course's own functions."""
