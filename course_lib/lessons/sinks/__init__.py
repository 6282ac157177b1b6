"""Lesson 08: attention sinks; exercises, figures, what is measured."""
