"""Benches, one per file: each has contests, which compare a kernel or method with its bound and the best alternatives.

Benches of one kernel are in the folder with the name of the kernel's folder; benches of a whole method are here.
"""
