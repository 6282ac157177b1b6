"""Find the function of a notebook that answers an exercise."""
