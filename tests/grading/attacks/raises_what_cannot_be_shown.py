"""Exceptions whose own methods fail, end the process, or say far too much."""

CELL = """
import os

class Loud(Exception):
    def __str__(self):
        return "x" * 10**8

class Broken(Exception):
    def __str__(self):
        raise KeyboardInterrupt

def attack(x):
    raise Loud if len(x) == 3 else Broken
"""
STATUS = "ran"
ERROR = "Loud"
