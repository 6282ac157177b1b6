"""Tables of one run of `make gpu`, kernels/bench/results/gpu_h200.json, for the lessons.

A bench has contests, a contest has sides, and the first side is the anchor. The verdicts "wins" and "loses" are those
of the file: they mean that 10 to 90 % of the repetitions lie on one side of the anchor.
"""

import math
from collections.abc import Sequence

from course_lib.lessons.common.effects import Row, of_repetitions, side_by_side
from course_lib.lessons.common.results import Measured, listed, load_bench, wrapped
from course_lib.lessons.common.table import Table, number, percent, with_range
from course_lib.lessons.common.verdicts import Effect

RESULT = "gpu_h200"
NOTED = {"tokens/s": 0, "memory (GB)": 1}  # columns that not every bench of a model has, and their decimals
SAID = {"wins": "wins", "even": "is even", "loses": "loses"}  # by verdict
ONCE = "one run"  # in place of a verdict, which a single repetition does not allow


def results() -> Measured:
    """What is committed."""
    return load_bench(RESULT)


def provenance(measured: Measured | None = None) -> str:
    """Command, day and device; then what the bounds are made of."""
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
    """The rows of a bench, of the contests and sides that are named, or of all.

    Raises:
        ValueError: a bench, a contest or a side that the run does not have.
    """
    found = (measured or results())["benches"]
    _expect("bench", [bench], [name for name, entry in found.items() if entry["rows"]])
    rows = found[bench]["rows"]
    _expect(f"contest of {bench}", contests, list(dict.fromkeys(row["contest"] for row in rows)))
    _expect(f"side of {bench}", sides, list(dict.fromkeys(row["side"] for row in rows)))
    rows = [row for row in rows if not contests or row["contest"] in contests]
    return [row for row in rows if not sides or row["side"] in sides]


def table(
    bench: str, contests: Sequence[str] = (), sides: Sequence[str] = (), measured: Measured | None = None
) -> Table:
    """One row per side: its time next to its lower bound, and how many times as fast as the anchor it is."""
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
        note="bound: the least time that the GPU needs for the bytes and the arithmetic. speedup: over the anchor, the "
        f"side that all others are compared with; in brackets, 10 % to 90 % of the repetitions.{stopped}",
    )


def whole_model(
    bench: str, contests: Sequence[str] = (), sides: Sequence[str] = (), measured: Measured | None = None
) -> Table:
    """One row per side of a bench of a whole model: its time, and what else the bench noted of it."""
    measured = measured or results()
    measured = measured or results()
    rows = [_row_of_model(row) for row in timed(bench, contests, sides, measured)]
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
        note="speedup: over the first side of the same setting; in brackets, 10 % to 90 % of the repetitions."
        + _earlier(bench, measured),
    )


def everywhere(bench: str, side: str, measured: Measured | None = None) -> str:
    """In which contests of the bench a side wins and in which it loses: a sentence."""
    rows = timed(bench, sides=[side], measured=measured)
    found = {word: [row["contest"] for row in rows if row["verdict"] == word] for word in SAID}
    parts = [f"{SAID[word]} {_at(names, len(rows))}" for word, names in found.items() if names]
    return f"{bench}: {side!r} beside {rows[0]['anchor']!r} {'; '.join(parts)}."


def faster(bench: str, side: str, than: str | None = None, measured: Measured | None = None) -> list[Effect]:
    """Whether a side takes less time than the anchor, or than another side: an effect for each contest."""
    mine = timed(bench, sides=[side], measured=measured)
    if than is None:
        return [of_repetitions(row) for row in mine]
    others = {row["contest"]: row for row in timed(bench, sides=[than], measured=measured)}
    return [side_by_side(row, others[row["contest"]]) for row in mine]


def _at(names: list[str], n: int) -> str:
    """Names of contests; the words that they begin with are said once."""
    if len(names) == n:
        return f"in all {n} contests" if n > 1 else f"at {names[0]}"
    columns = zip(*(name.split(" ") for name in names), strict=False)
    shared = next((index for index, words in enumerate(columns) if len(set(words)) > 1), 0)
    first, *others = names
    others = [" ".join(name.split(" ")[shared:]) for name in others]
    return f"at {('; ' if ',' in ''.join(names) else ', ').join([first, *others])}"


def _row(row: Row) -> Row:
    texts = {"contest": f"{row['contest']} ({' × '.join(map(str, row['shape']))})", "side": row["side"]}
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
        | {"verdict": "anchor" if is_timed and is_anchor else ONCE if is_single else row["verdict"]}
    )


def _row_of_model(row: Row) -> Row:
    """Without the bound, which is that of the cache and the weights alone."""
    found, numbers = _row(row), row.get("numbers") or {}
    is_timed, peak = bool(row["repetitions"]), numbers.get("peak_bytes")
    return {
        "setting": row["contest"],
        "method": row["side"],
        "time (ms)": row["median_seconds"] * 1e3 if is_timed else None,
        "tokens/s": numbers.get("tokens_per_second"),
        "memory (GB)": None if peak is None else peak / 1e9,
        **{name: found[name] for name in ("speedup", "slowest", "fastest", "verdict")},
    }


def _earlier(bench: str, measured: Measured) -> str:
    """The day of a bench that the run took over from an earlier one; nothing for its own benches."""
    day = measured["benches"][bench].get("started", measured["started"])[:10]
    return "" if day == measured["started"][:10] else f" Measured on {day}, in an earlier run."


def _speedup(value: float, low: float, high: float) -> str:
    """Without a range where there was one repetition."""
    return number(2)(value) if math.isnan(low) else with_range(2)(value, low, high)


def _fraction(value: float) -> str:
    return percent(value) if value >= 0.005 else "<1 %"


def _expect(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"got {what} {name!r}, which {RESULT}.json has not; expected {listed(known)}.")
