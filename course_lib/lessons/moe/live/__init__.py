"""What the notebook of lesson 06 runs: a student's functions on real activations, in training, on small problems."""
