"""Lesson 05: smaller dense models out of a larger one, and distillation."""
