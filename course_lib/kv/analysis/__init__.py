"""Measurements of what a cache keeps: attention, streams, retrieval, compressed prompts."""
