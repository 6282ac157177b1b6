"""Experiments of lesson 09 beside the main one: each has its own command, `course reproduce NAME`, and its own JSON."""
