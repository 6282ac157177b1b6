"""Find the statements of a notebook that one function needs, with the standard library only and without running any."""
