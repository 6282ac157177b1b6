"""The open task of lesson 00: make a step of decoding twice as fast, and leave out as little as you can.

Speed alone is asked for, so which neurons, blocks and tokens are left out does not matter, only how many: what their
loss does to the text is what the other lessons are about. The clock counts the processor time of one thread, which
other programs on the machine disturb the least.

Dimension key: H key-value heads, N tokens in the cache, D size of a head.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.measure.machine import random_ids
from course_lib.measure.paired import mean_and_error
from course_lib.measure.roofline import Device, Transformer, Work
from course_lib.measure.timing import value_bytes
from course_lib.models import architecture, blocks, heads

GOAL = 2.0
MOST_TOKENS = 8192  # in all caches together: 0.4 GB


@dataclass(frozen=True)
class Plan:
    """So many answers at once, each with so many tokens behind it; and the shares of three things that are kept."""

    answers: int = 1
    context: int = 64
    neurons: float = 1.0  # of every MLP
    blocks: float = 1.0
    tokens: float = 1.0  # of every cache

    def __post_init__(self) -> None:
        shares = (self.neurons, self.blocks, self.tokens)
        sizes = (self.answers, self.context)
        if not (all(isinstance(n, int) and n >= 1 for n in sizes) and self.answers * self.context <= MOST_TOKENS):
            raise ValueError(
                f"got {self.answers} answers of {self.context} tokens; expected whole numbers from 1, with at most "
                f"{MOST_TOKENS} tokens in all."
            )
        if not all(0 < share <= 1 for share in shares):
            raise ValueError(f"got shares of {shares}; expected numbers above 0 and up to 1: what is kept.")

    def kept(self, of: int, share: float) -> int:
        """How many of a number that share is, one at least."""
        return max(1, round(of * share))


@dataclass(frozen=True)
class Attempt:
    """What came of a plan. Steps of the whole model and of the reduced one took turns: pairs of processor seconds."""

    plan: Plan
    whole: Work
    left: Work
    pairs: tuple[tuple[float, float], ...]

    @property
    def left_out(self) -> float:
        """The share of what a step read before that it does not read any more."""
        return 1 - self.left.bytes / self.whole.bytes

    @property
    def logs(self) -> list[float]:
        return [math.log(before / after) for before, after in self.pairs]


def works(sizes: Transformer, plan: Plan, value_bytes: int) -> tuple[Work, Work]:
    """What a step computes and moves before and after."""
    n_blocks = plan.kept(sizes.n_blocks, plan.blocks)
    fewer = replace(sizes, n_blocks=n_blocks, n_neurons=plan.kept(sizes.n_neurons, plan.neurons))
    context = plan.kept(plan.context, plan.tokens)
    return (
        sizes.decode_step(plan.context, plan.answers, value_bytes),
        fewer.decode_step(context, plan.answers, value_bytes),
    )


@torch.no_grad()
def attempt(model: PreTrainedModel, plan: Plan, n_pairs: int = 12, seconds: float = 8.0) -> Attempt:
    """Time a step before and after, in turns, as often as so many seconds allow: four times at least."""
    whole, left = works(Transformer.of(model), plan, value_bytes(model))
    pairs = []
    context = plan.kept(plan.context, plan.tokens)
    smaller = [(linear, cut) for block in blocks(model) for linear, cut in _cuts(block, plan)]
    end = time.perf_counter() + seconds
    with one_thread():
        while len(pairs) < n_pairs + 1 and (len(pairs) < 5 or time.perf_counter() < end):
            before = step_seconds(model, plan.answers, plan.context)
            with reduced(model, smaller, plan):
                pairs.append((before, step_seconds(model, plan.answers, context)))
    return Attempt(plan, whole, left, tuple(pairs[1:]))  # the first pair warms up


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes in one thread while inside."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _cuts(block: nn.Module, plan: Plan) -> list[tuple[nn.Module, nn.Parameter]]:
    """The MLP's matrices with the first neurons alone: rows of gate and up, columns of down."""
    *into, out = (block.get_submodule(name) for name in architecture(block).mlp)
    n = plan.kept(out.weight.shape[1], plan.neurons)
    cuts = [(linear, linear.weight[:n]) for linear in into] + [(out, out.weight[:, :n])]
    return [(linear, nn.Parameter(cut.detach().contiguous(), requires_grad=False)) for linear, cut in cuts]


@contextmanager
def reduced(model: PreTrainedModel, smaller: list[tuple[nn.Module, nn.Parameter]], plan: Plan) -> Iterator[None]:
    """The model with fewer neurons and blocks while inside; as it was after, whatever happens."""
    stack = blocks(model)
    n_kept = plan.kept(len(stack), plan.blocks)
    gone, weights = list(stack[n_kept:]), [linear.weight for linear, _ in smaller]
    try:
        del stack[n_kept:]
        for linear, weight in smaller:
            linear.weight = weight
        yield
    finally:
        stack.extend(gone)
        for (linear, _), weight in zip(smaller, weights, strict=True):
            linear.weight = weight


@torch.no_grad()
def step_seconds(model: PreTrainedModel, answers: int, context: int) -> float:
    """A token for each answer on a cache of made-up keys and values: what they hold does not change the time."""
    cache, sizes, ids = DynamicCache(config=model.config), heads(model), random_ids(model, answers, 1)
    shape = (answers, sizes.n_key_value, context, sizes.size)
    for layer in range(len(blocks(model))):
        cache.update(torch.full(shape, 0.1), torch.full(shape, 0.1), layer)
    start = time.thread_time()
    model(ids, past_key_values=cache, use_cache=True)
    return time.thread_time() - start


IDEAS: dict[str, Plan] = {
    "one answer, half of the neurons": Plan(neurons=0.5),
    "one answer, half of the blocks": Plan(blocks=0.5),
    "one answer, half of the cache": Plan(tokens=0.5),
    "one answer of 4096 tokens, half of the cache": Plan(context=4096, tokens=0.5),
    "16 answers, half of the neurons": Plan(answers=16, neurons=0.5),
    "16 answers of 512 tokens, half of the cache": Plan(answers=16, context=512, tokens=0.5),
    "16 answers of 512 tokens, half of all three": Plan(answers=16, context=512, neurons=0.5, blocks=0.5, tokens=0.5),
}


def table(ideas: dict[str, Attempt], machine: Device) -> Table:
    """Every idea: what it leaves out, what that machine's roofline predicts, what was measured, and the verdict."""
    rows = []
    for name, made in ideas.items():
        gain, error = mean_and_error(made.logs)
        rows.append(
            {
                "plan": name,
                "bytes not read": made.left_out,
                "roofline": made.whole.seconds(machine) / made.left.seconds(machine),
                "measured": math.exp(gain),
                "error": error,
                "pairs of steps": len(made.pairs),
                "twice as fast?": verdict(of_samples(made.logs, math.log(GOAL))).split(" (")[0],
            }
        )
    return Table(
        rows,
        caption="How many times as fast a decoding step becomes",
        formats={
            "bytes not read": percent,
            "roofline": number(2),
            ("measured", "error"): lambda times, error: f"{times:.2f} ± {percent(error)}",
        },
        note="roofline: the speedup that the bytes and the arithmetic predict. measured: ± one standard error, in per "
        "cent of the speedup.",
    )


def row(name: str, made: Attempt) -> dict:
    """An idea as a row of a result."""
    return {"idea": name} | asdict(made.plan) | {"seconds": [list(pair) for pair in made.pairs]}


def stored(rows: Sequence[dict], sizes: Transformer, value_bytes: int = 4) -> dict[str, Attempt]:
    """The ideas that were measured, from the table of a result."""
    ideas = {}
    for kept in rows:
        plan = Plan(**{name: kept[name] for name in Plan.__dataclass_fields__})
        pairs = tuple(tuple(pair) for pair in kept["seconds"])
        ideas[kept["idea"]] = Attempt(plan, *works(sizes, plan, value_bytes), pairs)
    return ideas
