"""Lesson 04: Wanda; exercises, figures, what is measured."""
