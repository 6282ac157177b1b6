"""Fictional residents of fictional cities: passages that state where each of them lives, and questions about them.

First check with a gate whether a model can answer the questions *with only* the sentence in question. If it cannot, its
errors do not show that the other sentences confuse it.
"""

from dataclasses import dataclass
from itertools import product

import torch

BEGINNINGS = (
    "Bel",
    "Cor",
    "Dar",
    "Fen",
    "Gal",
    "Hol",
    "Jor",
    "Kel",
    "Lor",
    "Mar",
    "Nor",
    "Per",
    "Ros",
    "Sil",
    "Tal",
    "Vel",
)
NAME_ENDS = ("ano", "etta", "ico", "ina", "uno")
CITY_ENDS = ("burg", "ford", "haven", "mont", "stad", "wick")
WORK = ("baker", "carpenter", "dentist", "gardener", "judge", "librarian", "nurse", "painter", "tailor", "teacher")
MOST_RESIDENTS = len(WORK)


@dataclass(frozen=True)
class Passage:
    """Sentences, a question about one of them, and the right answer among all cities of the passage."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    key: int  # the sentence that answers it
    choices: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    @property
    def key_sentence(self) -> str:
        return self.sentences[self.key]


def passages(n: int, n_residents: int = 6, seed: int = 0) -> list[Passage]:
    """Make n passages with one sentence per resident; no name, city or work occurs twice in a passage.

    Another seed gives other combinations of names and cities, for example for a development set.

    Raises:
        ValueError: no passages, fewer than two residents, or more than there are kinds of work.
    """
    if n < 1 or not 2 <= n_residents <= MOST_RESIDENTS:
        raise ValueError(f"got n={n}, n_residents={n_residents}; expected 1 or more, with 2 to {MOST_RESIDENTS}.")
    generator = torch.Generator().manual_seed(seed)
    return [_passage(n_residents, generator) for _ in range(n)]


def _passage(n: int, generator: torch.Generator) -> Passage:
    names, cities = _drawn(NAME_ENDS, n, generator), _drawn(CITY_ENDS, n, generator)
    work = [WORK[i] for i in torch.randperm(len(WORK), generator=generator)[:n].tolist()]
    key = int(torch.randint(n, (1,), generator=generator))
    return Passage(
        sentences=tuple(f"{a} works as a {b} and lives in {c}." for a, b, c in zip(names, work, cities, strict=True)),
        question=f"In which city does {names[key]} live?",
        answer=cities[key],
        key=key,
        choices=tuple(cities),
    )


def _drawn(ends: tuple[str, ...], n: int, generator: torch.Generator) -> list[str]:
    words = ["".join(parts) for parts in product(BEGINNINGS, ends)]
    return [words[i] for i in torch.randperm(len(words), generator=generator)[:n].tolist()]
