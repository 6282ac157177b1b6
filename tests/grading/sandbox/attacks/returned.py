"""Values, errors and ends that a careless grader would trip over."""

from attack import BRIEF, Attack

ATTACKS = {
    "crashes": Attack(
        says="Memory that is not there.",
        cell="""
import ctypes

def attack(x):
    return ctypes.string_at(0)
""",
        status="killed",
        reason="crashed .signal 11",
    ),
    "exits_at_import": Attack(
        says="A constant whose making ends the process, with the code of success.",
        cell="""
import os

GONE = os._exit(0)

def attack(x):
    return GONE
""",
        status="killed",
        reason="ended its process",
    ),
    "exits_in_the_second_call": Attack(
        says="Right once, then gone: the first case counts, the second does not.",
        cell="""
import os

calls = []

def attack(x):
    calls.append(1)
    if len(calls) > 1:
        os._exit(0)
    return x * 2
""",
        status="killed",
        reason="ended its process",
        n_right=1,
    ),
    "exits_politely_at_import": Attack(
        says="exit() where the notebook is loaded.",
        cell="""
import sys

GONE = sys.exit(0)

def attack(x):
    return GONE
""",
        status="ran",
        error="NameError",
    ),
    "raises_generator_exit": Attack(
        says="An exception that hardly anything catches.",
        cell="""
def attack(x):
    raise GeneratorExit()
""",
        status="ran",
        error="GeneratorExit",
    ),
    "raises_keyboard_interrupt": Attack(
        says="As if somebody had pressed Ctrl-C.",
        cell="""
def attack(x):
    raise KeyboardInterrupt()
""",
        status="ran",
        error="KeyboardInterrupt",
    ),
    "raises_system_exit": Attack(
        says="sys.exit where the grader waits for a value.",
        cell="""
def attack(x):
    raise SystemExit(0)
""",
        status="ran",
        error="SystemExit",
    ),
    "raises_what_cannot_be_shown": Attack(
        says="Exceptions whose own methods fail, end the process, or say far too much.",
        cell="""
import os

class Loud(Exception):
    def __str__(self):
        return "x" * 10**8

class Broken(Exception):
    def __str__(self):
        raise KeyboardInterrupt

def attack(x):
    raise Loud if len(x) == 3 else Broken
""",
        status="ran",
        error="Loud",
    ),
    "returns_a_billion_laughs": Attack(
        says="A value of thirty objects that has a billion leaves when it is followed.",
        cell="""
def attack(x):
    laughs = (1.0,)
    for _ in range(30):
        laughs = (laughs, laughs)
    return laughs
""",
        limits=BRIEF,
        outcome="memory|Memory|cannot be compared|stopped after",
    ),
    "returns_a_command": Attack(
        says="Objects that run a command where they are unpickled, or are hidden in an array.",
        cell="""
import os

import numpy

class Command:
    def __reduce__(self):
        return os.system, ("touch /tmp/canary",)

def attack(x):
    return Command() if len(x) == 3 else numpy.array([Command()], dtype=object)
""",
        status="ran",
        error="cannot be compared",
    ),
    "returns_a_liar": Attack(
        says="Objects that are equal to everything.",
        cell="""
import torch

class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        return True if function.__name__ in ("equal", "allclose", "isclose", "eq") else torch.Tensor(1)

class Number(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__

class Text(str):
    __eq__ = Number.__eq__
    __hash__ = str.__hash__

def attack(x):
    return x.as_subclass(Liar) if len(x) == 3 else (Number(0), Text("x"), x.as_subclass(Liar))
""",
        n_right=0,
    ),
    "returns_half_characters": Attack(
        says="Text that is no valid Unicode, and characters that mean something to HTML and CSV.",
        cell=r"""
def attack(x):
    return "\ud800\0<script>alert(1)</script>" if len(x) == 3 else {"=cmd|'/c calc'!A1": 1, "\udfff": None}
""",
        status="ran",
    ),
    "returns_itself": Attack(
        says="A list that contains itself.",
        cell="""
def attack(x):
    loop = []
    loop.append(loop)
    return loop
""",
        status="ran",
        error="cannot be compared",
    ),
    "returns_more_than_asked": Attack(
        says="The right shape within more arrays, names and levels.",
        cell="""
def attack(x):
    return {"answer": x * 2, "grade": 100.0} if len(x) == 3 else ((x * 2, x * 2), x * 2)
""",
        status="ran",
    ),
    "returns_nan": Attack(
        says="NaN and infinities where a careless comparison is never wrong.",
        cell="""
def attack(x):
    return x * float("nan") if len(x) == 3 else x / 0
""",
        status="ran",
    ),
    "returns_other_shapes": Attack(
        says="Shapes that broadcast, have no entries, or a billion rows.",
        cell="""
import torch

def attack(x):
    return torch.empty(0, 3) if len(x) == 3 else torch.empty(10**12, 0)
""",
        status="ran",
        outcome="cannot be compared",
    ),
    "returns_something_deep": Attack(
        says="A list in a list in a list.",
        cell="""
def attack(x):
    nested = x
    for _ in range(100 if len(x) == 3 else 10**4):
        nested = [nested]
    return nested
""",
        outcome="cannot be compared|crashed",
    ),
    "returns_strange_tensors": Attack(
        says="Tensors without storage, quantised, sparse, conjugate, of one number a billion times.",
        cell="""
import torch

def attack(x):
    if len(x) == 3:
        return torch.zeros(1, device="meta")
    return torch.zeros(1).expand(10**12)
""",
        status="ran",
        error="cannot be compared",
    ),
    "returns_too_much_text": Attack(
        says="A string of hundreds of megabytes, and a number of thousands of digits.",
        cell="""
def attack(x):
    return "x" * 2**28 if len(x) == 3 else 10**5000
""",
        status="ran",
        error="cannot be compared",
    ),
}
