"""What each cache writes behind the same beginning, from heavy.json, which `course reproduce heavy` measured."""

import textwrap

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.common.table import Table, plus_minus
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


def written_table(measured: Measured | None = None) -> Table:
    """For each cache: how many of the written tokens differ from each other, and the loss to the full cache."""
    frame = []
    for row in (measured or results())["tables"]["written"]:
        distinct, loss = (of_samples(row[key]) for key in ("distinct", "losses"))
        frame.append(
            {"cache": row["policy"], "distinct tokens (%)": distinct.value, "error": distinct.error}
            | {"loss to the full cache (nats per token)": loss.value, "error of the loss": loss.error}
        )
    return Table(
        frame,
        caption="The text that each cache writes",
        formats={
            ("distinct tokens (%)", "error"): plus_minus(0, scale=100),
            ("loss to the full cache (nats per token)", "error of the loss"): plus_minus(2),
        },
        note="± one standard error over the prompts.",
    )


def written_verdict(measured: Measured | None = None) -> str:
    """The claim of the talk on H2O: fewer repeated words."""
    return str(claims.REPEATS_LESS.judge(measured or results()))


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
