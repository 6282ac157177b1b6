"""An array far beyond the limit, written to."""

CELL = """
import numpy

def attack(x):
    return numpy.ones(10**11).sum()
"""
ERROR = "Unable to allocate|MemoryError"
