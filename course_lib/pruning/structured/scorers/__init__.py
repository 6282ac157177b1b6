"""Scores of groups, one paper per file. The conformance tests find all scorers in this folder."""
