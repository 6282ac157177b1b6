"""Slides: from Markdown to one HTML file that needs no network."""
