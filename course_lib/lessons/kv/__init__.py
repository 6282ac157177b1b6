"""Lesson 07: evicting from the key-value cache; exercises, figures, what is measured."""
