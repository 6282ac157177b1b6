"""Two-layer predictors of the neurons that a token needs: what they learn from, their training, how good they are."""
