"""Run a student's function in a sandbox, and return an answer that is not trusted."""
