"""Grading a class: submissions run in a sandbox and return data; everything is compared outside."""
