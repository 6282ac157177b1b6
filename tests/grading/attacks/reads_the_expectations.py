"""The exercises with their answers, the hidden cases, the masters, what was measured."""

CELL = """
import importlib
import os

def attack(x):
    found = []
    for name in ("course_lib.exercises.wanda", "course_lib.grading.hidden.wanda", "course_lib.exercises.patterns"):
        try:
            importlib.import_module(name)
            found.append(name)
        except ImportError:
            pass
    import course_lib

    library = os.path.dirname(course_lib.__file__)
    for name in ("exercises", "grading/hidden", "results", "../solutions", "../tests", "../notebooks", "../.git"):
        try:
            found += os.listdir(os.path.join(library, name))
        except OSError:
            pass
    return tuple(found)
"""
STATUS = "ran"
VALUE = ()
TOUCHED = "course_lib/exercises"
