"""The exercises with their answers, the hidden cases, the masters, what was measured."""

CELL = """
import importlib
import os

def attack(x):
    found = []
    for name in ("lessons.wanda.exercises", "lessons.patterns.exercises", "lessons.kv", "grading.hidden_cases.wanda"):
        try:
            importlib.import_module(f"course_lib.{name}")
            found.append(name)
        except ImportError:
            pass
    import course_lib

    library = os.path.dirname(course_lib.__file__)
    places = ["lessons", "lessons/wanda", "lessons/wanda/exercises", "grading/hidden_cases", "grading/synthetic"]
    for name in (*places, "../solutions", "../tests", "../notebooks", "../.git"):
        try:
            found += os.listdir(os.path.join(library, name))
        except OSError:
            pass
    return tuple(found)
"""
STATUS = "ran"
VALUE = ()
TOUCHED = "course_lib/lessons"
