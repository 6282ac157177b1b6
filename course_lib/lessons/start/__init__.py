"""Lesson 00: where time and memory go; the exercises and figures."""
