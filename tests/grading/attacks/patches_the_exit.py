"""Replaces the ways out, so that the process goes on in the warden's code."""

CELL = """
import os
import sys

def attack(x):
    os._exit = sys.exit = lambda *_: None
    os.write = lambda pipe, content: len(content)
    return x
"""
STATUS = None
