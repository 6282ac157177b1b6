"""The open task of lesson 00: make a decoding step twice as fast, and leave out as little as you can.

Only the number of neurons, blocks and tokens that are left out matters here, not which ones, since only speed is
measured. We measure the processor time of one thread, which other programs on the machine disturb the least.

Dimension key: H key-value heads, N tokens in the cache, D size of a head.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.machine import measure_device, random_ids
from course_lib.measure.roofline import Transformer, Work
from course_lib.measure.timing import value_bytes
from course_lib.models import architecture, blocks, heads, load_model

GOAL = 2.0
MOST_TOKENS = 8192  # in the caches of all sequences together: 0.4 GB


@dataclass(frozen=True)
class Plan:
    """A situation (batch size, and tokens in the cache of each sequence), and the fractions that are kept."""

    batch_size: int = 1
    context: int = 64
    neurons: float = 1.0  # of every MLP
    blocks: float = 1.0
    tokens: float = 1.0  # of every cache

    def __post_init__(self) -> None:
        fractions = (self.neurons, self.blocks, self.tokens)
        sizes = (self.batch_size, self.context)
        if not (all(isinstance(n, int) and n >= 1 for n in sizes) and self.batch_size * self.context <= MOST_TOKENS):
            raise ValueError(
                f"got a batch size of {self.batch_size} and a context of {self.context}; expected whole numbers from 1 "
                f"whose product is at most {MOST_TOKENS} tokens."
            )
        if not all(0 < fraction <= 1 for fraction in fractions):
            raise ValueError(f"got the fractions {fractions}; expected what to keep: numbers above 0 and up to 1.")

    def n_kept(self, n: int, fraction: float) -> int:
        """Return this fraction of n, at least 1."""
        return max(1, round(n * fraction))


@dataclass(frozen=True)
class Attempt:
    """The result of a plan: pairs of processor seconds, one step of the whole model and one of the reduced model."""

    plan: Plan
    whole: Work
    reduced: Work
    pairs: tuple[tuple[float, float], ...]

    @property
    def bytes_saved(self) -> float:
        """Return the fraction of the bytes of a step that the reduced model does not read."""
        return 1 - self.reduced.bytes / self.whole.bytes

    @property
    def log_speedups(self) -> list[float]:
        return [math.log(before / after) for before, after in self.pairs]


def works(sizes: Transformer, plan: Plan, value_bytes: int) -> tuple[Work, Work]:
    """Return the FLOPs and bytes of a decoding step, of the whole model and of the reduced one."""
    n_blocks = plan.n_kept(sizes.n_blocks, plan.blocks)
    fewer = replace(sizes, n_blocks=n_blocks, n_neurons=plan.n_kept(sizes.n_neurons, plan.neurons))
    context = plan.n_kept(plan.context, plan.tokens)
    return (
        sizes.decode_step(plan.context, plan.batch_size, value_bytes),
        fewer.decode_step(context, plan.batch_size, value_bytes),
    )


@torch.no_grad()
def attempt(model: PreTrainedModel, plan: Plan, n_pairs: int = 12, seconds: float = 8.0) -> Attempt:
    """Time steps of the whole and the reduced model in turns, for at most this time but at least four pairs."""
    whole, left = works(Transformer.of(model), plan, value_bytes(model))
    pairs = []
    context = plan.n_kept(plan.context, plan.tokens)
    smaller = [(linear, cut) for block in blocks(model) for linear, cut in _cuts(block, plan)]
    end = time.perf_counter() + seconds
    with one_thread():
        while len(pairs) < n_pairs + 1 and (len(pairs) < 5 or time.perf_counter() < end):
            before = step_seconds(model, plan.batch_size, plan.context)
            with reduced(model, smaller, plan):
                pairs.append((before, step_seconds(model, plan.batch_size, context)))
    return Attempt(plan, whole, left, tuple(pairs[1:]))  # the first pair warms up


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch compute in one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _cuts(block: nn.Module, plan: Plan) -> list[tuple[nn.Module, nn.Parameter]]:
    """Return the MLP's matrices with the first neurons only: rows of gate and up, columns of down."""
    *into, out = (block.get_submodule(name) for name in architecture(block).mlp)
    n = plan.n_kept(out.weight.shape[1], plan.neurons)
    cuts = [(linear, linear.weight[:n]) for linear in into] + [(out, out.weight[:, :n])]
    return [(linear, nn.Parameter(cut.detach().contiguous(), requires_grad=False)) for linear, cut in cuts]


@contextmanager
def reduced(model: PreTrainedModel, smaller: list[tuple[nn.Module, nn.Parameter]], plan: Plan) -> Iterator[None]:
    """Give the model fewer neurons and blocks; afterwards it is as before, even after an error."""
    stack = blocks(model)
    n_kept = plan.n_kept(len(stack), plan.blocks)
    removed, weights = list(stack[n_kept:]), [linear.weight for linear, _ in smaller]
    try:
        del stack[n_kept:]
        for linear, weight in smaller:
            linear.weight = weight
        yield
    finally:
        stack.extend(removed)
        for (linear, _), weight in zip(smaller, weights, strict=True):
            linear.weight = weight


@torch.no_grad()
def step_seconds(model: PreTrainedModel, batch_size: int, context: int) -> float:
    """Time one decoding step on a cache of constant keys and values; their values do not change the time."""
    cache, sizes, ids = DynamicCache(config=model.config), heads(model), random_ids(model, batch_size, 1)
    shape = (batch_size, sizes.n_key_value, context, sizes.size)
    for layer in range(len(blocks(model))):
        cache.update(torch.full(shape, 0.1), torch.full(shape, 0.1), layer)
    start = time.thread_time()
    model(ids, past_key_values=cache, use_cache=True)
    return time.thread_time() - start


IDEAS: dict[str, Plan] = {
    "1 sequence, half of the neurons": Plan(neurons=0.5),
    "1 sequence, half of the blocks": Plan(blocks=0.5),
    "1 sequence, half of the cache": Plan(tokens=0.5),
    "1 sequence of 4096 tokens, half of the cache": Plan(context=4096, tokens=0.5),
    "16 sequences, half of the neurons": Plan(batch_size=16, neurons=0.5),
    "16 sequences of 512 tokens, half of the cache": Plan(batch_size=16, context=512, tokens=0.5),
    "16 sequences of 512 tokens, half of all three": Plan(16, context=512, neurons=0.5, blocks=0.5, tokens=0.5),
}


def row(name: str, result: Attempt) -> dict:
    """Return an idea as a row of a result."""
    return {"idea": name} | asdict(result.plan) | {"seconds": [list(pair) for pair in result.pairs]}


def stored(rows: Sequence[dict], sizes: Transformer, value_bytes: int = 4) -> dict[str, Attempt]:
    """Return the measured ideas, from the table of a result."""
    attempts = {}
    for stored_row in rows:
        plan = Plan(**{name: stored_row[name] for name in Plan.__dataclass_fields__})
        pairs = tuple(tuple(pair) for pair in stored_row["seconds"])
        attempts[stored_row["idea"]] = Attempt(plan, *works(sizes, plan, value_bytes), pairs)
    return attempts


@dataclass(frozen=True)
class Sizes:
    """Which ideas, and how many pairs of steps for each."""

    ideas: tuple[str, ...] = tuple(IDEAS)
    pairs: int = 30


def steps(sizes: Sizes) -> list[Step]:
    return [Step("machine", machine), *(Step(idea, partial(measure, idea, sizes.pairs)) for idea in sizes.ideas)]


def machine(seed: int) -> Tables:
    """Measure the two rates of one thread of this machine."""
    with one_thread():
        device = measure_device("cpu")
    rates = {"flops_per_second": device.flops_per_second, "bytes_per_second": device.bytes_per_second}
    return {"machine": [{"name": device.name} | rates]}


def measure(idea: str, n_pairs: int, seed: int) -> Tables:
    """Time steps of the whole model and of the reduced one, in turns."""
    model, _ = load_model(device="cpu")
    return {"ideas": [row(idea, attempt(model, IDEAS[idea], n_pairs, seconds=60.0))]}


EXPERIMENT = Experiment("Twice as fast", Sizes(), Sizes(("1 sequence, half of the neurons",), 5), steps)
