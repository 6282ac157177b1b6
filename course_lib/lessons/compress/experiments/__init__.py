"""Experiments of lesson 10 beside the main one: each has its own command, `course reproduce NAME`, and its own JSON."""
