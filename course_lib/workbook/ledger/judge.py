"""The verdict on a lesson's claim with the effects behind it, and the commands and seeds that measured them."""

from dataclasses import dataclass
from functools import lru_cache

from course_lib.lessons.common.claim import Claim
from course_lib.lessons.common.verdicts import Effect, word_of
from course_lib.measure.result_files import load
from course_lib.workbook.ledger.everything import all_claims


@dataclass(frozen=True)
class Judged:
    """A verdict, the claim that it is about, and what was run for it."""

    line: str  # the claim as the lesson words it
    words: str  # the verdict with its details
    effects: tuple[Effect, ...]
    commands: tuple[str, ...]
    seeds: tuple[int, ...]
    ours: str = ""  # our value in the claim's unit

    @property
    def verdict(self) -> str:
        """One of the words of the rule, without details."""
        return word_of(self.words)

    @property
    def n(self) -> str:
        """Independent samples of each case."""
        sizes = sorted({effect.n for effect in self.effects if effect.n is not None})
        if not sizes or any(effect.n is None for effect in self.effects):
            return "–"
        return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


@lru_cache(maxsize=512)
def judged(claim_id: str) -> Judged:
    """Judge a claim by the committed results.

    Raises:
        ValueError: no claim has this id, or a result is missing, incomplete or of another version.
    """
    claims = all_claims()
    if claim_id not in claims:
        raise ValueError(f"got the claim {claim_id!r}; expected one of {', '.join(sorted(claims))}.")
    claim = claims[claim_id]
    commands, seeds = _origin(claim)
    found = claim.judge()
    return Judged(claim.text, found.words, tuple(found.effects.values()), commands, seeds, found.ours)


def _origin(claim: Claim) -> tuple[tuple[str, ...], tuple[int, ...]]:
    found = [load(path) for path in claim.paths]
    seeds = dict.fromkeys(each["seed"] for each in found if "seed" in each)  # `make gpu` has one for each bench
    return tuple(each["command"] for each in found), tuple(seeds)
