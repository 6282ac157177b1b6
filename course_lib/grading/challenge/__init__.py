"""The graded challenge: recipes of a class, measured by the grader itself, ranked, and written as grades."""
