"""FlexPrefill on the default model: density, coverage and perplexity over γ and over the length of the text.

Claims of Lai and others, 2025 (https://arxiv.org/abs/2502.20766) at the scale of a laptop. All rules of one length read
the same windows, so that rows are compared window by window.

Tables:

    read     by length and rule: perplexity with the loss of every window, density of every window, coverage of a few
    heads    by layer, of one rule: density, fraction of texts on which it was query-aware, coverage, of each head

Density counts whole blocks, as a mean over layers and heads. Coverage is the fraction of dense attention in the
blocks that were read: of all queries (`coverage`, on the first windows alone), and of the last block of queries,
by which the rule decides (`seen`, on the others).
This experiment varies γ at the middle length; `course reproduce sparse_attention_further` adds other rules of the same
density, the code as released, γ without its floor, and other lengths. Minutes planned on one idle core: 4.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.attention.prefill.as_released import AsReleased
from course_lib.attention.prefill.baselines import RandomBlocks, SinkAndWindow, VerticalSlash
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.lessons.common.losses import losses_row
from course_lib.lessons.sparse_attention.experiments.prefill_reading import Reading, read
from course_lib.measure.experiment import Experiment, Step, Tables

DENSE, FLEX, NO_FLOOR, RELEASED = "dense", "FlexPrefill", "FlexPrefill, no floor", "as released"
SAME_DENSITY = {"StreamingLLM": SinkAndWindow, "vertical-slash": VerticalSlash, "random": RandomBlocks}


Reads = tuple[int, str, SparsePrefill | None]  # tokens, the name of the rule, and the rule


@dataclass(frozen=True)
class Sizes:
    """Windows of all lengths, and the values of γ that are measured at each."""

    windows: int = 8
    covered: int = 2  # windows for the coverage of all queries, which costs as much as dense attention
    middle: int = 2048  # tokens of a window
    first: tuple[float, ...] = (0.8, 0.9, 0.95)
    more: tuple[float, ...] = (0.99,)
    gamma: float = 0.95  # for the code as released, the table of heads, and the density of other rules
    bare: tuple[float, ...] = (0.8,)  # γ without the floor under a head's budget
    lengths: tuple[tuple[int, tuple[float, ...]], ...] = ((1024, (0.8, 0.9, 0.95, 0.99)), (4096, (0.8, 0.95)))
    block_size: int = 128
    min_budget: int = 512


QUICK = Sizes(
    windows=2, covered=1, middle=160, first=(0.8, 0.95), more=(), lengths=((96, (0.8, 0.95)),),
    block_size=16, min_budget=32,
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    """List the steps at the middle length, dense attention first."""
    return as_steps(sizes, _over_gamma(sizes, sizes.middle, sizes.first))


def further(sizes: Sizes) -> list[Step]:
    """List rules of the same density, the released code, γ without its floor, the largest γ, and other lengths."""
    settings = {"block_size": sizes.block_size, "min_budget": sizes.min_budget}
    bare = [FlexPrefill(gamma=g, block_size=sizes.block_size, min_budget=sizes.block_size) for g in sizes.bare]
    rules = [(RELEASED, AsReleased(gamma=sizes.gamma, **settings)), *((NO_FLOOR, rule) for rule in bare)]
    rules += [(FLEX, FlexPrefill(gamma=gamma, **settings)) for gamma in sizes.more]
    plan = [(sizes.middle, name, None) for name in SAME_DENSITY]
    plan += [(sizes.middle, name, rule) for name, rule in rules]
    for length, gammas in sizes.lengths:
        plan += _over_gamma(sizes, length, gammas)
    return as_steps(sizes, plan)


def _over_gamma(sizes: Sizes, length: int, gammas: tuple[float, ...]) -> list[Reads]:
    rules = [FlexPrefill(gamma=gamma, block_size=sizes.block_size, min_budget=sizes.min_budget) for gamma in gammas]
    return [(length, DENSE, None), *((length, FLEX, rule) for rule in rules)]


def as_steps(sizes: Sizes, plan: list[Reads]) -> list[Step]:
    return [Step(_name(*each), partial(measured, sizes, *each)) for each in plan]


def _name(length: int, name: str, rule: SparsePrefill | None) -> str:
    return f"{length}: {name}" + (f", {rule.gamma}" if isinstance(rule, FlexPrefill) else "")


def measured(sizes: Sizes, length: int, name: str, rule: SparsePrefill | None, seed: int) -> Tables:
    """Measure one rule at one length, and each head if it is the rule of the table `heads`."""
    if name in SAME_DENSITY:
        rule = SAME_DENSITY[name](block_size=sizes.block_size, density=spent(sizes, seed))
    gamma = rule.gamma if isinstance(rule, FlexPrefill) else None
    found = _reading(sizes, length, rule, seed)
    row = losses_row(found.losses, sizes.windows * (length - 1))
    tables = {"read": [{"tokens": length, "rule": name, "gamma": gamma} | row | found.shares()]}
    if (name, length, gamma) == (FLEX, sizes.middle, sizes.gamma):
        tables["heads"] = found.by_head()
    return tables


def spent(sizes: Sizes, seed: int) -> float:
    """Return the mean density of FlexPrefill's heads; other rules use it for every head."""
    flex = FlexPrefill(gamma=sizes.gamma, block_size=sizes.block_size, min_budget=sizes.min_budget)
    return float(_reading(sizes, sizes.middle, flex, seed).density.mean())


def _reading(sizes: Sizes, length: int, rule: SparsePrefill | None, seed: int) -> Reading:
    return read(length, sizes.windows, sizes.covered, rule, seed)


EXPERIMENT = Experiment("FlexPrefill", Sizes(), QUICK, steps)
