"""A made-up class of which the grades are known, to grade the grader."""
