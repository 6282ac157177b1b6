"""Bytes and products of a built model, counted from its tensors and once more by formula."""
