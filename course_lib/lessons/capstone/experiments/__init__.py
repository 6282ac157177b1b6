"""Further experiments of lesson 12, each measured into NAME.json beside it: a grid of recipes, and drafts."""
