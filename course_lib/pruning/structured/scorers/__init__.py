"""Scores of groups, one paper a file. Whatever lies here is found by the conformance suite."""
