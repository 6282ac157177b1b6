"""Heads chosen by an oracle, the same for all tokens, and by trained predictors."""
