"""What the paper reports, marked as published."""

from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.table import Table, number

PROMPTS = ("128", "256", "512", "1024")  # tokens


def accuracy() -> Table:
    """OPT-175B with sparse MLPs or sparse attention, predicted: tasks and perplexities."""
    shown = {"COPA": 2, "Lambada": 4, "PIQA": 4, "RTE": 4, "Winogrande": 4, "WikiText": 2, "C4": 2}
    return _table("dejavu_accuracy", "model", shown)


def smaller() -> Table:
    """OPT-66B, and BLOOM, which has no ReLU."""
    shown = {"COPA": 2, "Lambada": 3, "OpenBookQA": 3, "PIQA": 3, "RTE": 3, "Winogrande": 3}
    return _table("dejavu_smaller", "model", shown)


def latency() -> Table:
    """Milliseconds a token by prompt, and how many times faster Deja Vu is."""
    systems = {row["system"]: row for row in rows(load_published("dejavu"), "dejavu_latency")}
    headings = {n: f"prompt of {n}" for n in PROMPTS}
    frame = [{"system": name} | {headings[n]: row[n] for n in PROMPTS} for name, row in systems.items()]
    for name in ("Hugging Face", "FasterTransformer"):
        ratios = {headings[n]: systems[name][n] / systems["Deja Vu"][n] for n in PROMPTS}
        frame.append({"system": f"times faster than {name}"} | ratios)
    return Table(
        frame,
        caption="Published, not measured here: milliseconds per token by length of the prompt",
        formats=dict.fromkeys(headings.values(), number(1)),
    )


def depth() -> Table:
    """OPT-175B with blocks side by side, and with parts left out."""
    shown = {"COPA": 2, "Hellaswag": 4, "Lambada": 4, "PIQA": 4, "Winogrande": 4}
    return _table("dejavu_depth", "setting", shown)


def skipped() -> Table:
    """Perplexity with one block of every four or two left out."""
    return _table("dejavu_skipped", "setting", {"WikiText": 2, "C4": 2})


def search() -> Table:
    """A search for the neurons beside the MLP that it should spare."""
    return _table("dejavu_search", "what", {"milliseconds": 1})


def read_share() -> float:
    """What Deja Vu reads of a block of OPT-175B at the densities of its latencies, as a share of all."""
    parts = rows(load_published("dejavu"), "dejavu_read")
    return sum(part["gigabytes"] * part["density"] for part in parts) / sum(part["gigabytes"] for part in parts)


def _table(name: str, key: str, shown: dict[str, int]) -> Table:
    """Rows of a published table; `shown` has the digits of each column."""
    return Table(
        [{key: row[key]} | {column: row[column] for column in shown} for row in rows(load_published("dejavu"), name)],
        caption="Published, not measured here",
        formats={column: number(digits) for column, digits in shown.items()},
    )
