"""The exercise dejavu.recall, "How good is a prediction": its cases and its named mistakes.

Dimension key: T tokens, F neurons, D width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Both fractions up to rounding."""
    return all_near(got, expected, {"recall": 1e-6, "energy": 1e-6})


def _recall(hidden: Tensor, down: Tensor, active: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    h, d, a, k = hidden.double(), down.double(), active.double(), keep.double()
    found = a * k
    recall = found.sum() / a.sum()
    each = (h * d.norm(dim=0)).square()
    kept = each * k
    energy = kept.sum() / each.sum()
    return recall, energy


def _each(
    dim: int, finish: Callable[[Tensor], Tensor] = torch.mean, least: float = 0.0
) -> Callable[[Tensor, Tensor], Tensor]:
    """The mean of the fractions of single tokens (dim 1), or of single neurons (dim 0)."""
    return lambda part, whole: finish(part.sum(dim) / whole.sum(dim).clamp(min=least))


# Tokens in which nothing is active: as they come, as zeros, left out, as all found.
_MEANS = (
    _each(1),
    _each(1, least=1.0),
    _each(1, least=1e-9),
    _each(1, torch.nanmean),
    _each(1, lambda shares: shares.nan_to_num(1.0).mean()),
    _each(0),
    _each(0, least=1e-9),
    _each(0, least=1.0),
    _each(0, torch.nanmean),
)


def _recall_cases(generator: torch.Generator) -> list[Case]:
    def predicted(worth: Tensor, active: Tensor) -> Tensor:
        """A prediction that finds most of what is active, and takes some that are not."""
        chance = torch.where(active, 0.75, 0.2)
        return torch.rand(worth.shape, generator=generator) < chance

    def weights(width: int, neurons: int) -> Tensor:
        """Neurons of very different lengths."""
        return torch.randn(width, neurons, generator=generator) * (0.2 + 3 * torch.rand(neurons, generator=generator))

    def relu(tokens: int, neurons: int, width: int) -> tuple[Tensor, ...]:
        """Some tokens with many active neurons, most with few, two with none."""
        shift = torch.linspace(1.5, -2.5, tokens)[:, None]
        hidden = (2 * torch.randn(tokens, neurons, generator=generator) + shift).relu()
        hidden[[1, tokens - 1]] = 0
        return hidden, weights(width, neurons), hidden > 0, predicted(hidden, hidden > 0)

    def swiglu(tokens: int, neurons: int, width: int) -> tuple[Tensor, ...]:
        """Values of both signs, of which the larger ones of each token count as active."""
        loud = torch.logspace(-1, 0.7, tokens)[:, None]
        hidden = loud * torch.randn(tokens, neurons, generator=generator)
        active = hidden.abs() > 0.9 * loud
        return hidden, weights(width, neurons), active, predicted(hidden, active)

    by_hand = (
        torch.tensor([[1.0, 5.0, 0.0], [0.0, 0.0, 5.0]]),
        torch.tensor([[3.0, 1.0, 0.0], [4.0, 0.0, 2.0]]),
        torch.tensor([[True, True, False], [False, False, True]]),
        torch.tensor([[True, False, True], [False, True, True]]),
    )
    turned = [tensor.T.contiguous().T for tensor in swiglu(8, 21, 30)]
    return [
        Case("2 tokens, 3 neurons, by hand: 2 of 3 found, 125 of 150", by_hand),
        Case("ReLU: 12 tokens, 37 neurons, width 20, two tokens without any", relu(12, 37, 20)),
        Case("SwiGLU: 10 tokens, 50 neurons, the larger third is active", swiglu(10, 50, 16)),
        Case("as many tokens as neurons as channels", swiglu(9, 9, 9)),
        Case("ReLU: 30 tokens, 12 neurons, width 5", relu(30, 12, 5)),
        Case("not contiguous", tuple(turned)),
    ]


def _library(hidden: Tensor, down: Tensor, active: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.contextual.predictor.scores import scores

    found = scores(keep, active, hidden, down.norm(dim=0))
    return torch.tensor(found.recall), torch.tensor(found.energy)


RECALL = Exercise(
    id="dejavu.recall",
    title="How good is a prediction",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_recall,
    cases=_recall_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_recall),
    also_right=(
        Variant("token by token", lambda *g: _by_tokens(*g)),
        Variant("h² · Σ w²", lambda h, d, a, k: (k[a].float().mean(), _by_squares(h, d, k))),
        Variant("in float64", lambda h, d, a, k: _recall(h.double(), d.double(), a, k)),
        Variant("Python numbers", lambda *g: tuple(x.item() for x in _recall(*g))),
    ),
    hints=(
        "Recall: of all True entries of `active`, over all tokens, which fraction is also True in `keep`? Two sums and "
        "one division.",
        "Neuron i contributes h_i times its column of `down`. The length of column i is down.norm(dim=0)[i].",
        "(hidden * down.norm(dim=0)).square() is (T, F). Its sum where `keep` is True, divided by its sum.",
    ),
)


def _by_tokens(hidden: Tensor, down: Tensor, active: Tensor, keep: Tensor) -> tuple[float, float]:
    n_found = n_active = kept = whole = 0.0
    for values, is_active, is_kept in zip(hidden, active, keep, strict=True):
        added = (down * values).square().sum(dim=0)
        n_found += int(is_kept[is_active].sum())
        n_active += int(is_active.sum())
        kept += float(added[is_kept].sum())
        whole += float(added.sum())
    return n_found / n_active, kept / whole


def _by_squares(hidden: Tensor, down: Tensor, keep: Tensor) -> Tensor:
    column, squares = down.square().sum(dim=0), hidden.square()
    return ((squares * keep) @ column).sum() / (squares @ column).sum()
