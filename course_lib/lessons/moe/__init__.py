"""Lesson 06: mixture of experts."""
