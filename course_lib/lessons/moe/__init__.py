"""Lesson 06: mixture of experts; exercises, figures, what is measured."""
