"""Two-layer predictors of which neurons a token needs: what they learn from, their training, how good they are."""
