"""The exercise sparse_attention.recycle, "What a patch is worth": its cases and its named mistakes.

Dimension key: N visual tokens, P pixels of a patch, C cells, D width.
"""

from math import log2
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """Fused tokens are means of float32 numbers of size one."""
    if not isinstance(expected, tuple) or len(expected) != 3:
        return close(got, expected)
    return all_near(got, expected, {"importance": 1e-6, "fused tokens": 1e-5, "places": 0.0})


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    names = tuple(map(str, range(len(expected[0]))))
    return compare_bars(torch.as_tensor(got[0]), expected[0], names, "importance of each token")


def _shares(grey: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(grey.long(), 256).double().mean(dim=1)


def _bits(grey: Tensor) -> Tensor:
    return torch.special.entr(_shares(grey)).sum(dim=1) / torch.log(torch.tensor(2.0, dtype=torch.float64))


def _recycle(grey: Tensor, attention: Tensor, alpha: float, tokens: Tensor, cell: Tensor) -> tuple:
    h = _bits(grey)
    soft = h.softmax(dim=0).to(attention.dtype)
    importance = attention + alpha * soft
    weight = importance
    members = _members(cell)
    fused = torch.stack([_mean(weight[some], tokens[some]) for some in members])
    score = importance
    places = torch.stack([some[score[some].argmax()] for some in members])
    return importance, fused, places


def _members(cell: Tensor) -> list[Tensor]:
    """The tokens of each cell, by their numbers."""
    return [(cell == c).nonzero()[:, 0] for c in range(int(cell.max()) + 1)]


def _mean(weight: Tensor, tokens: Tensor) -> Tensor:
    return (weight[:, None] * tokens).sum(dim=0) / weight.sum()


def _logs(grey: Tensor) -> Tensor:
    """As −Σ p log₂ p is written without a thought of p = 0."""
    shares = _shares(grey)
    return -(shares * shares.log2()).sum(dim=1)


def _of_brightness(grey: Tensor) -> Tensor:
    """Pixels used as probabilities, instead of the frequencies of levels."""
    share = grey.double() / grey.double().sum(dim=1, keepdim=True).clamp(min=1e-9)
    return torch.special.entr(share).sum(dim=1) / torch.log(torch.tensor(2.0))


def _of_counts(grey: Tensor) -> Tensor:
    return torch.special.entr(_shares(grey) * grey.shape[1]).sum(dim=1) / torch.log(torch.tensor(2.0))


def _of_softmax(grey: Tensor) -> Tensor:
    share = (grey.double() / 255).softmax(dim=1)
    return torch.special.entr(share).sum(dim=1) / torch.log(torch.tensor(2.0))


def _of_wrapped(grey: Tensor) -> Tensor:
    """Levels made −1 to 1, times 255, cut to 8 bits: v and v + 128 become one."""
    return _bits((2 * grey.long() - 255) % 256)


def _distinct(grey: Tensor) -> Tensor:
    return (_shares(grey) > 0).sum(dim=1).double()


def _recycle_cases(generator: torch.Generator) -> list[Case]:
    def drawn(
        n: int, n_pixels: int, width: int, n_cells: int, alpha: float, stay: int = 3
    ) -> tuple[Tensor, Tensor, float, Tensor, Tensor]:
        """Patches of one level, of a few and of many; attention that differs much."""
        grey = torch.randint(0, 256, (n, n_pixels), generator=generator)
        few = torch.randint(0, 4, (n, n_pixels), generator=generator) * 64
        grey = torch.where(torch.arange(n)[:, None] % 3 == 0, few, grey)
        grey[1::4] = grey[1::4, :1]
        attention = torch.randn(n, generator=generator).exp()
        cell = torch.cat([torch.full((stay,), -1), torch.arange(n - stay) % n_cells])
        return grey, attention, alpha, torch.randn(n, width, generator=generator), _shuffled(cell, generator)

    grey = torch.tensor([[7, 7, 7, 7], [0, 0, 255, 255], [9, 9, 9, 9], [1, 2, 3, 4]])
    by_hand = grey, torch.tensor([0.75, 0.5, 0.25, 1.0]), 0.0, torch.tensor([[4.0], [2.0], [8.0], [1.0]]), None
    by_hand = (*by_hand[:4], torch.tensor([0, -1, 0, 1]))
    given = drawn(12, 16, 5, 3, 2.0)
    return [
        Case("4 tokens by hand, α = 0: tokens 0 and 2 become 5, at place 0", by_hand),
        Case("the same with α = 6: entropies 0, 1, 0 and 2 bits", (*by_hand[:2], 6.0, *by_hand[3:])),
        Case(
            "tokens 0 and 1 in one cell, α = 6: importance 1.25 and 1.85, place 1",
            (*by_hand[:2], 6.0, by_hand[3], torch.tensor([0, 0, -1, 1])),
        ),
        Case("12 tokens, 16 pixels, 3 cells", given),
        Case("a large α: entropy decides", (*given[:2], 40.0, *given[3:])),
        Case("64 pixels, cells of one or two tokens", drawn(9, 64, 4, 4, 3.0, stay=2)),
        Case("one cell, one token kept", drawn(7, 9, 7, 1, 1.5, stay=1)),
        Case("as many tokens as channels as pixels", drawn(16, 16, 16, 5, 4.0)),
    ]


def _shuffled(cell: Tensor, generator: torch.Generator) -> Tensor:
    return cell[torch.randperm(len(cell), generator=generator)]


def _library(grey: Tensor, attention: Tensor, alpha: float, tokens: Tensor, cell: Tensor) -> tuple:
    from course_lib.lessons.sparse_attention.steps import importance_and_fused

    return importance_and_fused(grey, attention, alpha, tokens, cell)


RECYCLE = Exercise(
    id="sparse_attention.recycle",
    title="What a patch is worth",
    difficulty=3,
    minutes=12,
    points=4,
    reference=_recycle,
    cases=_recycle_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_recycle),
    also_right=(
        Variant("patch by patch, with a counter", lambda *given: _counted(*given)),
        Variant(
            "unique levels", lambda *given: _by_entropies(torch.stack([_of_unique(row) for row in given[0]]), *given)
        ),
        Variant(
            "nan_to_num of each level",
            lambda g, *given: _by_entropies(-torch.nan_to_num(_shares(g) * _shares(g).log2()).sum(1), g, *given),
        ),
    ),
    hints=(
        "For each patch: how often does each grey level occur? torch.bincount(row, minlength=256) / P gives the p_v.",
        "importance = attention + α · softmax(entropy), over all N patches. The entropies are in bits.",
        "For each cell c: the members are (cell == c).nonzero(). Weight their tokens by importance / sum, and take "
        "the member of the largest importance as the place.",
    ),
)


def _by_entropies(h: Tensor, grey: Tensor, attention: Tensor, alpha: float, tokens: Tensor, cell: Tensor) -> tuple:
    importance = attention + alpha * h.softmax(dim=0).to(attention.dtype)
    members = _members(cell)
    fused = [_mean(importance[some], tokens[some]) for some in members]
    return importance, torch.stack(fused), torch.stack([some[importance[some].argmax()] for some in members])


def _of_unique(row: Tensor) -> Tensor:
    share = row.unique(return_counts=True)[1].double() / len(row)
    return -(share * share.log2()).sum()


def _counted(grey: Tensor, attention: Tensor, alpha: float, tokens: Tensor, cell: Tensor) -> tuple:
    from collections import Counter

    entropy = [-sum(n / len(row) * log2(n / len(row)) for n in Counter(row).values()) for row in grey.tolist()]
    importance = attention + alpha * torch.softmax(torch.tensor(entropy), dim=0)
    fused, places = [], []
    for c in range(int(cell.max()) + 1):
        members = [i for i, number in enumerate(cell.tolist()) if number == c]
        total = sum(float(importance[i]) for i in members)
        fused.append(sum(float(importance[i]) / total * tokens[i] for i in members))
        places.append(max(members, key=lambda i: float(importance[i])))
    return importance, torch.stack(fused), places
