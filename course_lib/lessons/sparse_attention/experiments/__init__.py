"""The experiments of lesson 11, their results, and what several of them share."""
