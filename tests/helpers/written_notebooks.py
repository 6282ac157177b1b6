"""Notebooks written by hand for the tests of the reader, and what a program of theirs defines when it is run."""

import json

from course_lib.grading.notebook import execution

STUB = 'def wanda_score(weight, inputs):\n    raise NotImplementedError("Exercise wanda.score: replace this line")'
RIGHT = "def wanda_score(weight, inputs):\n    return weight * inputs"
CHECK = 'check("wanda.score", wanda_score)'
BOOM = 'raise RuntimeError("an experiment ran")'


def cell(source, id=None, kind="code", exercise=None, **metadata):
    """One cell. An exercise gives it the id and the metadata that students' notebooks have."""
    if exercise:
        slug = exercise.replace(".", "-")
        metadata |= {"exercise": exercise, "nbgrader": {"grade_id": slug, "solution": True}}
        id = id or slug
    made = {"cell_type": kind, "metadata": metadata, "source": source.splitlines(keepends=True)}
    return made | ({"id": id} if id else {}) | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def answer(source):
    return cell(source, exercise="wanda.score")


def notebook(*cells, **extra):
    """The bytes of a notebook; plain text becomes a code cell without id, as Colab leaves them."""
    made = [cell(each) if isinstance(each, str) else each for each in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | extra).encode()


def run(program):
    """The namespace after all statements of a program, each by itself."""
    names, loop = {"__name__": "__main__"}, execution._Loop()
    for statement in program.statements:
        execution._run(statement, names, loop)
    return names


def called(program, *arguments):
    return run(program)[program.function](*arguments)
