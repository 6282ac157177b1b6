"""Recipes that combine compression methods: their settings, the models they build, and the bytes that a model needs."""
