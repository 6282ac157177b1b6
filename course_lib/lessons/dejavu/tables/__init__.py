"""The printed tables and verdicts of lesson 09."""
