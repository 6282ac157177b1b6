"""Lesson 02: optimal brain damage and surgeon; exercises, figures, what is measured."""
