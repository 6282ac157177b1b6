"""How sides of a contest are timed in turn, and the rows that come of it."""

# How tables write the verdicts of the stored rows. A "contest" is a comparison, and a "side" an implementation.
WORDS = {"anchor": "reference", "wins": "faster", "even": "even", "loses": "slower"}
