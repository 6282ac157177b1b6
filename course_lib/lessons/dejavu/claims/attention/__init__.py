"""Claims about heads: by oracle, the same for all tokens, and by trained predictors."""
