"""Comparisons of lesson 12: published sizes with ours, recipes of equal bytes, and compressed models as drafts."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from course_lib.lessons.capstone.estimates import DENSE, DOMAINS, find, larger_increase, loss_increase, rows_of
from course_lib.lessons.capstone.experiments.capstone_drafts import COPYING, LOOKUP, RUNNING
from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.results import Measured, load_measured, load_published, rows, spaced
from course_lib.lessons.common.verdicts import Effect, of_samples

EQUAL = (  # zeros and more bits, compared with fewer bits: about the same bytes
    ("SparseGPT 50 %, 4 bits", "3 bits, 64"),
    ("SparseGPT 50 %, 2 bits", "2 bits, 64"),
    ("SparseGPT 75 %, 4 bits", "2 bits, 64"),
)
CACHES = {  # sizes that Scissorhands claims: with 16 bits and with 4
    "H2O 20 %": 0,
    "Scissorhands 20 %": 0,
    "H2O 20 %, 4 bits": 1,
    "Scissorhands 20 %, 4 bits": 1,
}
HALF_OF_NEURONS, ROUNDED = "CATS 50 %", ("4 bits, rows", "3 bits, 64", "2 bits, 64")
HALF_4_BITS = "sparsegpt-50-4bit"  # in lesson 10
ORACLE = "half of the neurons"  # in lesson 11: chosen with the help of the full computation
SAMPLED, GREEDY = "temperature 1", "greedy"


class Size(NamedTuple):
    """How many times smaller a recipe is, in a paper and here, and its loss increase here."""

    name: str
    published: float
    ours: float
    cost: Effect


def cache_sizes(recipes: Sequence[Row]) -> list[Size]:
    """Compare Scissorhands' 5 and 20 times with its own policy and H2O after 1,024 tokens; the worse domain counts."""
    dense, claims = find(recipes, DENSE), rows(load_published("kv"), "claims", source="Scissorhands")
    published = [row["value"] for row in claims if "less cache" in row["claim"]]
    found = {name: find(recipes, name) for name in CACHES}
    return [
        Size(f"cache, {name}", published[CACHES[name]], dense["cache"] / row["cache"], larger_increase(row, dense))
        for name, row in found.items()
        if row
    ]


def weight_sizes(measured: Measured | None = None) -> list[Size]:
    """Compare the 8 times of compress-then-prompt with lesson 10: with a prompt, in the blocks and in the whole model.

    Args:
        measured: the results "compress/experiments/prompts".
    """
    measured = measured or load_measured("compress", "prompts")
    (dense,), (row,) = (rows(measured, "models", model=name) for name in (DENSE, HALF_4_BITS))
    (own,) = rows(measured, "own", model=HALF_4_BITS)
    (published,) = rows(load_published("compress"), "claims", claim="times smaller")
    kinds = {"in the blocks": "weight_bytes", "in the model": "bytes"}
    return [
        Size(f"50 % and 4 bits, {where}", published["published"], dense[key] / row[key], log_gap(dense, own))
        for where, key in kinds.items()
    ]


def sizes(recipes: Sequence[Row], prompts: Measured | None = None) -> list[Size]:
    """Return all published sizes with ours."""
    return [*cache_sizes(recipes), *weight_sizes(prompts)]


def equal_bytes_of_lesson_3(measured: Measured | None = None) -> dict[str, Effect]:
    """Compare 50 % at 4 bits with 3 bits, by the kind of group: on other windows of the same text.

    Args:
        measured: the results "sparsegpt/experiments/sparsegpt_rounded".
    """
    by_group = {}
    for row in rows(measured or load_measured("sparsegpt", "sparsegpt_rounded"), "rounded"):
        by_group.setdefault(row["group"], {})[spaced(row["name"])] = row
    return {
        f"50 % at 4 bits or 3 bits, {f'groups of {group}' if group else 'rows'} (lesson 03)": log_gap(
            found["50 % + 4 bits"], found["3 bits"]
        )
        for group, found in by_group.items()
    }


def equal_bytes(recipes: Sequence[Row], lesson_3: Measured | None = None) -> dict[str, Effect]:
    """Estimate how much lower the loss is with zeros and more bits than with fewer bits at about the same bytes."""
    found = equal_bytes_of_lesson_3(lesson_3)
    for first, second in EQUAL:
        pruned, rounded = find(recipes, first), find(recipes, second)
        if pruned and rounded:
            megabytes = f"{pruned['stored'] / 1e6:.0f} and {rounded['stored'] / 1e6:.0f} MB"
            found |= {
                f"{first} or {second} ({megabytes}), {name}": loss_increase(rounded, pruned, domain)
                for domain, name in DOMAINS.items()
            }
    return found


def cost_of_half_neurons(recipes: Sequence[Row]) -> dict[str, Effect]:
    """Estimate by how much more half of the neurons cost after rounding than in the dense model, window by window."""
    found, dense, few = {}, find(recipes, DENSE), find(recipes, HALF_OF_NEURONS)
    for name in ROUNDED:
        both, whole = find(recipes, f"{name} + {HALF_OF_NEURONS}"), find(recipes, name)
        for domain, title in DOMAINS.items() if both and whole and few else ():
            columns = zip(*(row[domain] for row in (both, whole, few, dense)), strict=True)
            found[f"{name}, {title}"] = of_samples([b - w - f + d for b, w, f, d in columns])
    return found


# Drafts.


class Drafted(NamedTuple):
    """One draft on one kind of text, measured here or in lesson 11."""

    how: str
    row: Row

    @property
    def name(self) -> str:
        """The draft; an oracle is called one."""
        return f"{self.row['draft']} (oracle)" if self.is_oracle else self.row["draft"]

    @property
    def is_oracle(self) -> bool:
        return self.row["draft"] == ORACLE

    @property
    def is_lookup(self) -> bool:
        return self.row["draft"] == LOOKUP

    @property
    def tokens_per_pass(self) -> list[float]:
        """Of each text."""
        return [new / passes for new, passes in zip(self.row["new"], self.row["passes"], strict=True)]

    @property
    def times_fewer_bytes(self) -> list[float]:
        """Of each text: bytes per token without a draft over those with it, including what the draft itself reads."""
        drafted = self.row["drafted"] / sum(self.row["passes"])
        return [tokens / (1 + self.row["read"] * drafted) for tokens in self.tokens_per_pass]


def drafts_results() -> Measured:
    """Load what `course reproduce capstone_drafts` measured."""
    return load_measured("capstone", "capstone_drafts")


def all_drafts(kind: str, measured: Measured | None = None, lesson_11: Measured | None = None) -> list[Drafted]:
    """Return the drafts on one kind of text, those of lesson 11 first.

    Args:
        measured: the results "capstone/experiments/capstone_drafts". lesson_11: "sparse_attention/experiments/drafts".
    """
    measured, lesson_11 = measured or drafts_results(), lesson_11 or load_measured("sparse_attention", "drafts")
    return [Drafted(SAMPLED, row) for row in rows_of(lesson_11, "speculated", kind=kind)] + [
        Drafted(GREEDY, row) for row in rows_of(measured, "drafts", kind=kind)
    ]


def drafts_by_case(measured: Measured | None = None, lesson_11: Measured | None = None) -> dict[str, Drafted]:
    """Return every draft by name, kind of text and how tokens were chosen."""
    return {
        f"{each.name}, {kind}, {each.how}": each
        for kind in (RUNNING, COPYING)
        for each in all_drafts(kind, measured, lesson_11)
    }


def mean_times_fewer(draft: Drafted) -> float:
    """Return the mean over texts of the bytes saved."""
    return fmean(draft.times_fewer_bytes)
