"""Prompts for compressed models: words, or vectors that are learned, before the embeddings of a text."""
