"""What a lesson's line says of a claim, with the effects on which it stands, and how they came about."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from course_lib.lessons.common.verdicts import Effect, Said, overheard
from course_lib.measure.result_files import load
from course_lib.workbook.ledger.record import Rule

WORD = re.compile(r"[^(]+")  # a verdict without what stands in brackets behind it
MOST_LISTED = 3  # effects; of more, the least and the largest are shown


@dataclass(frozen=True)
class Judged:
    """A verdict, the line that said it, and what was run for it."""

    line: str
    words: str
    effects: tuple[Effect, ...]
    commands: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """One of five: without the counts."""
        return WORD.match(self.words)[0].strip()

    @property
    def n(self) -> str:
        """Independent samples of each case."""
        sizes = sorted({effect.n for effect in self.effects if effect.n is not None})
        if not sizes or any(effect.n is None for effect in self.effects):
            return "–"
        return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


@lru_cache(maxsize=256)
def judged(rule: Rule) -> Judged:
    """Let the lesson print its lines, and find the one of the rule and its effects.

    Raises:
        ValueError: where a result is missing, partial or of another version, or the lesson has no such line.
    """
    commands, seeds = _origin(rule)
    try:
        with overheard() as heard:
            text = rule.lines()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ValueError(
            f"the line {rule.line!r} of lesson {rule.lesson} cannot be computed from "
            f"{', '.join(map(str, rule.paths))} ({type(error).__name__}: {error}). The result is partial or of another "
            f"version: measure it anew ({', '.join(commands)} --no-resume)."
        ) from error
    line, said = _of_line(rule, _claims(text), heard)
    return Judged(line, said.words, said.effects, commands, seeds)


def _origin(rule: Rule) -> tuple[tuple[str, ...], tuple[int, ...]]:
    found = [load(path) for path in rule.paths]
    seeds = dict.fromkeys(each["seed"] for each in found if "seed" in each)  # `make gpu` has one for each bench
    return tuple(each["command"] for each in found), tuple(seeds)


def _claims(text: str) -> list[str]:
    """The claims that are judged, one each: from the word Claim to the next or to the end."""
    parts = re.split(r"(?m)^.*?\bClaim: ", text)[1:]
    return [" ".join(part.split()) for part in parts]


def _of_line(rule: Rule, claims: Sequence[str], heard: Sequence[Said]) -> tuple[str, Said]:
    """Claims and verdicts come in one order, the lesson's; of several verdicts on each claim the first counts."""
    at = [index for index, claim in enumerate(claims) if rule.line in claim]
    if len(at) != 1 or len(heard) % len(claims):
        raise ValueError(
            f"got {len(at)} lines with {rule.line!r} among {len(claims)} claims and {len(heard)} verdicts of lesson "
            f"{rule.lesson}; expected one line, and as many verdicts for each claim. Its claims: {list(claims)}."
        )
    claim, said = claims[at[0]], heard[at[0] * (len(heard) // len(claims))]
    if WORD.match(said.words)[0].strip() not in claim:
        raise ValueError(f"lesson {rule.lesson} prints {claim!r}, but the verdict in its place is {said.words!r}.")
    return claim.partition(f": {said.words}")[0], said


def shown(effects: Sequence[Effect]) -> str:
    """Effects as they are printed: all of a few, the least and the largest of many."""
    if len(effects) <= MOST_LISTED:
        return ", ".join(map(_shown, effects))
    ends = (min(effects, key=lambda e: e.value), max(effects, key=lambda e: e.value))
    return f"{_shown(ends[0])} to {_shown(ends[1])}, {len(effects)} cases"


def _shown(effect: Effect) -> str:
    """Two digits of the error; an effect that was counted has none, and one whose error is not known says so."""
    if effect.error == 0:
        return f"{effect.value:+.3g} (counted)"
    if math.isinf(effect.error):
        return f"{effect.value:+.3g} (error not known)"
    digits = min(5, max(0, 1 - math.floor(math.log10(effect.error))))
    return f"{effect.value:+.{digits}f} ± {effect.error:.{digits}f}"
