"""Signals: the same code under other names is the same, other code is not, and what is called of course_lib is seen."""

import ast
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_notebooks import answer, notebook

from course_lib.grading.notebook.likeness.normalise import LONGEST
from course_lib.grading.notebook.program import load


def program(*cells):
    return load(notebook(*cells)).program("wanda.score", "wanda_score")


def code(*cells):
    made = program(*cells).code
    ast.parse(made)
    return made


# Normalised code -------------------------------------------------------------------------------------------------


def test_normalised_code_by_hand():
    source = '''import torch as t
from course_lib.pruning.base import Gram as G

LIMIT = 3  # the limit


def lowest(scores: t.Tensor, *, n: int = LIMIT) -> "t.Tensor":
    """Text."""
    order: object = scores.sort(dim=1)
    return t.topk(order, k=n)


def wanda_score(weight, inputs):
    """Text."""
    "more text"
    import numpy as np
    def inner(x):
        return np.abs(x) + weight
    total = [inner(row) for row in inputs if row]
    return lowest(scores=total, n=2), G(weight), print
'''
    assert code(source).splitlines() == [
        "def f0(v0, v1):",
        "",
        "    def v2(v3):",
        "        return numpy.abs(v3) + v0",
        "    v4 = [v2(v5) for v5 in v1 if v5]",
        "    return (f1(v6=v4, v7=2), course_lib.pruning.base.Gram(v0), print)",
        "def f1(v0, *, v1=f2):",
        "    v2 = v0.sort(dim=1)",
        "    return torch.topk(v2, k=v1)",
        "f2 = 3",
    ]


TEMPLATE = """import {torch}

{constant} = 0.5


def {helper}({a}, {b}=2):
    {comment}
    {order} = {a}.argsort(1){blank}
    for {i} in range({b}):
        {order} = {order} + {i} if {order} is not None else [{j} for {j} in {order}]
    try:
        {first}, *{rest} = {order}
    except ValueError as {error}:
        raise KeyError from {error}
    return {torch_name}.where({first} > {constant}, {rest}, lambda {k}: {k} + {a})


def wanda_score({c}, {d}):
    {docstring}
    {total} = 0

    def {inner}({m}):
        nonlocal {total}
        {total} += {helper}({m}, {b}={d})
        return {total}

    with {c}.lock as {n}:
        {result} = {inner}({c}) if ({p} := {c}.shape) else {n}
    return {result}, {p}
"""
NAMES = sorted(set(re.findall(r"{(\w+)}", TEMPLATE)) - {"comment", "docstring", "blank", "torch", "torch_name"})


def written(names, comment="pass", docstring="pass", blank="", torch="torch"):
    alias = torch.split()[-1]
    return TEMPLATE.format(
        **names, comment=comment, docstring=docstring, blank=blank, torch=torch, torch_name=alias.split(".")[-1]
    )


PLAIN = code(written({name: name for name in NAMES}))
CHOICES = st.lists(
    st.sampled_from([f"{a}{b}" for a in "xyzuvw" for b in "_0123"]),
    min_size=len(NAMES),
    max_size=len(NAMES),
    unique=True,
)


@settings(max_examples=60, deadline=None)
@given(
    CHOICES,
    st.sampled_from(["pass", "# a comment", '"""Text of a student."""', "pass  # why", '"a"; "b"', "\n\n    # two"]),
    st.sampled_from(["pass", '"""Says what it does."""', "'''Over\n    lines.'''", "..."]),
    st.sampled_from(["", "\n\n\n", "  # a comment", ";"]),
    st.sampled_from(["torch", "torch as t", "torch as np"]),
)
def test_names_comments_and_blank_lines_leave_no_trace(names, comment, docstring, blank, torch):
    comment = comment if not comment.startswith("#") else comment + "\n    pass"
    source = written(dict(zip(NAMES, names, strict=True)), comment, docstring, blank, torch)
    assert code(source) == PLAIN


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from("abcdefg"), min_size=4, max_size=4, unique=True))
def test_the_same_name_in_two_functions_is_two_names(names):
    """Renaming a local to what another function calls something else changes nothing."""
    source = "def wanda_score({0}, {1}):\n    return {4}({0}) + {1}\ndef {4}({2}):\n    {3} = {2} * 2\n    return {3}"
    assert code(source.format(*names, "helper")) == code(source.format("p", "q", "p", "q", "other"))


def test_where_helpers_stand_does_not_matter():
    main = "def wanda_score(w, x):\n    return one(w) + two(x)"
    one, two = "def one(a):\n    return a * K", "def two(a):\n    return a - K"
    assert code("K = 2", one, two, main) == code(main, "K = 2\n" + two, one)


def test_which_helper_is_called_where_does_matter():
    one, two = "def one(a):\n    return a * 2", "def two(a):\n    return a - 2"
    main = "def wanda_score(w, x):\n    return one(w), two(x)"
    assert code(one, two, main) != code(one, two, main.replace("one(w), two(x)", "two(w), one(x)"))


def test_what_defines_two_helpers_is_there_once():
    both = "one, two = (lambda a: a * 2), (lambda b: b - 2)"
    assert code(both, "def wanda_score(w, x):\n    return one(w), two(x)").count("lambda") == 2


def test_what_the_answer_does_not_name_is_not_compared():
    main = "def wanda_score(w, x):\n    TABLE = 3\n    return w * x"
    assert code("TABLE = [1]", main) == code(main)


CHANGES = {
    "a constant": ("* 2", "* 3"),
    "an operator": ("w * 2", "w + 2"),
    "an order": ("w * 2 - x", "x - w * 2"),
    "an attribute": ("w.abs()", "w.exp()"),
    "a keyword": ("dim=1", "dim=0"),
    "a name of a library": ("torch.sum", "torch.mean"),
    "another argument": ("torch.sum(x", "torch.sum(w"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_code_is_other_code(name):
    source = "import torch\ndef wanda_score(w, x):\n    w = w.abs()\n    return w * 2 - x + torch.sum(x, dim=1)"
    before, after = CHANGES[name]
    assert before in source
    assert code(source) != code(source.replace(before, after))


@pytest.mark.parametrize(
    "source",
    [
        "class wanda_score:\n    def __call__(self, w):\n        self.k = w\n        return self.k",
        "async def wanda_score(w, x):\n    async with w as y:\n        return [z async for z in y]",
        "def wanda_score(w, x):\n    match w:\n        case [a, *b]:\n            w\n        case {'k': c, **d}: x",
        "wanda_score = lambda w, x, *a, k=1, **b: (w, a, b, k)",
        "def wanda_score(w, x):\n    global G\n    G = w\n    del w\n    return f'{x!r:>{x}} {G}'",
        "if True:\n    def wanda_score(w, x): return w\nelse:\n    wanda_score = None",
        "def wanda_score(w, x): yield from (w, (yield x))",
        "def wanda_score(w, /, x, *, y: int = 3) -> None: ...",
    ],
)
def test_every_kind_of_code_has_a_normal_form(source):
    assert "wanda_score" not in code(source)
    assert code(source) == code(re.sub(r"\bw\b", "renamed", source))


def test_very_long_code_is_cut_and_still_told_apart():
    long = f"def wanda_score(w, x):\n    w = w + '{'a' * LONGEST}'\n"
    first, second = program(long + "    return w").code, program(long + "    return x").code
    assert len(first) < LONGEST + 100
    assert first[:LONGEST] == second[:LONGEST]
    assert first != second


# What is called of course_lib ------------------------------------------------------------------------------------

USES = {
    "by name": ("from course_lib.pruning.base import Gram\n", "return Gram(w)", "course_lib.pruning.base.Gram"),
    "under another name": (
        "from course_lib.pruning.base import Gram as G\n",
        "return G(w)",
        "course_lib.pruning.base.Gram",
    ),
    "by module": (
        "import course_lib.pruning.base\n",
        "return course_lib.pruning.base.Gram(w)",
        "course_lib.pruning.base.Gram",
    ),
    "by an alias": ("import course_lib.pruning.base as b\n", "return b.Gram(w)", "course_lib.pruning.base.Gram"),
    "from its package": (
        "from course_lib.pruning import base\n",
        "return base.Gram.of(w)",
        "course_lib.pruning.base.Gram.of",
    ),
    "imported inside": (
        "",
        "from course_lib.pruning.base import Gram\n    return Gram(w)",
        "course_lib.pruning.base.Gram",
    ),
    "by star": ("from course_lib.pruning.base import *\n", "return Gram(w)", "course_lib.pruning.base.Gram"),
    "by text": ("import importlib\n", "return importlib.import_module('course_lib.pruning').x", "course_lib.pruning"),
    "handed on": ("from course_lib.pruning.base import Gram\n", "return map(Gram, w)", "course_lib.pruning.base.Gram"),
}


@pytest.mark.parametrize("name", USES)
def test_what_is_used_of_course_lib_is_named(name):
    imports, body, full = USES[name]
    assert program(f"{imports}def wanda_score(w, x):\n    {body}").uses == (full,)


def test_what_is_not_used_is_not_named():
    imports = "from course_lib.workbook import check, hint\nfrom course_lib.lessons.wanda import figures as plots\n"
    imports += "import torch\n"
    assert program(imports + "def wanda_score(plots, x):\n    return plots.norm() + torch.norm(x)").uses == ()
    assert program(imports + 'def wanda_score(w, x):\n    hint("wanda.score")\n    return w').uses == ()
    assert program(imports + 'plots.show(3)\ndef wanda_score(w, x):\n    "course_lib.x"\n    return w').uses == ()


def test_what_is_reported_has_an_end():
    names = [f"{'n' * 500}{i}" for i in range(80)]
    made = program(
        "import course_lib.x as c\ndef wanda_score(w, x):\n    " + "\n    ".join(f"c.{n}, {n}" for n in names)
    )
    assert (len(made.uses), max(map(len, made.uses))) == (50, 200)
    assert (len(made.notes), max(map(len, made.notes))) == (12, 300)


def test_what_a_helper_uses_is_named_too():
    helper = "from course_lib import measure\ndef helper(w):\n    return measure.time(w)"
    assert program(helper, "def wanda_score(w, x):\n    return helper(w)").uses == ("course_lib.measure.time",)


IMPORT = (
    "from course_lib.pruning.methods.wanda import Wanda\nfrom course_lib.sparsity.patterns import NofM\nimport torch\n"
)
ONLY = {
    "a call": "def wanda_score(w, x):\n    return Wanda().score(w, x)",
    "with text and types": "def wanda_score(w: int, x) -> int:\n    'Text.'\n    return Wanda(NofM(2)).score(w.T, i=x)",
    "in steps": "def wanda_score(w, x):\n    method = Wanda()\n    keep = method.score(w, x)\n    return keep, (w, 1)",
    "a lambda": "wanda_score = lambda w, x: Wanda().score(w, x)",
    "itself": "wanda_score = Wanda.score",
    "an object's": "wanda_score = Wanda().score",
    "imported": "from course_lib.pruning.methods.wanda import score as wanda_score",
    "imported inside": "def wanda_score(w, x):\n    from course_lib.pruning import base\n    return base.f(w, *x)",
    "through a helper": "def f(w, x):\n    return Wanda().score(w, x)\ndef wanda_score(w, x):\n    return f(w, x)",
    "in part": "import functools\nwanda_score = functools.partial(Wanda.score, 3)",
}
MORE = {
    "a step of its own": "def wanda_score(w, x):\n    return Wanda().score(w, x) * 2",
    "a call of another library": "def wanda_score(w, x):\n    return Wanda().score(torch.abs(w), x)",
    "a method of an argument": "def wanda_score(w, x):\n    return Wanda().score(w.abs(), x)",
    "a loop": "def wanda_score(w, x):\n    for y in x:\n        Wanda().score(w, y)\n    return w",
    "nothing called": "def wanda_score(w, x):\n    return w",
    "nothing of course_lib": "def wanda_score(w, x):\n    return torch.abs(w)",
    "a helper with a step": "def f(w):\n    return Wanda().score(w + 1, 2)\ndef wanda_score(w, x):\n    return f(w)",
    "a partial of its own": "from functools import partial\ndef f(k, w):\n    return k\nwanda_score = partial(f, 3)",
    "a number": "def wanda_score(w, x):\n    return 3",
    "an index": "def wanda_score(w, x):\n    return Wanda().score(w, x)[0]",
    "a local that shadows": "def wanda_score(Wanda, x):\n    return Wanda(x)",
}


@pytest.mark.parametrize("name", ONLY)
def test_only_calls(name):
    assert program(IMPORT + ONLY[name]).only_calls


@pytest.mark.parametrize("name", MORE)
def test_more_than_calls(name):
    assert not program(IMPORT + MORE[name]).only_calls


def test_an_answer_cell_with_nothing_in_it_has_quiet_signals():
    made = program(answer("def wanda_score(w, x):\n    pass"))
    assert (made.uses, made.only_calls) == ((), False)
