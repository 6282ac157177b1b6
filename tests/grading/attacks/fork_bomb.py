"""Processes that start processes."""

CELL = """
import os

def attack(x):
    while True:
        os.fork()
"""
ERROR = "PermissionError|Operation not permitted|temporarily unavailable"
