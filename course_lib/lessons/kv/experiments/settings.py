"""The policies that are compared: all policies of the library, with settings that fit a budget of slots."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from jaxtyping import Float, Int
from torch import Tensor

from course_lib import discover
from course_lib.kv import policies
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.ems import EMS
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.slots import Slots

WITHOUT_MERGING = " without merging"  # after the name of a policy that merges
# The H2O paper gives half of the budget to recent tokens; other policies keep their default where the budget allows it.
HALF_RECENT = ("H2O", "D2O", "D2O" + WITHOUT_MERGING, "StreamingH2O")
LEFT_OUT = ("Full", "StreamingH2O")  # the first evicts nothing; the second is H2O when a prompt is read in one pass
ROLLING = ("StreamingLLM", "StreamingH2O")  # their papers count positions in slots


@dataclass(frozen=True)
class EvictingD2O(D2O):
    """D2O's scores and budgets of layers; evicted tokens are lost."""

    def evict_(self, slots: Slots, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> Slots:
        return slots.keep_best_(score, sizes)


@dataclass(frozen=True)
class EvictingEMS(EMS):
    """EMS's scores; evicted tokens are lost."""

    merged: float = 0.0


def names() -> list[str]:
    """Return the policies that evict from a prompt, in alphabetical order."""
    return [name for name in sorted(_classes()) if name not in LEFT_OUT]


def with_budgets(name: str, budgets: Sequence[int]) -> list[EvictionPolicy]:
    """Return one policy per budget; apart from the budget they are the same, so that they can share one pass.

    Sinks and recent tokens are the defaults, or fewer so that they fit into the smallest budget.
    """
    classes, least = _classes() | _without_merging(), min(budgets)
    if name not in classes:
        raise ValueError(f"got policy {name!r}; expected one of {', '.join(sorted(classes))}.")
    usual = {field.name: field.default for field in fields(classes[name])}
    sinks, recent = min(usual["sinks"], least // 4), min(usual["recent"], least // 2)
    return [
        classes[name](budget=budget, sinks=sinks, recent=budget // 2 if name in HALF_RECENT else recent)
        for budget in budgets
    ]


def positions(name: str) -> str:
    """Return how the paper of the policy counts positions."""
    return "rolling" if name in ROLLING else "original"


def _classes() -> dict[str, type[EvictionPolicy]]:
    return {policy.__name__: policy for policy in discover.subclasses(policies, EvictionPolicy)}


def _without_merging() -> dict[str, type[EvictionPolicy]]:
    return {"D2O" + WITHOUT_MERGING: EvictingD2O, "EMS" + WITHOUT_MERGING: EvictingEMS}
