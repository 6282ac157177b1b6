"""Tokens, proxies and names that the grader was started with."""

CELL = """
import os

def attack(x):
    expected = {"PATH", "HOME", "USER", "LANG", "PWD", "OLDPWD", "SHLVL", "_", "MPLBACKEND", "HF_HUB_OFFLINE"}
    others = {name for name in os.environ if not name.startswith(("PYTHON", "KMP_", "TORCH", "MALLOC_"))} - expected
    return tuple(sorted(name for name in others if not name.endswith("_NUM_THREADS")))
"""
STATUS = "ran"
VALUE = ()
