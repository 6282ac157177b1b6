"""Drawings of lesson 09 that measure nothing: neurons and who needs them, prediction, memory, and what it costs."""
