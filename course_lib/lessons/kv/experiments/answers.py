"""Compressed prompts of the default model: the perplexity of the text after them, and answers to questions."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.data.needles import samples
from course_lib.kv.analysis.compressed_prompts import continuation_losses, retrieve_each
from course_lib.kv.analysis.retrieval import GATE, Retrieval, retrieve_through
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.quantized import Quantized
from course_lib.kv.recycled import Recycled, recycling
from course_lib.kv.vectors import FULL_PRECISION
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.kv.experiments import settings
from course_lib.measure.experiment import Tables

RECYCLED = {
    "recycled, never refreshed": {"every": None},
    "recycled, every 8 steps": {"every": 8},
    "recycled, by similarity": {"every": None, "similarity": 0.8, "check": 5},
}
EVERY_4_STEPS = "recycled, every 4 steps"  # at least as many full steps as by similarity
RULES = RECYCLED | {EVERY_4_STEPS: {"every": 4}}


def policies_of(name: str, length: int, shares: Sequence[float]) -> tuple[list[EvictionPolicy], list[float]]:
    """Return one policy per fraction of the prompt, and the fractions; Full() keeps everything."""
    if name == "Full":
        return [Full()], [1.0]
    return settings.with_budgets(name, [round(share * length) for share in shares]), list(shares)


def error_of(values: Tensor) -> float:
    """Return the standard error of the mean; NaN for a single value."""
    return values.std().item() / len(values) ** 0.5 if len(values) > 1 else torch.nan


def continuation(
    name: str,
    shares: Sequence[float],
    n: int,
    length: int,
    n_after: int,
    seed: int,
    bits: int = 32,
    texts: Callable[[int, int, int], Tensor] = article_windows,
) -> Tables:
    """Measure the perplexity of the text after a compressed prompt, with one loss per prompt for paired comparisons."""
    windows = texts(n, length + n_after, seed)
    policies, budgets = policies_of(name, length, shares)
    vectors = FULL_PRECISION if bits == 32 else Quantized(bits=bits)
    compressed = continuation_losses(loaded()[0], windows, length, policies, settings.positions(name), vectors)
    rows = []
    for budget, (held, losses) in zip(budgets, compressed, strict=True):
        value = losses.mean().exp().item()
        rows.append(
            {"policy": name, "budget": budget, "slots": round(budget * length), "bits": bits}
            | {"perplexity": value, "standard_error": value * error_of(losses), "bytes": held.bytes_held // n}
            | {"losses": [round(loss, 5) for loss in losses.tolist()]}
        )
    return {"compressed" if bits == 32 else "quantized": rows}


def retrieval(task: str, name: str, shares: Sequence[float], n: int, length: int, seed: int) -> Tables:
    """Ask after the eviction, with every budget, also by depth. The row of Full holds whether the task is `usable`."""
    model, tokenizer = loaded()
    policies, budgets = policies_of(name, length, shares)
    haystacks = samples(task, n, length, tokenizer, seed)
    outcomes = retrieve_each(model, haystacks, policies, settings.positions(name))
    rows, depths = [], []
    for budget, outcome in zip(budgets, outcomes, strict=True):
        label = {"task": task, "policy": name, "budget": budget}
        rows.append(label | row_of(outcome) | gate(name, outcome))
        depths += [label | {"depth": depth} | row_of(part) for depth, part in outcome.by_depth().items()]
    return {"retrieval": rows, "retrieval_depths": depths}


def leak(name: str, shares: Sequence[float], n: int, length: int, seed: int) -> Tables:
    """Ask for the same needles in the prompt, so that the first token of the answer does not depend on the eviction."""
    model, tokenizer = loaded()
    policies, budgets = policies_of(name, length, shares)
    haystacks = [sample.naive() for sample in samples("word", n, length, tokenizer, seed)]
    outcomes = retrieve_each(model, haystacks, policies, settings.positions(name))
    rows = [
        {"policy": name, "budget": budget} | row_of(outcome) for budget, outcome in zip(budgets, outcomes, strict=True)
    ]
    return {"leak": rows}


def second_needle(name: str, share: float, n: int, length: int, seed: int) -> Tables:
    """Ask for two needles one after the other, token by token: recycled attention reads a longer pass in full."""
    model, tokenizer = loaded()
    haystacks = samples("two", n, length, tokenizer, seed)
    slots = round(share * length)
    if name in RULES:
        opened = recycling(model, Recycled(budget=slots, **RULES[name]))
    else:
        opened = evicting(model, policies_of(name, length, [share])[0][0], settings.positions(name))
    with opened as cache:
        outcomes = retrieve_through(model, haystacks, cache, chunk=1)
        held, full_steps = cache.bytes_held, getattr(cache, "n_full", None)
    label = {"policy": name, "budget": 1.0 if name == "Full" else share, "bytes": held}
    if full_steps:  # of the last batch; the prompt is one
        label["full_steps"] = sum(full_steps) / len(full_steps) - 1
    rows = [label | {"question": i + 1} | row_of(outcome) | gate(name, outcome) for i, outcome in enumerate(outcomes)]
    return {"second_needle": rows}


def gate(name: str, outcome: Retrieval) -> dict[str, bool]:
    """Return whether a task is usable: the full cache must solve it."""
    return {"usable": outcome.exact >= GATE} if name == "Full" else {}


def row_of(outcome: Retrieval) -> dict[str, Any]:
    """Return the accuracy with its interval, and every answer, so that two policies can be compared in pairs."""
    low, high = outcome.interval
    right = "".join(str(int(answer.exact)) for answer in outcome.answers)
    return {"exact": outcome.exact, "low": low, "high": high, "prefix": outcome.prefix, "n": len(outcome.answers)} | {
        "right": right
    }
