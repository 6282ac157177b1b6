"""A notebook to the statements that one function needs; standard library alone, nothing is run."""
