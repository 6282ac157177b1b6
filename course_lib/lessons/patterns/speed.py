"""What `course bench` measured on a CPU, from its committed result."""

from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common import gpu
from course_lib.lessons.common.effects import of_repetitions
from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.common.tables import Measured, load_bench
from course_lib.lessons.common.verdicts import Effect, claim, verdict

Points = dict[float, dict[str, Any]]


def bench_on_a_cpu() -> Figure:
    """The committed tables: CSR and bitmap by density, 2:4 at half, one token, against the dense layer."""
    bitmap, packed = (load_bench(f"cpu_{name}") for name in ("bitmap_matvec", "nm_matmul"))
    lines = by_density(bitmap["tables"]["sides"])
    for row in packed["tables"]["sides"]:
        if row["side"] != row["anchor"] and row["contest"] == "2:4, tokens: 1":
            lines[f"2:4, {row['side']}"] = {0.5: row}
    return times_faster(lines, bitmap["machine"]["cpu"])


def csr_at_half() -> dict[str, Any]:
    """CSR with half of the weights beside the dense layer, one token."""
    return by_density(load_bench("cpu_bitmap_matvec")["tables"]["sides"])["CSR"][0.5]


def formats_verdict(bitmap: dict[str, Any] | None = None, packed: dict[str, Any] | None = None) -> str:
    """What storing half of the weights saves in bytes and in time, one token, without hardware made for it."""
    bitmap, packed = bitmap or load_bench("cpu_bitmap_matvec"), packed or load_bench("cpu_nm_matmul")
    sides = bitmap["tables"]["sides"]
    dense, lines = next(row for row in sides if row["side"] == row["anchor"]), by_density(sides)
    saved = [Effect(value=1 - row["bytes"] / dense["bytes"], error=0.0) for row in (_bitmap(lines)[0.5],)]
    smaller = [row for row in lines["CSR"].values() if row["bytes"] < 0.95 * dense["bytes"]]
    of_four = [row for row in packed["tables"]["sides"] if row["side"] != row["anchor"]]
    claims = {
        "half of the weights beside a bitmap are read in fewer bytes": saved,
        "at no density are weights in CSR faster than all of them": [_slower(row) for row in lines["CSR"].values()],
        "wherever CSR is over 5 % smaller it is faster": [of_repetitions(row) for row in smaller],
        "2:4 without hardware for it is no faster than all weights": [_slower(row) for row in of_four],
    }
    return "\n".join(f"Claim: {claim}: {verdict(effects)}" for claim, effects in claims.items())


def gpu_verdict(measured: Measured | None = None) -> str:
    """On a GPU: 2:4 by the hardware that is made for it, and half of the weights or fewer beside a bitmap."""
    cases = {
        "on a GPU, torch's 2:4 product is faster than the dense one, at every number of tokens": (
            "nm_matmul",
            "torch semi-structured",
        ),
        "a kernel of the course's is, which saves 2:4's bytes and no products": ("nm_matmul", "N:M kernel"),
        "a kernel for bitmaps is, one token, at every density that was timed": ("bitmap_matvec", "bitmap kernel"),
    }
    return "\n".join(claim(text, gpu.faster(*of, measured=measured)) for text, of in cases.items())


def _bitmap(lines: dict[str, Points]) -> Points:
    return next(points for side, points in lines.items() if side.startswith("bitmap"))


def _slower(row: dict[str, Any]) -> Effect:
    """How far a side is behind its anchor."""
    faster = of_repetitions(row)
    return Effect(value=-faster.value, error=faster.error)


def by_density(rows: list[dict[str, Any]]) -> dict[str, Points]:
    """The rows of the sides that are not the anchor, by side and by the density in the contest's name."""
    lines: dict[str, Points] = {}
    for row in rows:
        if row["side"] != row["anchor"]:
            lines.setdefault(row["side"], {})[float(row["contest"].removeprefix("density "))] = row
    return lines


def times_faster(lines: dict[str, Points], processor: str) -> Figure:
    """Dense time over sparse time against density, with the range from 10 to 90 % of the repetitions."""
    fig, (axes,) = figure(width=7.6, height=3.8)
    for index, (name, points) in enumerate(lines.items()):
        middle = [row["times_anchor"] for row in points.values()]
        below = [m - row["times_anchor_low"] for m, row in zip(middle, points.values(), strict=True)]
        above = [row["times_anchor_high"] - m for m, row in zip(middle, points.values(), strict=True)]
        axes.errorbar(list(points), middle, yerr=[below, above], capsize=3, label=name, **line_style(index))
    axes.axhline(1, color="black", linewidth=0.8)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    title = "\n".join((f"One token, {processor}:", _finding(lines)))
    label(axes, title, "density: share of the weights stored (log scale)", "times faster than dense (log scale)")
    return fig


def _finding(lines: dict[str, Points]) -> str:
    won = {name: [d for d, row in points.items() if row["times_anchor"] > 1] for name, points in lines.items()}
    gains = [f"{name} wins up to a density of {max(densities):g}" for name, densities in won.items() if densities]
    lost = [row["times_anchor"] for name, points in lines.items() if not won[name] for row in points.values()]
    if lost:
        gains.append(f"the others reach at most {max(lost):.2f} of the dense speed")
    return ", ".join(gains)
