"""Printed tables of lesson 12 and their verdicts: parts, recipes, what is quoted, drafts, time, the claims' page."""
