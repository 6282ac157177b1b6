"""What students, nbgrader and Gradescope get, and the proof that no answer is in it."""
