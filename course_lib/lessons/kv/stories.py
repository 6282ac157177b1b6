"""What each cache writes behind the same beginning, from heavy.json, which `course reproduce heavy` measured."""

import textwrap

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.common.verdicts import of_samples
from course_lib.lessons.kv import claims
from course_lib.lessons.kv.estimates import FULL_WRITER, Measured
from course_lib.lessons.kv.heavy_hitters import results

WIDTH = 96  # columns of a printed text
COLUMN = 27  # letters of a line of the picture


def _slots(measured: Measured, row: dict) -> int:
    return row["n_prompt"] if row["policy"] == FULL_WRITER else round(measured["sizes"]["share"] * row["n_prompt"])


def stories(measured: Measured | None = None) -> str:
    """What each cache writes behind the same beginning, to be read."""
    measured = measured or results()
    first, *_ = table = measured["tables"]["stories"]
    lines = [*textwrap.wrap(first["prompt"], WIDTH), ""]
    for row in table:
        head = f"{row['policy']}, {_slots(measured, row)} slots:"
        lines += [
            head,
            *textwrap.wrap(" ".join(row["text"].split()), WIDTH, initial_indent="    ", subsequent_indent="    "),
        ]
    return "\n".join(lines)


def written_verdict(measured: Measured | None = None) -> str:
    """The claim of the talk on H2O: fewer repeated words."""
    measured = measured or results()
    table = {row["policy"]: row for row in measured["tables"]["written"]}
    lines = [f"{'':<18}{'tokens that differ':>20}{'loss to the full cache':>26}"]
    for name, row in table.items():
        cells = [of_samples(row[key]) for key in ("distinct", "losses")]
        lines.append(
            f"{name:<18}{100 * cells[0].value:>13.0f} ± {100 * cells[0].error:.0f} %"
            f"{cells[1].value:>19.2f} ± {cells[1].error:.2f}"
        )
    return "\n".join([*lines, str(claims.REPEATS_LESS.judge(measured))])


def side_by_side(measured: Measured | None = None) -> Figure:
    """The same texts as a picture for the deck, a column a cache."""
    measured = measured or results()
    table = measured["tables"]["stories"]
    fig, axes = figure(len(table), width=3.3, height=3.5)
    for panel, row in zip(axes, table, strict=True):
        panel.set_axis_off()
        panel.set_title(f"{row['policy']}\n{_slots(measured, row)} slots", loc="left", fontsize=15, color=COLOURS[0])
        text = textwrap.fill(" ".join(row["text"].split()), COLUMN)
        panel.text(0, 1, text, va="top", ha="left", fontsize=14, transform=panel.transAxes, parse_math=False)
    return fig
