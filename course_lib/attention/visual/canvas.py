"""Digits on a canvas, clutter between them, and questions: what a small model looks at.

scikit-learn's digits (8 × 8 pixels) lie on 48 × 48 pixels, which are 144 patches of 4 × 4. A quadrant holds a digit
three times in four, and always a piece of clutter: a digit whose pixels are shuffled. Its patches have as many grey
levels as a digit's and mean nothing.

Dimension key: B canvases, P pixels of a side, W words of a question, Q questions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from course_lib.attention.small_models.registers import digits

SIDE, PATCH, PIECE, CELL = 48, 4, 8, 12  # pixels: of the canvas, a patch, a digit, and the cell in which one lies
STEP = 4  # pixels between the places in a cell: a digit lies on four whole patches
NOTHING = 10  # the answer where a quadrant holds no digit; answers 0 to 9 are digits, and numbers
N_ANSWERS = 11
CORNERS = ("top left", "top right", "bottom left", "bottom right")
QUESTIONS = (*(f"{corner} ?" for corner in CORNERS), "how many ?")
WORDS = [*map(str, range(10)), "nothing", *dict.fromkeys(word for question in QUESTIONS for word in question.split())]


@dataclass(frozen=True)
class Canvases:
    """Images in grey levels 0 to 240, and the answer to every question."""

    images: UInt8[Tensor, "B P P"]
    answers: Int[Tensor, "B Q"]


def question_ids() -> Int[Tensor, "Q W"]:
    """The words of each question; an answer a is word a."""
    return torch.tensor([[WORDS.index(word) for word in question.split()] for question in QUESTIONS])


def draw(n: int, split: str, seed: int) -> Canvases:
    """Canvases of the digits to train on ("train"), or of those that no training sees ("test").

    Raises:
        ValueError: another split, or no canvas.
    """
    if split not in ("train", "test") or n < 1:
        raise ValueError(f"got split {split!r}, n={n}; expected 'train' or 'test', and at least one canvas.")
    generator = torch.Generator().manual_seed(seed)
    data = digits(seed=0)  # which digits are held out is the same for every seed
    pieces, labels = (data.train, data.train_labels) if split == "train" else (data.test, data.test_labels)
    pieces = ((pieces[:, 0] + 1) * 120).round().to(torch.uint8)  # 17 levels, 15 apart
    chosen = torch.randint(len(pieces), (n, 4), generator=generator)
    there = torch.rand(n, 4, generator=generator) < 0.75
    there[torch.arange(n), torch.randint(4, (n,), generator=generator)] = True  # one at least
    images = torch.zeros(n, SIDE, SIDE, dtype=torch.uint8)
    for corner in range(4):
        cells = torch.rand(n, 4, generator=generator).argsort(dim=1)[:, :2]  # two cells of the quadrant's four
        digit = pieces[chosen[:, corner]] * there[:, corner, None, None]
        _put(images, digit, corner, cells[:, 0], generator)
        _put(images, _shuffled(pieces, n, generator), corner, cells[:, 1], generator)
    answers = labels[chosen].where(there, NOTHING)
    return Canvases(images, torch.cat([answers, there.sum(dim=1, keepdim=True)], dim=1))


def _shuffled(pieces: UInt8[Tensor, "N 8 8"], n: int, generator: torch.Generator) -> UInt8[Tensor, "n 8 8"]:
    """Any digits, the pixels of each in another order."""
    flat = pieces[torch.randint(len(pieces), (n,), generator=generator)].flatten(1)
    return flat.gather(1, torch.rand(flat.shape, generator=generator).argsort(dim=1)).view(n, PIECE, PIECE)


def _put(
    images: UInt8[Tensor, "B P P"],
    piece: UInt8[Tensor, "B 8 8"],
    corner: int,
    cell: Int[Tensor, "B"],
    generator: torch.Generator,
) -> None:
    """In place: each piece somewhere in a cell of the quadrant."""
    n = len(images)
    within = torch.randint((CELL - PIECE) // STEP + 1, (2, n), generator=generator) * STEP
    top = corner // 2 * SIDE // 2 + cell // 2 * CELL + within[0]
    left = corner % 2 * SIDE // 2 + cell % 2 * CELL + within[1]
    along = torch.arange(PIECE)
    rows, columns = top[:, None, None] + along[:, None], left[:, None, None] + along
    images[torch.arange(n)[:, None, None], rows, columns] = piece
