"""Images for a small vision-language model: digits on a canvas with clutter between them, and questions about them.

scikit-learn's digits (8 × 8 pixels) are placed on 48 × 48 pixels, which are 144 patches of 4 × 4. One quadrant has a
digit for sure, each other one with probability 3/4, and all have a piece of clutter: a digit with shuffled pixels,
which has the same grey levels but no meaning. Each covers four whole patches, so an answer needs at most 16 of 144
tokens.

Dimension key: B canvases, P pixels of a side, N patches, W words of a question, Q questions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from course_lib.attention.small_models.registers import digits

SIDE, PATCH, PIECE, CELL = 48, 4, 8, 12  # pixels: of the canvas, a patch, a digit, and the cell in which one lies
NOTHING = 10  # the answer if a quadrant has no digit; answers 0 to 9 are digits, and numbers
CLUTTER = 11  # the value of a patch of clutter
CORNERS = ("top left", "top right", "bottom left", "bottom right")
QUESTIONS = (*(f"{corner} ?" for corner in CORNERS), "how many ?")
WORDS = [*map(str, range(10)), "nothing", *dict.fromkeys(word for question in QUESTIONS for word in question.split())]


@dataclass(frozen=True)
class Canvases:
    """Images in grey levels 0 to 240, the answer to every question, and the object of each patch."""

    images: UInt8[Tensor, "B P P"]
    answers: Int[Tensor, "B Q"]
    belongs: Int[Tensor, "B N"]  # to a digit 0 to 9, to NOTHING, to CLUTTER


def question_ids() -> Int[Tensor, "Q W"]:
    """Return the words of each question; the answer a is word a."""
    return torch.tensor([[WORDS.index(word) for word in question.split()] for question in QUESTIONS])


def draw(n: int, split: str, seed: int) -> Canvases:
    """Sample canvases of training digits ("train") or of held-out digits ("test").

    Raises:
        ValueError: the split is unknown, or the number of canvases is below 1.
    """
    if split not in ("train", "test") or n < 1:
        raise ValueError(f"got split {split!r}, n={n}; expected 'train' or 'test', and at least one canvas.")
    generator = torch.Generator().manual_seed(seed)
    data = digits(seed=0)  # the same digits are held out for every seed
    pieces, labels = (data.train, data.train_labels) if split == "train" else (data.test, data.test_labels)
    pieces = ((pieces[:, 0] + 1) * 120).round().to(torch.uint8)  # 17 levels, 15 apart
    chosen = torch.randint(len(pieces), (n, 4), generator=generator)
    there = torch.rand(n, 4, generator=generator) < 0.75
    there[torch.arange(n), torch.randint(4, (n,), generator=generator)] = True  # one at least
    answers = labels[chosen].where(there, NOTHING)
    images, belongs = torch.zeros(n, SIDE, SIDE, dtype=torch.uint8), torch.full((n, SIDE, SIDE), NOTHING)
    for corner in range(4):
        cells = torch.rand(n, 4, generator=generator).argsort(dim=1)[:, :2]  # two cells of the quadrant's four
        digit = pieces[chosen[:, corner]] * there[:, corner, None, None]
        clutter = _shuffled(pieces, n, generator)
        for piece, cell, name in ((digit, cells[:, 0], answers[:, corner]), (clutter, cells[:, 1], CLUTTER)):
            where = _somewhere(corner, cell, generator)
            images[where] = piece
            belongs[where] = torch.as_tensor(name).expand(n)[:, None, None].expand_as(piece)
    answers = torch.cat([answers, there.sum(dim=1, keepdim=True)], dim=1)
    return Canvases(images, answers, belongs[:, ::PATCH, ::PATCH].flatten(1))


def _shuffled(pieces: UInt8[Tensor, "N 8 8"], n: int, generator: torch.Generator) -> UInt8[Tensor, "n 8 8"]:
    """Return random digits with shuffled pixels."""
    flat = pieces[torch.randint(len(pieces), (n,), generator=generator)].flatten(1)
    return flat.gather(1, torch.rand(flat.shape, generator=generator).argsort(dim=1)).view(n, PIECE, PIECE)


def _somewhere(corner: int, cell: Int[Tensor, "B"], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the index of 8 × 8 pixels of each canvas, at a random place in a cell of the quadrant."""
    n = len(cell)
    within = torch.randint((CELL - PIECE) // PATCH + 1, (2, n), generator=generator) * PATCH
    top = corner // 2 * SIDE // 2 + cell // 2 * CELL + within[0]
    left = corner % 2 * SIDE // 2 + cell % 2 * CELL + within[1]
    along = torch.arange(PIECE)
    return torch.arange(n)[:, None, None], top[:, None, None] + along[:, None], left[:, None, None] + along
