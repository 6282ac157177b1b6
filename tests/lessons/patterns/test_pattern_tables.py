"""The verdicts of lesson 01 follow from paired windows and rounds."""

import math

import torch

from course_lib.lessons.patterns import tables
from course_lib.measure.perplexity import Perplexity


def found(**losses):
    """Perplexities whose windows have these losses."""
    names = {"n4": "3:4", "blocks": "blocks 4 × 4"}
    results = {}
    for name, values in losses.items():
        logs = torch.tensor(values)
        mean = logs.mean().exp().item()
        error = mean * logs.std().item() / len(values) ** 0.5
        results[names.get(name, name)] = Perplexity(mean, error, 100, tuple(values))
    return results


HARD = (0.0, 2.0, 4.0)  # windows differ far more than patterns do


def test_windows_are_compared_with_themselves():
    levels = {"unstructured": 0.0, "n4": 0.5, "blocks": 1.0, "rows": 3.0, "columns": 2.0}
    each = {name: [level + hard + 0.01 * i for i, hard in enumerate(HARD)] for name, level in levels.items()}
    *steps, claim = tables.order_verdict(found(**each)).splitlines()
    assert claim.endswith("to rows and columns: holds")
    assert steps[0].strip() == "3:4 above unstructured: +0.50 ± 0.00 nats per token"
    unpaired = {name: Perplexity(p.value, p.standard_error, 100) for name, p in found(**each).items()}
    assert tables.order_verdict(unpaired).endswith("rows and columns: undecided")


def test_an_order_that_is_broken_once_is_said_with_its_count():
    each = {"unstructured": 0.0, "n4": 0.5, "blocks": 1.0, "rows": 3.0, "columns": 0.2}
    said = tables.order_verdict(found(**{name: [level + hard for hard in HARD] for name, level in each.items()}))
    assert " ".join(said.split()).endswith("mixed (holds in 3; fails in 1)")


def test_a_tenth_faster_is_the_claim():
    quick = torch.tensor([2.0, 2.02, 1.98]).log()
    slow = torch.tensor([1.05, 1.06, 1.04]).log()
    assert tables.speed_verdict("it is faster", {1: quick, 64: quick}).endswith("with 64 tokens: holds")
    said = tables.speed_verdict("it is faster", {1: quick, 64: slow})
    assert "× 2.00 ± 1 % with 1 token, × 1.05 ± 1 % with 64 tokens: mixed (holds in 1; fails in 1)" in said
    noisy = torch.tensor([math.log(3), math.log(0.5), math.log(1.4)])
    assert "undecided" in tables.speed_verdict("it is faster", {1: noisy})
