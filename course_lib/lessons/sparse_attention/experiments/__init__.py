"""The experiments of lesson 11, their results, and code that several of them share."""
