"""The figures of lesson 12."""

from course_lib.lessons.capstone.plots.costs import (
    bytes_and_time,
    drafts,
    gains,
    published_sizes,
    recipes_and_time,
)
from course_lib.lessons.capstone.plots.front import pareto_front, tries
from course_lib.lessons.capstone.plots.layers import bits_per_weight, output_errors
from course_lib.lessons.capstone.plots.parts import interactions, orders, paired_windows, part_costs, parts_added

__all__ = [
    "bits_per_weight",
    "bytes_and_time",
    "drafts",
    "gains",
    "interactions",
    "orders",
    "output_errors",
    "paired_windows",
    "pareto_front",
    "part_costs",
    "parts_added",
    "published_sizes",
    "recipes_and_time",
    "tries",
]
