"""The policies that are compared: all there are, found by discovery, with settings that fit a budget of slots."""

from collections.abc import Sequence
from dataclasses import fields

from course_lib import discover
from course_lib.kv import policies
from course_lib.kv.policy import EvictionPolicy

# H2O's paper gives half of the budget to recent tokens; the others keep their own number where the budget allows it.
HALF_RECENT = ("H2O", "D2O", "StreamingH2O")
LEFT_OUT = ("Full", "StreamingH2O")  # the first forgets nothing; in a prompt read at once the second is H2O
ROLLING = ("StreamingLLM", "StreamingH2O")  # their papers count positions in slots


def names() -> list[str]:
    """The policies that evict from a prompt, in order of name."""
    return [name for name in sorted(_classes()) if name not in LEFT_OUT]


def with_budgets(name: str, budgets: Sequence[int]) -> list[EvictionPolicy]:
    """One policy for each budget; they differ in nothing that changes what is remembered of a prompt.

    Sinks, recent tokens and observation window are the usual ones, or fewer so that they fit the smallest budget.
    """
    classes, least = _classes(), min(budgets)
    if name not in classes:
        raise ValueError(f"got policy {name!r}; expected one of {', '.join(sorted(classes))}.")
    usual = {field.name: field.default for field in fields(classes[name])}
    sinks, recent = min(usual["sinks"], least // 4), min(usual["recent"], least // 2)
    return [
        classes[name](budget=budget, sinks=sinks, recent=budget // 2 if name in HALF_RECENT else recent)
        for budget in budgets
    ]


def positions(name: str) -> str:
    """As the policy's paper has them."""
    return "rolling" if name in ROLLING else "original"


def _classes() -> dict[str, type[EvictionPolicy]]:
    return {policy.__name__: policy for policy in discover.subclasses(policies, EvictionPolicy)}
