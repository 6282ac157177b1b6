"""Bytes beside time, from committed benches: which ways that read fewer bytes take less time on a processor."""

import math
import re
from dataclasses import dataclass

from course_lib.lessons.common.effects import of_repetitions, side_by_side
from course_lib.lessons.common.tables import load_bench
from course_lib.lessons.common.verdicts import Effect, claim

FEWER = 0.98  # of the anchor's bytes: what counts as fewer


@dataclass(frozen=True)
class Way:
    """What is left out and how it is computed: a side of a bench, and of its contests those for one token."""

    name: str
    bench: str
    contest: str  # a pattern
    side: str
    anchor: str | None = None  # the bench's own where there is none
    why: str = ""


_ONE_TOKEN, _STEPS = r"\d+% kept", r"8 steps of 1 at \d+ tokens"
RECIPES, _STEP, _PRUNED = "cpu_capstone", r"1 step of 1 at \d+ tokens", "SparseGPT 50 %, 3 bits"
WAYS = (
    Way("cut out: neurons, blocks", "cpu_structured", _STEPS, r"\d+ \w+", why="smaller dense matrices"),
    Way("tokens out of the cache", "cpu_kv", _STEPS, r"\w+, 20 %", "nothing evicted", "smaller dense tensors"),
    Way("zeros, CSR", "cpu_bitmap_matvec", r"density .*", "CSR", why="a column beside each value"),
    Way("neurons of a token, rows gathered", "cpu_contextual", _ONE_TOKEN, "bundle, one index_select", why="a copy"),
    Way("the same, predicted", "cpu_contextual", _ONE_TOKEN, "predictor, then embedding_bag", why="the predictor"),
    Way("8 bits", "cpu_contextual", "100% kept", "dense, 8 bits", why="no fast product of such numbers"),
    Way("2:4, unpacked", "cpu_nm_matmul", "2:4, tokens: 1", "unpack, then dense", why="unpacked before it is read"),
    Way("zeros, bitmap unpacked", "cpu_bitmap_matvec", r"density .*", "bitmap.*", why="unpacked before it is read"),
    Way("zeros, 3 bits, unpacked once", RECIPES, _STEP, _PRUNED, why="held as dense floats"),
    Way("zeros, 3 bits, as stored", RECIPES, _STEP, f"{_PRUNED}, from its bytes", why="unpacked before it is read"),
    Way("a recipe's H2O on 4 bits", RECIPES, _STEP, r"(.* \+ )?H2O 20 %, 4 bits", why="what H2O does a token"),
    Way("drafts looked up", RECIPES, r"\d+ tokens, .*", "lookup", why="fewer passes"),
)


@dataclass(frozen=True)
class Timed:
    """One side of one contest: its bytes as a share of the anchor's, how many times as fast, and the log of that."""

    of_bytes: float
    times: float
    faster: Effect


def timed(way: Way) -> list[Timed]:
    """Its contests, those with the fewest bytes last."""
    sides = load_bench(way.bench)["tables"]["sides"]
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
            found.append(Timed(row["bytes"] / anchor["bytes"], math.exp(faster.value), faster))
    return sorted(found, key=lambda each: -each.of_bytes)


def bytes_and_time() -> str:
    """Of each way the most and the fewest bytes: what they promise, and what the clock says."""
    lines, effects = [f"{'one token, on a processor':<34}{'bytes':>7}{'promised':>10}{'measured':>10}   pays for"], []
    for way in WAYS:
        found = timed(way)
        for each in dict.fromkeys((found[0], found[-1])):
            cells = f"{100 * each.of_bytes:>5.0f} %{1 / each.of_bytes:>8.1f} x{each.times:>8.2f} x"
            lines.append(f"{way.name:<34}{cells}   {way.why}")
        effects += [each.faster for each in found]
    return "\n".join([*lines, claim("fewer bytes take less time", effects)])


@dataclass(frozen=True)
class OfRecipe:
    """A whole recipe, or a text with a draft, beside its anchor.

    Args:
        fewer: how many times fewer bytes. a_second: tokens, of steps alone.
    """

    contest: str
    side: str
    fewer: float
    times: float
    between: tuple[float, float]  # the 10 and 90 % points of `times`
    a_second: float
    faster: Effect


def whole_recipes(drafts: bool = False) -> list[OfRecipe]:
    """What `course bench capstone` measured: steps of recipes, the dense model first, or texts with drafts."""
    found, anchors = [], {}
    for row in load_bench(RECIPES)["tables"]["sides"]:
        dense = anchors.setdefault(row["contest"], row)
        if (re.fullmatch(_STEP, row["contest"]) is None) is drafts:
            fewer, between = dense["bytes"] / row["bytes"], (row["times_anchor_low"], row["times_anchor_high"])
            cells = (row["contest"], row["side"], fewer, row["times_anchor"], between, 1 / row["median_seconds"])
            found.append(OfRecipe(*cells, of_repetitions(row)))
    return found


def recipes_on_the_clock() -> str:
    """Tokens a second of dense, of each recipe, and of the best by bytes and by time; then texts with drafts."""
    found = whole_recipes()
    lines = [f"{'one token behind 1024':<50}{'tokens a second':>17}{'times dense':>13}{'fewer bytes':>14}"]
    lines += [f"{each.side:<50}{each.a_second:>17.1f}{each.times:>11.2f} x{each.fewer:>12.2f} x" for each in found]
    for what, best in (("bytes", best_by_bytes(found)), ("time, of fewer bytes", best_by_time(found))):
        lines.append(f"best by {what}: {best.side}, {best.a_second:.1f} tokens a second, {best.times:.2f} x dense")
    for each in whole_recipes(drafts=True):
        if each.side != "no draft":
            name = f"{each.contest}: {each.side}"
            lines.append(f"{name:<67}{each.times:>11.2f} x{each.fewer:>12.2f} x")
    return "\n".join(lines)


def best_by_bytes(found: list[OfRecipe]) -> OfRecipe:
    """The recipe that reads the fewest, as the course runs it."""
    return max(found, key=lambda each: (each.fewer, each.times))


def best_by_time(found: list[OfRecipe]) -> OfRecipe:
    """The fastest of those that read fewer bytes than the dense model."""
    return max((each for each in found if each.fewer > 1 / FEWER), key=lambda each: each.times)
