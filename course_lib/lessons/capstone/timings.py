"""Bytes and wall-clock time, from stored benches: which ways to read fewer bytes also take less time on a CPU."""

import math
import re
from dataclasses import dataclass

from course_lib.lessons.common.effects import of_repetitions, side_by_side
from course_lib.lessons.common.results import Measured, load_bench
from course_lib.lessons.common.verdicts import Effect

FEWER = 0.98  # of the anchor's bytes: what counts as fewer


@dataclass(frozen=True)
class Way:
    """A way to read fewer bytes: a side of a bench, in those of its contests that decode one token.

    Attributes:
        contest, side: patterns. anchor: the side to compare with; the bench's own where there is none.
        reason: what takes the time.
    """

    name: str
    bench: str
    contest: str
    side: str
    anchor: str | None = None
    reason: str = ""


_ONE_TOKEN, _STEPS = r"\d+% kept", r"8 steps of 1 at \d+ tokens"
RECIPES, _STEP, _PRUNED = "cpu_capstone", r"1 step of 1 at \d+ tokens", "SparseGPT 50 %, 3 bits"
UNPACKED = "unpacked before the product"
WAYS = (
    Way("structured pruning: neurons, blocks", "cpu_structured", _STEPS, r"\d+ \w+", reason="smaller dense matrices"),
    Way("evicted tokens", "cpu_kv", _STEPS, r"\w+, 20 %", "nothing evicted", "smaller dense tensors"),
    Way("zeros, CSR", "cpu_bitmap_matvec", r"density .*", "CSR", reason="a column index for each value"),
    Way("chosen neurons, rows gathered", "cpu_contextual", _ONE_TOKEN, "bundle, one index_select", reason="a copy"),
    Way("the same, predicted", "cpu_contextual", _ONE_TOKEN, "predictor, then embedding_bag", reason="the predictor"),
    Way("8 bits", "cpu_contextual", "100% kept", "dense, 8 bits", reason="no fast product of such numbers"),
    Way("2:4, unpacked", "cpu_nm_matmul", "2:4, tokens: 1", "unpack, then dense", reason=UNPACKED),
    Way("zeros, bitmap unpacked", "cpu_bitmap_matvec", r"density .*", "bitmap.*", reason=UNPACKED),
    Way("zeros, 3 bits, unpacked once", RECIPES, _STEP, _PRUNED, reason="kept in memory as dense floats"),
    Way("zeros, 3 bits, as stored", RECIPES, _STEP, f"{_PRUNED}, from its bytes", reason=UNPACKED),
    Way("H2O in 4 bits", RECIPES, _STEP, r"(.* \+ )?H2O 20 %, 4 bits", reason="H2O's sums and sorting per token"),
    Way("prompt-lookup drafts", RECIPES, r"\d+ tokens, .*", "lookup", reason="fewer passes"),
)
BENCHES = tuple(dict.fromkeys(way.bench for way in WAYS))


@dataclass(frozen=True)
class Timed:
    """A way in one contest: its bytes as a fraction of the anchor's, its speedup, and the logarithm of that."""

    contest: str
    side: str
    fraction: float
    speedup: float
    log_speedup: Effect


def timed(way: Way, bench: Measured | None = None) -> list[Timed]:
    """Return the contests of a way, those with the fewest bytes last."""
    sides = (bench or load_bench(way.bench))["tables"]["sides"]
    found = []
    for row in sides:
        if not (re.fullmatch(way.contest, row["contest"]) and re.fullmatch(way.side, row["side"])):
            continue
        anchor = next(
            each
            for each in sides
            if each["contest"] == row["contest"] and each["side"] == (way.anchor or each["anchor"])
        )
        faster = side_by_side(row, anchor)
        if row["bytes"] < FEWER * anchor["bytes"]:
            fraction = row["bytes"] / anchor["bytes"]
            found.append(Timed(row["contest"], row["side"], fraction, math.exp(faster.value), faster))
    return sorted(found, key=lambda each: -each.fraction)


def speedups(*benches: Measured) -> dict[str, Effect]:
    """Return the logarithm of the speedup of every way and contest, from the benches in the order of BENCHES."""
    by_name = dict(zip(BENCHES, benches, strict=True))
    return {
        f"{way.name}: {each.contest}, {each.side}": each.log_speedup
        for way in WAYS
        for each in timed(way, by_name[way.bench])
    }


@dataclass(frozen=True)
class TimedRecipe:
    """A whole recipe compared with the dense model, or a text with a draft compared with none.

    Attributes:
        fewer: how many times fewer bytes. between: the 10 and 90 % points of the speedup.
        tokens_per_second: of single steps alone.
    """

    contest: str
    side: str
    fewer: float
    speedup: float
    between: tuple[float, float]
    tokens_per_second: float
    log_speedup: Effect


def timed_recipes(drafts: bool = False) -> list[TimedRecipe]:
    """Return what `course bench capstone` measured: steps of recipes, the dense model first, or texts with drafts."""
    found, anchors = [], {}
    for row in load_bench(RECIPES)["tables"]["sides"]:
        dense = anchors.setdefault(row["contest"], row)
        if (re.fullmatch(_STEP, row["contest"]) is None) is drafts:
            fewer, between = dense["bytes"] / row["bytes"], (row["times_anchor_low"], row["times_anchor_high"])
            cells = (row["contest"], row["side"], fewer, row["times_anchor"], between, 1 / row["median_seconds"])
            found.append(TimedRecipe(*cells, of_repetitions(row)))
    return found


def fewest_bytes(found: list[TimedRecipe]) -> TimedRecipe:
    """Return the recipe that reads the fewest bytes, as the course runs it."""
    return max(found, key=lambda each: (each.fewer, each.speedup))


def fastest(found: list[TimedRecipe]) -> TimedRecipe:
    """Return the fastest of the recipes that read fewer bytes than the dense model."""
    return max((each for each in found if each.fewer > 1 / FEWER), key=lambda each: each.speedup)
