"""FlexPrefill on the default model: density, coverage and perplexity over γ and over the length of the text.

Claims of Lai and others, 2025 (https://arxiv.org/abs/2502.20766) at the scale of a laptop. All rules of one length read
the same windows, so that rows are compared window by window.

Tables:

    read     by length and rule: perplexity with the loss of every window, density of every window, coverage of a few
    heads    by layer, of one rule: density, share of texts on which it was query-aware, coverage, of each head

Density is that of whole blocks, the mean over layers and heads. Coverage is the share of dense attention that went to
the blocks which were read: of all queries (`coverage`, on the first windows alone), and of the last block of queries,
by which the rule decides (`seen`, on the others).
Minutes planned on one idle core: 12.
"""

from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.as_released import AsReleased
from course_lib.attention.prefill.baselines import RandomBlocks, SinkAndWindow, VerticalSlash
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.lessons.common.losses import losses_row
from course_lib.lessons.sparse_attention.experiments.ground import Row, loaded, text
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.perplexity import window_losses

DENSE, FLEX, NO_FLOOR, RELEASED = "dense", "FlexPrefill", "FlexPrefill, no floor", "as released"
SAME_DENSITY = {"StreamingLLM": SinkAndWindow, "vertical-slash": VerticalSlash, "random": RandomBlocks}


@dataclass(frozen=True)
class Sizes:
    """Tokens of a window with the shares γ measured there; the rest at the middle length alone."""

    windows: int = 8
    covered: int = 2  # of them, on which coverage of all queries is measured: it costs what dense attention does
    gammas: tuple[tuple[int, tuple[float, ...]], ...] = (
        (1024, (0.8, 0.9, 0.95, 0.99)), (2048, (0.8, 0.9, 0.95, 0.99)), (4096, (0.95,)),
    )  # fmt: skip
    middle: int = 2048
    gamma: float = 0.95  # of the code as released, of the table of heads, and of the density that others get
    bare: tuple[float, ...] = (0.8,)  # γ without the floor under a head's budget
    block_size: int = 128
    min_budget: int = 512


QUICK = Sizes(
    windows=2, covered=1, gammas=((96, (0.8, 0.95)), (160, (0.8, 0.95))), middle=160, bare=(0.8,),
    block_size=16, min_budget=32,
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    """What the lesson needs most comes first: the middle length, and all that is measured there alone."""
    flex = FlexPrefill(block_size=sizes.block_size, min_budget=sizes.min_budget)
    middle, rest = [], []
    for length, gammas in sizes.gammas:
        plan = [(length, DENSE, None)] + [(length, FLEX, replace(flex, gamma=gamma)) for gamma in gammas]
        if length == sizes.middle:
            plan.sort(key=lambda each: each[2] is not None and each[2].gamma != sizes.gamma)
            middle += plan[:2] + _beside(sizes) + plan[2:]
        else:
            rest += plan
    return [Step(_name(*each), partial(measured, sizes, *each)) for each in middle + rest]


def _beside(sizes: Sizes) -> list[tuple[int, str, SparsePrefill | None]]:
    """The code as released, rules of the same density, and γ without its floor."""
    released = AsReleased(gamma=sizes.gamma, block_size=sizes.block_size, min_budget=sizes.min_budget)
    bare = [FlexPrefill(gamma=g, block_size=sizes.block_size, min_budget=sizes.block_size) for g in sizes.bare]
    plan = [(RELEASED, released), *((name, None) for name in SAME_DENSITY), *((NO_FLOOR, rule) for rule in bare)]
    return [(sizes.middle, name, rule) for name, rule in plan]


def _name(length: int, name: str, rule: SparsePrefill | None) -> str:
    return f"{length}: {name}" + (f", {rule.gamma}" if isinstance(rule, FlexPrefill) else "")


def measured(sizes: Sizes, length: int, name: str, rule: SparsePrefill | None, seed: int) -> Tables:
    """One rule at one length; head by head where it is the one to look at."""
    if name in SAME_DENSITY:
        rule = SAME_DENSITY[name](block_size=sizes.block_size, density=spent(sizes, seed))
    gamma = rule.gamma if isinstance(rule, FlexPrefill) else None
    found = dense(sizes, length, seed) if rule is None else read(sizes, length, rule, seed)
    row = losses_row(found.losses, sizes.windows * (length - 1))
    tables = {"read": [{"tokens": length, "rule": name, "gamma": gamma} | row | found.shares()]}
    if (name, length, gamma) == (FLEX, sizes.middle, sizes.gamma):
        tables["heads"] = found.by_head()
    return tables


def spent(sizes: Sizes, seed: int) -> float:
    """What FlexPrefill gave to a head on average: others give it to every head."""
    flex = FlexPrefill(gamma=sizes.gamma, block_size=sizes.block_size, min_budget=sizes.min_budget)
    return float(read(sizes, sizes.middle, flex, seed).density.mean())


@dataclass(frozen=True, eq=False)
class Reading:
    """Losses of n windows, and what a rule did in each: nothing, where attention is dense."""

    losses: list[float]
    density: Float[Tensor, "n L H"] | None = None
    query_aware: Float[Tensor, "n L H"] | None = None
    coverage: Float[Tensor, "c L H"] | None = None  # of the first c windows, all queries
    seen: Float[Tensor, "r L H"] | None = None  # of the others, the last block of queries

    def shares(self) -> Row:
        if self.density is None:
            return {"densities": [1.0] * len(self.losses), "coverage": 1.0, "seen": 1.0, "query_aware": 0.0}
        means = {"coverage": self.coverage, "seen": self.seen, "query_aware": self.query_aware}
        by_window = {"densities": [round(float(each.mean()), 4) for each in self.density]}
        return by_window | {name: round(float(values.mean()), 4) for name, values in means.items()}

    def by_head(self) -> list[Row]:
        """A row a layer."""
        parts = {"density": self.density, "query_aware": self.query_aware, "coverage": self.coverage}
        means = {
            name: [[round(x, 4) for x in row] for row in values.mean(0).tolist()] for name, values in parts.items()
        }
        return [{"layer": i} | {name: rows[i] for name, rows in means.items()} for i in range(self.density.shape[1])]


def dense(sizes: Sizes, length: int, seed: int) -> Reading:
    """The model as it is."""
    return Reading(window_losses(loaded()[0], text(sizes.windows, length, seed), 1, progress=False).tolist())


@cache
def read(sizes: Sizes, length: int, rule: SparsePrefill, seed: int) -> Reading:
    """The windows under a rule, each in a block of its own; kept for the rules that are given its density."""
    losses, watches = [], []
    for i, window in enumerate(text(sizes.windows, length, seed)):
        with prefilling(loaded()[0], rule, "all" if i < sizes.covered else "last") as watch:
            losses += window_losses(loaded()[0], window[None], progress=False).tolist()
        watches.append(watch)
    density, aware, coverage = (
        torch.stack([getattr(watch, name) for watch in watches]) for name in ("density", "query_aware", "coverage")
    )
    return Reading(losses, density, aware, coverage[: sizes.covered], coverage[sizes.covered :])


EXPERIMENT = Experiment("FlexPrefill", Sizes(), QUICK, steps)
