"""What the notebook of lesson 05 runs on models."""
