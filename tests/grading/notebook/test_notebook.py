"""Reading a notebook: whatever wrote it, the function that answers is found, or a sentence says why not."""

import json
import linecache
import re
import traceback
from pathlib import Path

import jupytext
import pytest
from written_notebooks import BOOM, CHECK, RIGHT, STUB, answer, called, cell, notebook, run

from course_lib.grading.notebook.cells import LARGEST, LONGEST_CELL, MOST_CELLS, MOST_STATEMENTS
from course_lib.grading.notebook.program import load

ROOT = Path(__file__).parents[3]
WRONG = RIGHT.replace("weight * inputs", "weight + inputs")
RENAMED = RIGHT.replace("wanda_score", "my_score")


def program(*cells, exercise="wanda.score", function="wanda_score"):
    return load(notebook(*cells)).program(exercise, function)


# The file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty file"),
        (b" \n", "empty file"),
        (b"{", "not JSON"),
        (notebook(RIGHT)[:-20], "cut off"),
        (b"{\n<<<<<<< HEAD\n1\n=======\n2\n>>>>>>> theirs\n}", "marks of a Git conflict .*resolve the conflict"),
        (b"{\r\n  <<<<<<<\r\n1\r\n  =======\r\n2\r\n}", "marks of a Git conflict"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04rest", "zip that is named as a notebook"),
        (b"[1, 2]", "no list of cells"),
        (b'{"cells": 3}', "no list of cells"),
        (b'"cells"', "no list of cells"),
        (b"null", "no list of cells"),
        (b'{"cells": [], "x": "\xe9"}', "no utf-8 text"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"cells": ' + b"9" * 5000 + b"}", "not JSON"),
        (json.dumps({"cells": [{}] * (MOST_CELLS + 1)}).encode(), f"{MOST_CELLS + 1} cells"),
        (notebook(*["x = 1\n" * 40_000] * 20), "characters of code"),
        (notebook("x = 1\n" * (MOST_STATEMENTS // 2 + 1), "x=1;" * (MOST_STATEMENTS // 2)), "than 50000 statements"),
    ],
)
def test_what_is_no_notebook_is_refused_with_the_reason(content, said):
    with pytest.raises(ValueError, match=said):
        load(content)


def test_a_notebook_larger_than_any_is_refused():
    with pytest.raises(ValueError, match="clear its outputs"):
        load(b" " * (LARGEST + 1))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encodings_that_editors_write_are_read(encoding):
    text = notebook(RIGHT.replace("weight * inputs", "weight * inputs  # ·")).decode()
    assert called(load(text.encode(encoding)).program("wanda.score", "wanda_score"), 3, 4) == 12


def test_a_notebook_of_format_3_is_read():
    cells = [{"cell_type": "code", "input": RIGHT.splitlines(True), "language": "python"}, "no cell"]
    content = json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}, 7]}).encode()
    assert called(load(content).program("wanda.score", "wanda_score"), 3, 4) == 12


@pytest.mark.parametrize(
    "odd",
    [
        {"cell_type": "code", "source": 3},
        {"cell_type": "code", "source": [RIGHT, 5], "metadata": [], "id": 7},
        {"cell_type": ["code"], "metadata": {"nbgrader": "x", "exercise": {}}, "source": "y"},
        {"source": "x"},
        None,
    ],
)
def test_odd_cells_cost_nothing(odd):
    content = json.dumps({"cells": [odd, cell(RIGHT)]}).encode()
    assert called(load(content).program("wanda.score", "wanda_score"), 3, 4) == 12


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_ends_are_read(end):
    source = f"K = 1\n{RIGHT} * K".replace("\n", end)
    made = program({"cell_type": "code", "source": source})
    assert called(made, 3, 4) == 12
    assert [each.line for each in made.statements] == [1, 2]


# Which function --------------------------------------------------------------------------------------------------

FOUND = {
    "by its cell": (answer(RIGHT),),
    "by its cell, renamed": (answer(RENAMED),),
    "by its cell, renamed, with a helper after it": (
        answer("def my_score(a, b):\n    return _times(a, b)\n\n\ndef _times(a, b):\n    return a * b"),
    ),
    "by metadata, the id replaced": (cell(RENAMED, id="a1b2", exercise="wanda.score"),),
    "by grade_id alone": (cell(RENAMED, nbgrader={"grade_id": "wanda-score"}),),
    "by its name, as Colab leaves it": (RIGHT,),
    "by the check, renamed, without metadata": (RENAMED, 'check("wanda.score", my_score)'),
    "by the check, with keywords": (RENAMED, 'workbook.check(function=my_score, exercise_id="wanda.score")'),
    "by the check, inside of an if": (RENAMED, 'if True:\n    check("wanda.score", my_score)'),
    "a lambda given to the check": (STUB, 'check("wanda.score", lambda weight, inputs: weight * inputs)'),
    "partial given to the check": (
        "from functools import partial\ndef f(k, w, x):\n    return k * w * x",
        'check("wanda.score", partial(f, 1))',
    ),
    "a method given to the check": (
        "class Solver:\n    def score(self, w, x):\n        return w * x",
        'check("wanda.score", Solver().score)',
    ),
    "an object that can be called": (
        "class Score:\n    def __call__(self, w, x):\n        return w * x",
        "scorer = Score()",
        'check("wanda.score", scorer)',
    ),
    "a lambda": ("wanda_score = lambda w, x: w * x", CHECK),
    "a lambda with a type": ("wanda_score: object = lambda w, x: w * x",),
    "another name for it": (RENAMED, STUB, "wanda_score = my_score"),
    "partial": ("import functools\ndef f(k, w, x):\n    return k * w * x\nwanda_score = functools.partial(f, 1)",),
    "wrapped": (RIGHT, "def wrap(f):\n    return lambda *a: f(*a)", "wanda_score = wrap(wanda_score)"),
    "a factory": (
        STUB,
        "def make(k):\n    def f(w, x):\n        return k * w * x\n    return f",
        "wanda_score = make(1)",
    ),
    "from a table": ("TABLE = {'a': lambda w, x: w * x}", "wanda_score = TABLE['a']"),
    "decorated": ("import functools\n@functools.lru_cache(\n    None)\n" + RIGHT,),
    "two lambdas at once": (STUB, "other, wanda_score = lambda: 0, lambda w, x: w * x"),
    "in a with": ("import torch\nwith torch.no_grad():\n    " + RIGHT.replace("\n", "\n    "),),
    "in an if": ("if 1 > 0:\n    " + RIGHT.replace("\n", "\n    ") + "\nelse:\n    wanda_score = None",),
    "the stub left below": (answer(RIGHT), answer(STUB), CHECK),
    "the stub left above, written in a new cell": (answer(STUB), RIGHT, CHECK),
    "written in a new cell under a new name": (answer(STUB), RENAMED, 'check("wanda.score", my_score)'),
    "twice, the last one counts": (answer(WRONG), RIGHT),
    "twice, the last one above the check counts": (answer(WRONG), RIGHT, CHECK, WRONG),
    "twice, each with a check": (answer(WRONG), CHECK, RIGHT, CHECK),
    "below the check, above it a stub": (answer(STUB), CHECK, RIGHT),
    "from a table, above the check": ("T = [lambda w, x: w * x]", WRONG, "wanda_score = T[0]", CHECK, WRONG),
    "twice in one cell": (answer(WRONG + "\n" + RIGHT),),
    "a number of the same name later": (answer(RIGHT), CHECK, "wanda_score = 0.5", "wanda_score = wanda_score(1, 2)"),
    "a result of the same name later": (answer(RIGHT), CHECK, "wanda_score = 2 * wanda_score(3, 4)"),
    "the check above": (CHECK, RIGHT),
    "merged into one cell": ("import torch\nx = 1\n" + RIGHT + "\n" + CHECK + "\n" + BOOM,),
    "an indented cell": ("    def wanda_score(w, x):\n        return w * x\n",),
    "another exercise's cell was the pattern": (
        answer(RIGHT),
        cell("def accumulate(total, batch):\n    return 0", exercise="wanda.score", id="copy"),
        'check("wanda.accumulate", accumulate)',
    ),
    "a broken copy": (answer(RIGHT), cell("def wanda_score(w, x:\n    return", id="zz")),
}


# One name for everything: the answer is what stood there when the check was called.
OTHER = "def f(w, x):\n    return w + x"
MINE = "def f(w, x):\n    return w * x"
REGISTRY = (
    "KNOWN = {}\ndef answers(name):\n    def keep(g):\n        KNOWN[name] = g\n        return g\n    return keep"
)
OF_ONE_NAME = {
    "by name": (MINE, 'check("wanda.score", f)', OTHER, 'check("wanda.other", f)'),
    "the last": (OTHER, 'check("wanda.other", f)', MINE, 'check("wanda.score", f)'),
    "checked twice": (OTHER, 'check("wanda.score", f)', MINE, 'check("wanda.score", f)', OTHER),
    "checked together below": (MINE, "g = f", OTHER, 'check("wanda.other", f); check("wanda.score", g)'),
    "in one cell": (f'{MINE}\ncheck("wanda.score", f)\n{OTHER}\ncheck("wanda.other", f)',),
    "by keywords": (MINE, 'check(function=f, exercise_id="wanda.score")', OTHER),
    "the exercise in a name": (MINE, 'ex = "wanda.score"\ncheck(ex, f)', 'ex = "wanda.other"', OTHER, "check(ex, f)"),
    "the exercise in a table": ("IDS = {'a': 'wanda.score'}", MINE, "check(IDS['a'], f)", OTHER),
    "the exercise in a list": ("IDS = ['wanda.score']", MINE, "check(IDS[0], f)", OTHER),
    "the exercise put together": ("L = 'wanda'", MINE, 'check(f"{L}.score", f)', OTHER),
    "the exercise added up": ("L = 'wanda'", MINE, 'check(L + ".score", f)', OTHER),
    "the exercise bound in the call": (MINE, 'check((ex := "wanda.score"), f)', OTHER),
    "check under another name": ("from course_lib.workbook import check as c", MINE, 'c("wanda.score", f)', OTHER),
    "an entry": ("T = {}", MINE, "T['a'] = f", 'check("wanda.score", T["a"])', OTHER),
    "an entry, bound": ("T = {}", MINE, "T['a'] = f", "g = T['a']", 'check("wanda.score", g)', answer(OTHER)),
    "registered": (
        REGISTRY,
        answer("@answers('wanda.score')\n" + MINE),
        'check("wanda.score", KNOWN["wanda.score"])',
        answer("@answers('wanda.other')\n" + OTHER),
    ),
    "a method of an object": (
        "class S:\n    def f(self, w, x):\n        return w * x\ns = S()",
        answer(OTHER),
        'check("wanda.score", s.f)',
        "class S:\n    def f(self, w, x):\n        return 0\ns = S()",
    ),
    "an object": (
        "class S:\n    def __call__(self, w, x):\n        return w * x\ns = S()",
        'check("wanda.score", s)',
        "class S:\n    def __call__(self, w, x):\n        return 0\ns = S()",
    ),
    "made": (answer(MINE + "\ndef make():\n    return T[0]\nT = [f]"), 'check("wanda.score", make())', OTHER),
    "made and bound": (MINE + "\ndef make():\n    return T[0]\nT = [f]\ng = make()", 'check("wanda.score", g)', OTHER),
    "a lambda": (MINE, 'check("wanda.score", lambda w, x: f(w, x))', OTHER),
    "partial": (
        "from functools import partial\ndef f(k, w, x):\n    return k * w * x",
        'check("wanda.score", partial(f, 1))',
        "def f(k, w, x):\n    return 0",
    ),
    "bound in the call": ('check("wanda.score", f := lambda w, x: w * x)', answer(OTHER)),
    "in a loop over a list": (
        MINE + "\n\n\ndef g(w, x):\n    return 0",
        'for name, function in [("wanda.score", f), ("wanda.other", g)]:\n    check(name, function)',
        OTHER,
    ),
    "in a loop over a table": (
        MINE,
        'T = {"wanda.score": f}',
        OTHER,
        'T2 = {"wanda.other": f}',
        "for name, function in T.items():\n    check(name, function)",
        "[check(name, function) for name, function in T2.items()]",
    ),
    "in a loop over a list that has a name": (
        MINE,
        'T = [(f, "wanda.score")]',
        OTHER,
        "for function, name in T:\n    check(name, function)",
    ),
    "in a loop over the names of a table": (
        MINE,
        'T = {"wanda.score": f}',
        OTHER,
        "for name in T:\n    check(name, T[name])",
    ),
    "in a loop over names": (MINE, 'for name in ["wanda.score"]:\n    check(name, f)', OTHER),
    "the exercises in two names": ('a, b = "wanda.score", "wanda.other"', MINE, "check(a, f)", OTHER, "check(b, f)"),
    "by globals": (MINE, 'check("wanda.score", globals()["f"])', OTHER),
    "its helpers have one name too": (
        "def h(x):\n    return x",
        "def f(w, x):\n    return h(w) * x",
        'check("wanda.score", f)',
        "def h(x):\n    return 0",
        OTHER,
        'check("wanda.other", f)',
    ),
}


# What check is given is put together, handed on, or stands in a table that the notebook fills step by step.
_DECORATOR = "REG = {}\ndef answers(name):\n    def keep(g):\n        REG[name] = g\n    return keep"
OF_ONE_NAME |= {
    "check assigned": ("c = check", MINE, 'c("wanda.score", f)', OTHER, 'c("wanda.other", f)'),
    "a helper": (
        "def test(name, g):\n    print(name)\n    return check(name, g)",
        MINE,
        'test("wanda.score", f)',
        OTHER,
        'test("wanda.other", g=f)',
    ),
    "a helper that adds the lesson": (
        'def test(g, name="score"):\n    check(f"wanda.{name}", g)',
        MINE,
        'test(f, name="score")',
        OTHER,
        'test(f, "other")',
    ),
    "a helper with a default": (
        'def test(g, name="wanda.score"):\n    check(name, g)',
        MINE,
        "test(f)",
        OTHER,
        'test(f, "wanda.other")',
    ),
    "a helper for one exercise": ('def test(g):\n    check("wanda.score", g)', MINE, "test(f)", OTHER),
    "a lambda in a loop": (
        MINE,
        "for name in ['wanda.score', 'wanda.other']:\n    check(name, lambda w, name: f(w, name))",
    ),
    "a lambda as a helper": ("t = lambda g, name: check(name, g)", MINE, 't(f, "wanda.score")', OTHER),
    "partial of check": ("from functools import partial", MINE, 'partial(check, "wanda.score")(f)', OTHER),
    "a starred tuple": (MINE, 'check(*("wanda.score", f))', OTHER),
    "a starred tuple that has a name": (MINE, 'both = ("wanda.score", f)', OTHER, "check(*both)"),
    "the exercise formatted": (MINE, 'check("wanda.%s" % "score", f)', OTHER),
    "the exercise formatted of two": ("L = 'wanda'", MINE, 'check("%s.%s" % (L, "score"), f)', OTHER),
    "the exercise joined": (MINE, 'check(".".join(["wanda", "score"]), f)', OTHER),
    "the exercise added up of three": (MINE, 'check("wanda" + "." + "score", f)', OTHER),
    "a table filled by cells": (
        "T = {}",
        MINE + "\nT['wanda.score'] = f",
        OTHER + "\nT['wanda.other'] = f",
        "for name in T:\n    check(name, T[name])",
    ),
    "the items of a filled table": (
        "T = dict()",
        "T['wanda.score'] = lambda w, x: w * x",
        OTHER + "\nT['wanda.other'] = f",
        "for name, g in T.items():\n    check(name, g)",
    ),
    "a filled list": (
        "ids, fs = ['wanda.score', 'wanda.other'], []",
        MINE + "\nfs.append(f)",
        OTHER + "\nfs.append(f)",
        "for name, g in zip(ids, fs):\n    check(name, g)",
    ),
    "two filled lists": (
        "ids = []\nfs = []",
        MINE + "\nids.append('wanda.score')\nfs.append(f)",
        OTHER + "\nids.append('wanda.other')\nfs.append(f)",
        "[check(name, g) for name, g in zip(ids, fs)]",
    ),
    "a table of short names": (
        "T = {}",
        MINE + "\nT['score'] = f",
        OTHER + "\nT['other'] = f",
        "for name in T:\n    check(f'wanda.{name}', T[name])",
    ),
    "short names and globals": (
        MINE + "\nscore = f",
        OTHER + "\nother = f",
        "for name in 'score other'.split():\n    check('wanda.' + name, globals()[name])",
    ),
    "a decorator that returns nothing": (
        _DECORATOR,
        "@answers('wanda.score')\n" + MINE,
        "@answers('wanda.other')\n" + OTHER,
        "for name, g in REG.items():\n    check(name, g)",
    ),
    "a decorator that returns nothing, in the exercise's own cell": (
        _DECORATOR,
        answer("@answers('wanda.score')\n" + MINE),
        cell("@answers('wanda.other')\n" + OTHER, exercise="wanda.other"),
        "for name in REG:\n    check(name, REG[name])",
    ),
}


@pytest.mark.parametrize("name", OF_ONE_NAME)
def test_of_one_name_the_definition_above_the_check_is_the_answer(name):
    assert called(program(*OF_ONE_NAME[name]), 3, 4) == 12


def test_each_exercise_has_its_own_definition_of_one_name_and_no_news():
    cells = (MINE, 'check("wanda.score", f)', OTHER, 'check("wanda.other", f)')
    for exercise, expected in (("wanda.score", 12), ("wanda.other", 7)):
        made = program(*cells, exercise=exercise, function=exercise.replace(".", "_"))
        assert called(made, 3, 4) == expected
        assert len(made.notes) == 1
        assert made.notes[0].startswith("The function is called f here")


# One name in the cells of several exercises, checked in a way that no reader of the text follows.
UNREAD = {
    "no check": ("", ""),
    "by a helper that finds the exercise": ("", "pruefe(f)"),
    "through getattr": ("", 'getattr(workbook, "check")("wanda.score", f)'),
    "handed to another name": ("", "ask = pick(check)\nask(which(), f)"),
    "put in a table": ("T = {}", "T[which()] = f"),
    "the other one's check is read": ("", 'check("wanda.other", f)'),
}


@pytest.mark.parametrize("bare", ["whole", "ids alone", "grade_id alone"])
@pytest.mark.parametrize("name", UNREAD)
def test_of_one_name_the_definition_in_the_exercises_own_cell_is_the_answer(name, bare):
    first, checked = UNREAD[name]
    mine, other = "def f(w, x):\n    return h(w) * x", "def f(w, x):\n    return h(w) + x"
    cells = [
        answer(f"def h(x):\n    return x\n\n\n{mine}"),
        "" if "wanda.other" in checked else checked,
        cell(f"def h(x):\n    return x + 1\n\n\n{other}\n{checked}", exercise="wanda.other"),
        checked,
    ]
    for each in (each for each in cells if isinstance(each, dict) and bare != "whole"):
        metadata = each["metadata"].copy()
        each["metadata"] = {} if bare == "ids alone" else {"nbgrader": metadata["nbgrader"]}
        if bare == "grade_id alone":
            del each["id"]
    made = program(first, *cells)
    assert called(made, 3, 4) == 12
    assert made.notes == ("The function is called f here (cell 2), not wanda_score; it was graded.",)
    assert called(program(first, *cells, exercise="wanda.other", function="other"), 3, 4) == 8


def test_a_later_definition_outside_the_exercises_own_cell_is_said():
    made = program(answer(MINE), cell(OTHER, exercise="wanda.other"), OTHER)
    assert called(made, 3, 4) == 12
    assert made.notes[1] == (
        "f is defined again (cell 3), but the definition in the exercise's own cell, cell 1, was graded. If the later "
        "one is your answer, give it a name of its own and call check below it."
    )


def test_without_checks_a_name_that_another_exercise_reuses_stays_its_own():
    made = program(
        answer(RIGHT), cell(WRONG + "\n\n\ndef other(w, x):\n    return wanda_score(w, x)", exercise="wanda.other")
    )
    assert called(made, 3, 4) == 12
    assert made.notes == ()
    made = program(answer(WRONG), cell(WRONG, exercise="wanda.other"), RIGHT, answer(RIGHT))
    assert called(made, 3, 4) == 12


def test_a_definition_below_its_check_is_not_graded_and_said():
    made = program(answer(WRONG), CHECK, RIGHT)
    assert called(made, 3, 4) == 7
    assert made.notes == (
        "wanda_score is defined again below its check (cell 3), but the definition above the check, in cell 1, was "
        "graded. If the later one is your answer, call check again below it.",
    )
    assert program(answer(RIGHT), CHECK, RIGHT).notes == (), "pasted again, it is no other answer"


def test_without_a_check_the_last_definition_counts():
    assert called(program(WRONG, RIGHT), 3, 4) == 12
    assert called(program(CHECK, WRONG, RIGHT), 3, 4) == 12, "the cells changed places"
    assert called(program(WRONG, RIGHT, "check(unknown_name, wanda_score)"), 3, 4) == 12


@pytest.mark.parametrize("name", FOUND)
def test_the_answer_is_found(name):
    assert called(program(*FOUND[name]), 3, 4) == 12


def test_what_check_is_given_on_purpose_comes_before_a_first_attempt():
    made = program(answer(WRONG), RENAMED, 'check("wanda.score", my_score)')
    assert called(made, 3, 4) == 12
    assert made.notes == ("The function is called my_score here (cell 2), not wanda_score; it was graded.",)


TRIED = {
    "a first try above": (
        "def first_try(w, x):\n    return 0",
        'check("wanda.score", first_try)',
        answer(RIGHT),
        CHECK,
    ),
    "a lambda at the end": (answer(RIGHT), CHECK, 'check("wanda.score", lambda w, x: abs(w))'),
    "an old version, by keyword": (
        "def wanda_score_old(w, x):\n    return w",
        answer(RIGHT),
        CHECK,
        'check("wanda.score", function=wanda_score_old)',
    ),
    "another exercise's function": (
        answer(RIGHT),
        CHECK,
        cell("def keep_rows(score, k):\n    return score", exercise="wanda.keep_rows"),
        'check("wanda.keep_rows", keep_rows)',
        'check("wanda.keep_rows", wanda_score)\ncheck("wanda.score", keep_rows)',
    ),
}


@pytest.mark.parametrize("name", TRIED)
def test_what_check_is_given_besides_replaces_nothing(name):
    made = program(*TRIED[name])
    assert called(made, 3, 4) == 12
    (note,) = made.notes
    assert re.fullmatch(r"check was also given something else \(cell \d\); wanda_score, in cell \d, was graded\.", note)


def test_what_is_tried_beside_a_stub_is_the_answer():
    assert called(program(answer(STUB), CHECK, RENAMED, 'check("wanda.score", my_score)'), 3, 4) == 12


def test_a_result_given_to_the_check_is_no_function():
    assert called(program(RIGHT, 'check("wanda.score", wanda_score(1, 2))'), 3, 4) == 12


def test_a_note_says_which_of_two_definitions_was_taken():
    made = program(cell("text", kind="markdown"), answer(WRONG), answer(RIGHT))
    assert made.notes == (
        "wanda_score is defined more than once (also in cell 2); the last one, in cell 3, was graded.",
    )
    assert not program(answer(STUB), answer(RIGHT)).notes


def test_a_note_says_that_both_definitions_stand_in_one_cell():
    assert program(answer(WRONG + "\n" + RIGHT)).notes == (
        "wanda_score is defined twice in cell 1; the last one was graded.",
    )
    assert program(answer(f"{WRONG}\n{WRONG}\n{RIGHT}"), CHECK).notes == (
        "wanda_score is defined 3 times in cell 1; the last one was graded.",
    )
    assert program(answer(f"{WRONG}\n{RIGHT}\n{CHECK}\n{WRONG}")).notes == (
        "wanda_score is defined twice in cell 1; the last one above its check was graded.",
        "wanda_score is defined again below its check (cell 1), but the definition above the check, in cell 1, was "
        "graded. If the later one is your answer, call check again below it.",
    )
    assert program(WRONG, answer(WRONG + "\n" + RIGHT)).notes == (
        "wanda_score is defined more than once (also in cell 1, and above it in cell 2); the last one, in cell 2, was "
        "graded.",
    )


def test_an_untouched_stub_still_gives_a_program():
    with pytest.raises(NotImplementedError, match="replace this line"):
        called(program(answer(STUB), CHECK), 1, 2)


def test_what_stands_beside_a_stub_is_not_the_answer():
    """A helper was written, or a package imported, and then nothing more."""
    beside = "import math\nfrom os import path as package\n\n\ndef helper(a, b):\n    return a * b\n\n\n"
    made = program(answer(beside + STUB), CHECK)
    assert (made.function, made.notes) == ("wanda_score", ())
    with pytest.raises(NotImplementedError):
        called(made, 1, 2)
    with pytest.raises(LookupError):
        program(answer("import math"))


def test_a_stub_with_a_return_before_its_last_line_is_an_answer():
    kept = STUB.replace("    raise", "    return weight * inputs\n    raise")
    assert called(program(answer(kept), answer(STUB)), 3, 4) == 12


def test_an_async_function_comes_with_a_note():
    made = program("async " + RIGHT)
    assert "async" in made.notes[0]
    called(made, 1, 2).close()


def test_nothing_that_answers_is_said():
    with pytest.raises(LookupError, match="nothing in the notebook answers wanda.score: there is no function wanda_sc"):
        program("x = 1", "def other():\n    pass", 'check("wanda.accumulate", other)')
    with pytest.raises(LookupError, match=r"\(cell 1\) is not a code cell"):
        program(cell(RIGHT, kind="markdown", exercise="wanda.score"))
    with pytest.raises(LookupError):
        program(answer("wanda_score = 3"))
    with pytest.raises(LookupError):
        load(b'{"cells": []}').program("wanda.score", "wanda_score")


def test_a_check_that_cannot_be_read_is_said():
    with pytest.raises(LookupError, match=r"is given in cell 2, 3; write the call out, as check\("):
        program("ids = pick()", "for name in ids:\n    check(name, ids[name])", "check(*ids)\ncheck(ids)", "f = 3")
    with pytest.raises(LookupError, match="own cell.$"):
        program(MINE, 'check("wanda.other", f)')


BROKEN = {
    "a typing error": ("def wanda_score(w, x):\n    y = (w\n    return y", "line 2: '\\(' was never closed"),
    "return outside": (RIGHT.replace("    return", "    y = weight\nreturn"), "line 3: 'return' outside function"),
    "a null character": (RIGHT + "\n\0", "null bytes"),
    "half a pair": (RIGHT + "  # \ud800", "characters that Python does not read"),
    "deep": (RIGHT + "\nx = " + "(" * 5000 + ")" * 5000, "cell 2 does not parse"),
    "deep otherwise": (RIGHT + "\nx = " + "-" * 50_000 + "1", "nested too deeply"),
    "deep in the tree": (RIGHT + "\nx = 1" + "+1" * 50_000, "nested too deeply"),
    "large": (RIGHT + "\n" + "#" * LONGEST_CELL, "characters"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_that_is_no_python_is_a_sentence(name):
    source, said = BROKEN[name]
    with pytest.raises(ValueError, match=said) as error:
        program("import torch", answer(source), CHECK)
    assert str(error.value).startswith("cell 2 does not parse: ")


def test_a_broken_attempt_is_said_although_the_stub_is_there():
    with pytest.raises(ValueError, match="cell 2 does not parse: line 1"):
        program(answer(STUB), "def wanda_score(w x):\n    return w", CHECK)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_cell_elsewhere_costs_nothing(name):
    source, _ = BROKEN[name]
    made = program(source.replace("wanda_score", "other"), answer(RIGHT), CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


@pytest.mark.parametrize("depth", [90, 190, 240, 330, 480, 700, 900, 1500, 3000])
@pytest.mark.parametrize(
    "deep",
    [
        ("w", ".T"),
        ("w", "+x"),
        ("-", "w"),
        ("not ", "w"),
        ("f(", "w"),
        ("[", "x"),
        ("lambda: ", "w"),
        ("w if x else ", "x"),
    ],
)
def test_deep_nesting_ends_in_a_program_or_in_a_sentence(deep, depth):
    """Every stage has its own limit, the parser, the compiler, the symbol table, and the reader itself."""
    first, second = deep
    closing = {"(": ")", "[": "]"}.get(first[-1], "")
    deep = first + second * depth if first == "w" else first * depth + second + closing * depth
    try:
        made = program(f"def wanda_score(w, x):\n    return {deep}")
    except ValueError as error:
        said = str(error)
    else:
        said = "nested" if made.statements else ""
    assert "nested" in said


# What IPython adds -----------------------------------------------------------------------------------------------

MAGICS = {
    "line magic": "%matplotlib inline\n{}",
    "shell": "!pip install 'x\n{}",
    "shell over lines": "!pip install a \\\n   b(\n{}",
    "help": "torch.norm?\n?torch\n{}",
    "time a cell": "%%time\n{}",
    "capture a cell": "\n%%capture out\n{}",
    "assigned": "files = !ls\nn, m = %who_ls\n{}",
    "in a function": "def f():\n    %time 3\n    !ls\n{}",
    "timed definition": "%time wanda_scale = 1\n{}",
    "many": "%load_ext x\n" * 50 + "{}",
}


@pytest.mark.parametrize("name", MAGICS)
def test_magics_are_taken_out(name):
    assert called(program(MAGICS[name].format(RIGHT)), 3, 4) == 12


def test_what_time_binds_is_kept_and_lines_keep_their_numbers():
    made = program("%matplotlib inline\n%time K = 2\ndef wanda_score(w, x):\n    return K * w * x")
    assert called(made, 3, 2) == 12
    assert [(each.filename, each.line) for each in made.statements] == [("cell 1", 2), ("cell 1", 3)]


@pytest.mark.parametrize("magic", ["%%bash", "%%writefile a.py", "%%html", "%%timeit", "!!", "%%python -u"])
def test_cells_in_other_languages_define_nothing(magic):
    with pytest.raises(LookupError):
        program(f"{magic}\n{RIGHT}")


def test_a_remainder_is_no_magic():
    assert called(program("def wanda_score(w, x):\n    return (w\n%x)"), 7, 4) == 3


# The student sees where ------------------------------------------------------------------------------------------


def test_a_traceback_shows_the_cell_and_its_line():
    source = '# a comment\nK = 0\n\n\ndef wanda_score(w, x):\n    """Text."""\n    return w / K'
    with pytest.raises(ZeroDivisionError) as error:
        called(program("x = 1", answer(source)), 1, 1)
    last = traceback.extract_tb(error.value.__traceback__)[-1]
    assert (last.filename, last.lineno, last.line) == ("cell 2", 7, "return w / K")
    linecache.clearcache()


def test_future_annotations_are_kept():
    made = program("from __future__ import annotations", "def wanda_score(w: Missing, x) -> Nowhere:\n    return w * x")
    assert called(made, 3, 4) == 12
    assert run(made)["wanda_score"].__code__.co_firstlineno == 1


@pytest.mark.parametrize("stem", [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))])
def test_every_exercise_of_every_lesson_is_found_by_any_of_the_ways(stem):
    """In the students' notebooks and in the masters, whole, without metadata, and without checks."""
    students = json.loads((ROOT / "notebooks" / f"{stem}.ipynb").read_text(encoding="utf-8"))
    solved = json.loads(jupytext.writes(jupytext.read(ROOT / "solutions" / f"{stem}.py"), fmt="ipynb"))
    for content, stubs in ((students, True), (solved, False)):
        usual = {check.exercise: check.name for check in load(json.dumps(content).encode()).checks}
        assert len(usual) >= 5
        bare = [{k: each[k] for k in ("cell_type", "source")} for each in content["cells"]]
        unchecked = [each for each in content["cells"] if not "".join(each["source"]).startswith("check(")]
        for cells in (content["cells"], bare, unchecked):
            loaded = load(json.dumps({"cells": cells}).encode())
            for exercise, function in usual.items():
                program = loaded.program(exercise, function)
                assert program.function == function
                assert not program.notes
                assert ("replace this line" in program.statements[-1].source) is stubs
                assert all(each.source.startswith(("import", "from", "def")) for each in program.statements)
