"""The experiments of lesson 12, each with its result in NAME.json next to it: parts, a grid of recipes, and drafts."""
