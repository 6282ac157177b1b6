"""Passes of the dense model for 100 tokens, by draft: lesson 11's, sampled, and the capstone's own models, greedy."""

from statistics import fmean
from typing import NamedTuple

from course_lib.lessons.capstone.experiments.experiment_capstone_drafts import COPYING, LOOKUP, RUNNING
from course_lib.lessons.capstone.found import some
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, load_measured
from course_lib.lessons.common.verdicts import claim, of_samples
from course_lib.measure.paired import mean_and_error

ORACLE = "half of the neurons"  # chosen by what only the whole computation tells
SAMPLED, GREEDY = "temperature 1", "greedy"


class Drafted(NamedTuple):
    """A row of either measurement."""

    how: str
    row: Row

    @property
    def name(self) -> str:
        return self.row["draft"]

    @property
    def tokens_a_pass(self) -> list[float]:
        """Of each text."""
        return [new / passes for new, passes in zip(self.row["new"], self.row["passes"], strict=True)]

    @property
    def bytes_saved(self) -> list[float]:
        """Of each text: bytes a token without the draft over those with it, the draft's own passes counted."""
        drafted = self.row["drafted"] / sum(self.row["passes"])
        return [tokens / (1 + self.row["read"] * drafted) for tokens in self.tokens_a_pass]


def lesson_11() -> Measured:
    """Lesson 11's committed measurement of drafts."""
    return load_measured("sparse_attention", "experiments/drafts")


def all_drafts(measured: Measured, kind: str) -> list[Drafted]:
    """Of one kind of text: first those of lesson 11."""
    return [Drafted(SAMPLED, row) for row in some(lesson_11(), "speculated", kind=kind)] + [
        Drafted(GREEDY, row) for row in some(measured, "drafts", kind=kind)
    ]


def passes(measured: Measured) -> str:
    """Loads of the dense model for 100 tokens, and bytes a token with the draft's own counted."""
    lines, fewer = [f"{'':<50}{'tokens a pass':>16}{'loads for 100':>15}{'bytes, times fewer':>19}"], []
    compressed, free = [], []
    for kind in (RUNNING, COPYING):
        for each in all_drafts(measured, kind):
            mean, error = mean_and_error(each.tokens_a_pass)
            cells = f"{f'{mean:.2f} ± {error:.2f}':>16}{100 / mean:>15.0f}{fmean(each.bytes_saved):>19.2f}"
            lines.append(f"{f'{each.name}, {kind}, {each.how}':<50}{cells}")
            fewer.append(of_samples(each.tokens_a_pass, 1.0))
            if each.name != ORACLE:  # which computes everything to choose
                (free if each.name == LOOKUP else compressed).append(of_samples(each.bytes_saved, 1.0))
    lines.append(claim("100 tokens take fewer than 100 loads of the model", fewer))
    lines.append(claim("a lookup reads fewer bytes a token", free))
    return "\n".join([*lines, claim("a compressed draft does, its own bytes counted", compressed)])
