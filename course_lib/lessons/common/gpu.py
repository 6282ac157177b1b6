"""Tables of one run of `make gpu`, kernels/bench/results/gpu_h200.json, for the lessons.

A bench consists of comparisons ("contests" in the file). Each compares several implementations ("sides") with the first
one, the reference ("anchor"). The verdicts come from the file, in other words: an implementation is faster or slower if
the range from 10 to 90 % of the repetitions excludes the time of the reference.
"""

import math
from collections.abc import Sequence

from course_lib.kernels.timing import WORDS
from course_lib.lessons.common.effects import Row, of_repetitions, side_by_side
from course_lib.lessons.common.results import Measured, listed, load_bench, wrapped
from course_lib.lessons.common.table import Table, number, percent, with_range
from course_lib.lessons.common.verdicts import Effect

RESULT = "gpu_h200"
NOTED = {"tokens/s": 0, "memory (GB)": 1}  # columns that only some benches of a model have, and their decimals
PART = "part only"  # instead of a verdict on a row such as "index alone", which does less than the reference
ONCE = "one run"  # instead of a verdict, which needs more than one repetition


def results() -> Measured:
    """Load the stored run."""
    return load_bench(RESULT)


def provenance(measured: Measured | None = None) -> str:
    """Describe the run: command, day and device, and the two measured rates that its bounds are computed from."""
    measured = measured or results()
    device, ceilings = measured["device"], measured["ceilings"]
    rate = max(ceilings["matmul_flops_per_second"].values())
    return wrapped(
        f"`{measured['command']}`, {measured['started'][:10]}, {device['name']}, torch {device['torch']}, "
        f"triton {device['triton']}\nbound: {ceilings['copy_bytes_per_second'] / 1e12:.2f} TB/s and "
        f"{rate / 1e12:,.0f} TFLOP/s, measured on that GPU, so a fraction can exceed 100 %; caches are cold"
    )


def timed(
    bench: str, contests: Sequence[str] = (), sides: Sequence[str] = (), measured: Measured | None = None
) -> list[Row]:
    """Return the rows of a bench: those of the named contests and sides, or all.

    Raises:
        ValueError: the run has no bench, contest or side of that name.
    """
    benches = (measured or results())["benches"]
    _expect("bench", [bench], [name for name, entry in benches.items() if entry["rows"]])
    rows = benches[bench]["rows"]
    _expect(f"comparison of {bench}", contests, list(dict.fromkeys(row["contest"] for row in rows)))
    _expect(f"implementation of {bench}", sides, list(dict.fromkeys(row["side"] for row in rows)))
    rows = [row for row in rows if not contests or row["contest"] in contests]
    return [row for row in rows if not sides or row["side"] in sides]


def table(
    bench: str, contests: Sequence[str] = (), sides: Sequence[str] = (), measured: Measured | None = None
) -> Table:
    """Tabulate a bench, one row per implementation: time, lower bound, and speedup over the reference."""
    measured = measured or results()
    entry = measured["benches"][bench]
    rows = timed(bench, contests, sides, measured)
    stopped = f" Not timed: {entry['stopped']}." if entry.get("stopped") else ""
    stopped += _earlier(bench, measured)
    return Table(
        [_row(row) for row in rows],
        caption=f"{bench} ({entry['dtype']}): time on the GPU",
        formats={
            "time (µs)": number(1),
            "bound (µs)": number(1),
            "bound / time": _fraction,
            ("speedup", "slowest", "fastest"): _speedup,
        },
        note="bound: the least time that the GPU needs for the bytes and the arithmetic. speedup: over the "
        f"reference of the same comparison; in brackets, 10 % to 90 % of the repetitions.{_parts(rows)}{stopped}",
    )


def whole_model(
    bench: str, contests: Sequence[str] = (), sides: Sequence[str] = (), measured: Measured | None = None
) -> Table:
    """Tabulate a bench of a whole model, one row per method: time, tokens per second, memory and speedup."""
    measured = measured or results()
    stored = timed(bench, contests, sides, measured)
    rows = [_row_of_model(row) for row in stored]
    noted = [name for name in ("tokens/s", "memory (GB)") if any(row[name] is not None for row in rows)]
    rows = [{name: value for name, value in row.items() if name in noted or name not in NOTED} for row in rows]
    return Table(
        rows,
        caption=f"{bench}: a model of Llama-3-8B's shape with random weights (bfloat16)",
        formats={
            "time (ms)": number(2),
            **{name: number(digits) for name, digits in NOTED.items() if name in noted},
            ("speedup", "slowest", "fastest"): _speedup,
        },
        note="speedup: over the first method of the same setting; in brackets, 10 % to 90 % of the repetitions."
        + _parts(stored)
        + _earlier(bench, measured),
    )


def faster(bench: str, side: str, than: str | None = None, measured: Measured | None = None) -> list[Effect]:
    """Return the log speedup of a side over the reference, or over another side: one effect per contest."""
    rows = timed(bench, sides=[side], measured=measured)
    if than is None:
        return [of_repetitions(row) for row in rows]
    row_by_contest = {row["contest"]: row for row in timed(bench, sides=[than], measured=measured)}
    return [side_by_side(row, row_by_contest[row["contest"]]) for row in rows]


def _row(row: Row) -> Row:
    """Return the row of a table; None where a side was not timed, NaN for the range of a single repetition."""
    texts = {"comparison": f"{row['contest']} ({' × '.join(map(str, row['shape']))})", "implementation": row["side"]}
    is_timed, is_anchor = bool(row["repetitions"]), row["side"] == row["anchor"]
    microseconds = [row[key] * 1e6 if is_timed else None for key in ("median_seconds", "bound_seconds")]
    ends = ("", "_low", "_high")
    speedup = [row[f"times_anchor{end}"] if is_timed and not is_anchor else None for end in ends]
    is_single = row["repetitions"] == 1 and not is_anchor
    if is_single:
        speedup[1:] = math.nan, math.nan
    return (
        texts
        | dict(zip(("time (µs)", "bound (µs)"), microseconds, strict=True))
        | {"bound / time": row["share_of_bound"] if is_timed else None}
        | dict(zip(("speedup", "slowest", "fastest"), speedup, strict=True))
        | {"verdict": _verdict(row)}
    )


def _verdict(row: Row) -> str:
    if row["repetitions"] and row["side"] == row["anchor"]:
        return WORDS["anchor"]
    if row["repetitions"] and _is_part(row):
        return PART
    return ONCE if row["repetitions"] == 1 else WORDS.get(row["verdict"], row["verdict"])


def _is_part(row: Row) -> bool:
    return row["side"].endswith(" alone")


def _parts(rows: list[Row]) -> str:
    return f" {PART}: less work than the reference." if any(map(_is_part, rows)) else ""


def _row_of_model(row: Row) -> Row:
    """Return the row of a whole model. It has no bound: the stored one covers only the cache and the weights."""
    cells, numbers = _row(row), row.get("numbers") or {}
    is_timed, peak = bool(row["repetitions"]), numbers.get("peak_bytes")
    return {
        "setting": row["contest"],
        "method": row["side"],
        "time (ms)": row["median_seconds"] * 1e3 if is_timed else None,
        "tokens/s": numbers.get("tokens_per_second"),
        "memory (GB)": None if peak is None else peak / 1e9,
        **{name: cells[name] for name in ("speedup", "slowest", "fastest", "verdict")},
    }


def _earlier(bench: str, measured: Measured) -> str:
    """Name the day of a bench whose times come from an earlier run; empty for benches of this run."""
    day = measured["benches"][bench].get("started", measured["started"])[:10]
    return "" if day == measured["started"][:10] else f" Measured on {day}, in an earlier run."


def _speedup(value: float, low: float, high: float) -> str:
    """Format a speedup with its range, or alone where there was a single repetition."""
    return number(2)(value) if math.isnan(low) else with_range(2)(value, low, high)


def _fraction(value: float) -> str:
    return percent(value) if value >= 0.005 else "<1 %"


def _expect(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"got {what} {name!r}, which is not in {RESULT}.json; expected {listed(known)}.")
