"""Which function of a notebook answers an exercise."""
