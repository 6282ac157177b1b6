"""What the papers report, marked as published."""

from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.table import Table, number

QUALITY = "negative log perplexity"


def losses() -> Table:
    """Shazeer's Table 6: what the two losses do to perplexity and loads."""
    headings = {
        "weight of the importance loss": "importance",
        "weight of the load loss": "load",
        "perplexity": "perplexity",
        "largest / mean load": "largest_over_mean",
    }
    return Table(
        [{heading: row[key] for heading, key in headings.items()} for row in _published("shazeer_losses")],
        caption="Published, not measured here: two losses that balance the loads",
        formats={"perplexity": number(1), "largest / mean load": number(2)},
    )


def switch() -> Table:
    """Switch's Table 1: top-1 and top-2 at two capacities, compared with a dense model."""
    headings = {"capacity factor": "capacity_factor", QUALITY: "quality", "examples per second": "examples_per_second"}
    return Table(
        [
            {"model": row["model"]} | {heading: row[key] for heading, key in headings.items()}
            for row in _published("switch_capacity")
        ],
        caption="Published, not measured here: top-1 and top-2 at two capacities",
        formats={QUALITY: number(3), "examples per second": number()},
    )


def exploration() -> Table:
    """Switch's Table 11: how the router explores while it is trained."""
    return Table(
        [{"during training": row["router"], QUALITY: row["quality"]} for row in _published("switch_exploration")],
        caption="Published, not measured here: how the router explores",
        formats={QUALITY: number(3)},
    )


def _published(table: str) -> list[dict]:
    return rows(load_published("moe"), table)
