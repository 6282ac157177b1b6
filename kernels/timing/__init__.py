"""How sides of a contest are timed in turn, and the rows that come of it."""
