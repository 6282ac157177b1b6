"""A student's function, run where it can do no harm, to an answer that is not trusted."""
