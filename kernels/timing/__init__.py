"""Timing of a contest's sides in turns, and the resulting rows."""
