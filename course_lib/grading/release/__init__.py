"""Make the files for students, nbgrader and Gradescope, and prove that they contain no answer."""
