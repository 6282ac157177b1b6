"""The claims of lesson 01: the cost of regular patterns in quality, and whether storing fewer weights saves time."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from course_lib.lessons.common import gpu
from course_lib.lessons.common.claim import HARMED, OTHER_HARMS, PERCENT, TIMES, WHY_HARMED, Claim
from course_lib.lessons.common.effects import Row, log_gap, of_repetitions
from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.verdicts import HOLDS, Effect, decide_cases, of_examples

Measured = dict[str, Any]
Points = dict[float, Row]


def step_effects(by_pattern: Mapping[str, Row]) -> dict[str, Effect]:
    """Compute by how many nats per token each pattern is worse than the freer one before it, window by window."""
    n_of_4 = next(name for name in by_pattern if name.endswith(":4"))
    steps = [("unstructured", n_of_4), (n_of_4, "blocks 4 × 4"), ("blocks 4 × 4", "rows"), ("blocks 4 × 4", "columns")]
    return {f"{stricter} above {freer}": log_gap(by_pattern[freer], by_pattern[stricter]) for freer, stricter in steps}


def _steps_at(sparsity: float, measured: Measured) -> dict[str, Effect]:
    return step_effects({row["pattern"]: row for row in rows(measured, "perplexity", sparsity=sparsity)})


def _published_two_four() -> str:
    published = rows(load_published("patterns"), "perplexity", model="LLaMA-2-7B")
    perplexities = {row["pattern"]: row["perplexity"] for row in published}
    return f"{perplexities['2:4'] / perplexities['unstructured']:.2f} times (LLaMA-2-7B, magnitude)"


_order = partial(
    Claim,
    results=("patterns/experiments/patterns",),
    unit=TIMES,
    quantity="perplexity with a stricter pattern over that with the next freer one",
    refuted="a step to a stricter pattern that does not raise the perplexity",
)
ORDER_QUARTER, ORDER_HALF = (
    _order(
        id=f"patterns-order-{name}",
        text=f"with {100 * sparsity:.0f} % of the weights pruned, perplexity rises from unstructured over n:m and "
        "blocks to rows and columns",
        measure=partial(_steps_at, sparsity),
    )
    for name, sparsity in (("quarter", 0.25), ("half", 0.5))
)
TWO_FOUR_COSTS = _order(
    id="patterns-two-four",
    text="with half of the weights pruned, 2:4 has a higher perplexity than unstructured pruning",
    measure=lambda measured: _steps_at(0.5, measured)["2:4 above unstructured"],
    refuted="2:4 with a perplexity that is not higher",
    published=_published_two_four,
)


def _against(freer: tuple[str, ...], stricter: tuple[str, ...], measured: Measured) -> dict[str, Effect]:
    """Perplexity of each stricter pattern over that of the freer one at its place, with half of the weights."""
    found = {row["pattern"]: row for row in rows(measured, "perplexity") if row["sparsity"] in (0.0, 0.5)}
    pairs = zip(freer, stricter, strict=True)
    return {f"{strict} over {free}": log_gap(found[free], found[strict]) for free, strict in pairs}


BETWEEN = _order(
    id="patterns-between",
    text="with half of the weights pruned, 2:4 costs more than unstructured pruning and less than rows or columns",
    measure=partial(_against, ("unstructured", "2:4", "2:4"), ("2:4", "rows", "columns")),
    quantity="perplexity with the stricter of two patterns over that with the freer one",
    refuted="2:4 with a perplexity that is not between those of the two others",
)
STRUCTURED_HARMS = _order(
    id="patterns-structured-harms",
    text="with half of the weights pruned, rows and columns raise the perplexity more than 1.5 times",
    measure=partial(_against, ("dense", "dense"), ("rows", "columns")),
    above=HARMED,
    because=WHY_HARMED,
    other_thresholds=OTHER_HARMS,
    quantity="perplexity over the dense one",
    refuted="rows or columns within 1.5 times the dense perplexity",
)

_formats = partial(Claim, results=("bench/cpu_bitmap_matvec",), unit=TIMES)


def by_density(sides: list[Row]) -> dict[str, Points]:
    """Group the rows of all sides except the anchor by side and by the density in the contest's name."""
    points: dict[str, Points] = {}
    for row in sides:
        if row["side"] != row["anchor"]:
            points.setdefault(row["side"], {})[float(row["contest"].removeprefix("density "))] = row
    return points


def _sides(bench: Measured) -> tuple[Row, dict[str, Points]]:
    """Return the dense side, and the others by density."""
    sides = bench["tables"]["sides"]
    return next(row for row in sides if row["side"] == row["anchor"]), by_density(sides)


def _bytes_saved(bench: Measured) -> Effect:
    dense, others = _sides(bench)
    bitmap = next(points for side, points in others.items() if side.startswith("bitmap"))
    return Effect(value=1 - bitmap[0.5]["bytes"] / dense["bytes"], error=0.0)


def _slower(row: Row) -> Effect:
    """The log of how many times as long as its anchor a side takes."""
    return of_repetitions(row).below(0)


def _csr_slower(bench: Measured) -> dict[str, Effect]:
    return {f"density {density:g}": _slower(row) for density, row in _sides(bench)[1]["CSR"].items()}


def _csr_where_smaller(bench: Measured) -> dict[str, Effect]:
    dense, others = _sides(bench)
    smaller = {d: row for d, row in others["CSR"].items() if row["bytes"] < 0.95 * dense["bytes"]}
    return {f"density {density:g}": of_repetitions(row) for density, row in smaller.items()}


def _packed_slower(bench: Measured) -> dict[str, Effect]:
    of_four = [row for row in bench["tables"]["sides"] if row["side"] != row["anchor"]]
    return {f"{_method(row['side'])}, {_tokens(row['contest'])}": _slower(row) for row in of_four}


def _method(side: str) -> str:
    return "unpack first" if side == "unpack, then dense" else side


def _tokens(contest: str) -> str:
    """2:4, tokens: 16 → 16 tokens."""
    number = contest.removeprefix("2:4, ").removeprefix("tokens: ")
    return f"{number} token{'' if number == '1' else 's'}" if number.isdecimal() else number


def _saved(bench: Measured) -> dict[str, Effect]:
    """How many times less half of the weights need, of three kinds of cost; the counts have no error."""
    return {
        "memory, with a bitmap": Effect(value=-math.log1p(-_bytes_saved(bench).value), error=0.0),
        "multiplications": Effect(value=math.log(2), error=0.0),
        "time, in CSR": of_repetitions(_sides(bench)[1]["CSR"][0.5]),
    }


def _show_examples(bench: Measured) -> str:
    cases = _csr_where_smaller(bench)
    return f"{list(decide_cases(cases).values()).count(HOLDS)} of {len(cases)} densities; {TIMES.several(cases)}"


BITMAP_SMALLER = _formats(
    id="patterns-bitmap-smaller",
    text="half of the weights stored with a bitmap take fewer bytes than all weights stored densely",
    measure=_bytes_saved,
    criterion="fewer bytes than the dense format",
    unit=PERCENT,
    quantity="fraction of the bytes saved",
    refuted="a bitmap format that needs as many bytes at half density as the dense format",
)
CSR_NO_FASTER = _formats(
    id="patterns-csr-no-faster",
    text="on a CPU, a product with weights in CSR is slower than the dense product at every density",
    measure=_csr_slower,
    quantity="time over that of the dense product, by density",
    refuted="a density at which the CPU's sparse product is faster",
)
CSR_FASTER_WHEN_SMALLER = _formats(
    id="patterns-csr-faster-when-smaller",
    text="wherever CSR is over 5 % smaller than the dense matrix, it is faster",
    measure=_csr_where_smaller,
    quantity="time of the dense product over that in CSR, by density",
    refuted="a density at which fewer bytes take longer",
)
CSR_CAN_BE_FASTER = _formats(
    id="patterns-csr-can-be-faster",
    text="CSR that is over 5 % smaller than the dense matrix can be faster",
    measure=lambda bench: of_examples(_csr_where_smaller(bench)),
    shown=_show_examples,
    criterion="one density is enough for 'can'",
    quantity="fraction of the densities at which CSR is smaller and faster",
    refuted="no density at which fewer bytes take less time",
    unit=PERCENT,
)
CSR_AT_QUALITY = _formats(
    id="patterns-csr-at-quality",
    text="with half or 40 % of the weights kept, a product in CSR is slower than the dense product on a CPU",
    measure=lambda bench: {
        name: effect for name, effect in _csr_slower(bench).items() if name in ("density 0.5", "density 0.4")
    },
    quantity="time over that of the dense product, by density",
    refuted="one of these densities at which the CPU's sparse product is faster",
)
ZEROS_SAVE = _formats(
    id="patterns-zeros-save",
    text="half of the weights take less memory, fewer multiplications and less time than all of them",
    measure=_saved,
    quantity="what all weights need over what half of them need; one token on a CPU",
    refuted="a cost that is no lower",
)
CSR_AT_HALF = _formats(
    id="patterns-csr-at-half",
    text="with half of the weights and one token, CSR is faster than the dense product on a CPU",
    measure=lambda bench: of_repetitions(_sides(bench)[1]["CSR"][0.5]),
    quantity="time of the dense product over that in CSR",
    refuted="a sparse product with half of the weights that is not faster",
    published="1.82 times (400 tokens, DeepSparse; SparseGPT's paper, table 7)",
)
PACKED_NO_FASTER = _formats(
    id="patterns-packed-no-faster",
    text="without hardware for it, 2:4 is no faster than the dense product",
    results=("bench/cpu_nm_matmul",),
    measure=_packed_slower,
    quantity="time over that of the dense product, by method of decoding",
    refuted="a method that is faster than dense with 2:4 weights on a CPU without support for them",
)
_on_a_gpu = partial(
    _formats, results=("bench/gpu_h200",), quantity="dense time over the time of the sparse product, by comparison"
)


def _gpu_contests(bench: str, side: str, measured: Measured) -> dict[str, Effect]:
    contests = [row["contest"] for row in gpu.timed(bench, sides=[side], measured=measured)]
    return dict(zip(contests, gpu.faster(bench, side, measured=measured), strict=True))


ON_A_GPU = _on_a_gpu(
    id="patterns-on-a-gpu",
    text="on a GPU, torch's 2:4 product is faster than the dense one, with every number of tokens",
    measure=partial(_gpu_contests, "nm_matmul", "torch semi-structured"),
    refuted="a number of tokens with which the sparse product is not faster",
)
REWRITTEN = range(2, 65)  # tokens: their kernel is another one since the committed run timed it; see `started` there


def _own_kernel(measured: Measured) -> dict[str, Effect]:
    contests = _gpu_contests("nm_matmul", "N:M kernel", measured)
    return {name: effect for name, effect in contests.items() if int(name.rpartition(" ")[2]) not in REWRITTEN}


OWN_KERNEL_ON_A_GPU = _on_a_gpu(
    id="patterns-own-kernel",
    text="on a GPU, the course's 2:4 kernel, which saves bytes but no multiplications, is faster than the dense one, "
    "with one token and with more than 64",
    measure=_own_kernel,
    refuted="a number of tokens with which the sparse product is not faster",
)
BITMAP_KERNEL_ON_A_GPU = _on_a_gpu(
    id="patterns-bitmap-kernel",
    text="on a GPU with one token, the course's bitmap kernel is faster than the dense one at every measured density",
    measure=partial(_gpu_contests, "bitmap_matvec", "bitmap kernel"),
    refuted="a density at which the sparse product is not faster",
)
