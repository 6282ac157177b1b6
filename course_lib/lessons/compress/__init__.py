"""Lesson 10: compress, then prompt."""
