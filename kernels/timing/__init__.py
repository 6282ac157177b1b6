"""Timing of a contest's sides in turns, and the resulting rows."""

# How tables write the verdicts of the stored rows. A "contest" is a comparison, and a "side" an implementation.
WORDS = {"anchor": "reference", "wins": "faster", "even": "even", "loses": "slower"}
