"""Bytes and multiplications of a built model, counted from its tensors and computed again by formula."""
