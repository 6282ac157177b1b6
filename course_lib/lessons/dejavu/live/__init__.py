"""What the notebook of lesson 09 runs: a student's functions on real activations, and views of what is computed."""
