"""What `course bench` measured on a CPU, from its committed result."""

from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.common.tables import Measured, load_bench
from course_lib.lessons.patterns import claims
from course_lib.lessons.patterns.claims import Points, by_density


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


def gpu_verdict(measured: Measured | None = None) -> str:
    """On a GPU: 2:4 by the hardware that is made for it, and half of the weights or fewer with a bitmap."""
    return report(claims.GPU_CLAIMS, measured)


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
