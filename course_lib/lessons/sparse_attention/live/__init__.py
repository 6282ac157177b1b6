"""What the notebook of lesson 11 computes while it runs."""
