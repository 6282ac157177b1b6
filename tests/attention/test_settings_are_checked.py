"""Every field of every settings object of the attention and cache methods is checked when the object is made."""

import dataclasses
import math

import pytest

from course_lib import discover
from course_lib.attention import prefill, visual
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.attention.visual.importance import TokenScore
from course_lib.attention.visual.stages import Ratios
from course_lib.kv import policies
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.quantized import Quantized
from course_lib.kv.recycled import Recycled

KINDS = [
    *discover.subclasses(prefill, SparsePrefill),
    *discover.subclasses(policies, EvictionPolicy),
    *discover.subclasses(visual, TokenScore),
    Ratios,
    Recycled,
    Quantized,
]
MAY_BE_NONE = {("Recycled", "every"), ("Recycled", "similarity")}
MAY_BE_NEGATIVE = {("MeanOverContext", "alpha")}
WRONG = (None, "4", math.nan, -1.5, (None,), {}, True)


def unchecked(kind):
    """The class without the shape and type annotations that are enforced while tests run."""
    made = kind.__init__
    while hasattr(made, "__wrapped__"):
        made = made.__wrapped__
    return made


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_a_field_cannot_be_is_refused_by_name(kind):
    wrong = []
    for field in dataclasses.fields(kind):
        for value in WRONG:
            legal = (
                (value is True and field.type in (bool, "bool"))
                or (value is None and (kind.__name__, field.name) in MAY_BE_NONE)
                or (value == -1.5 and (kind.__name__, field.name) in MAY_BE_NEGATIVE)
            )
            new = object.__new__(kind)
            try:
                unchecked(kind)(new, **{field.name: value})
            except ValueError as error:
                wrong += [] if field.name in str(error) else [f"{field.name}={value!r}: {error}"]
            else:
                wrong += [] if legal else [f"{field.name}={value!r} passes"]
    assert not wrong
