"""Lesson 05: Minitron; exercises, figures, what is measured."""
