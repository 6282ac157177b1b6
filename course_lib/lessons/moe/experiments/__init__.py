"""Experiments of lesson 06: each has its own command, `course reproduce NAME`, and its own JSON file."""
