"""The exercise dejavu.importance, "Which neurons matter": its cases and its named mistakes.

Dimension key: T tokens, D width, F neurons, of which k are kept.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Score = Callable[[Tensor, Tensor], Tensor]
Answer = Callable[[Tensor, Tensor, int], Tensor]


def _agree_on_worth(got: Any, expected: Tensor, case: Case) -> str | None:
    """The same mask, or in each row as many neurons of equal worth up to rounding: which of equal ones is free."""
    difference = close(got, expected)
    got, problem = tensor_like(got, expected)
    if not difference or problem or not _is_mask(got) or not _is_mask(expected):
        return difference
    counts = [keep.bool().sum(dim=1) for keep in (got, expected)]
    different = (counts[0] != counts[1]).nonzero().flatten().tolist()
    if different:
        return "token {}: got {} neurons, expected {}".format(different[0], *(int(n[different[0]]) for n in counts))
    worth = _missing(case)
    kept = [worth.masked_fill(~keep.bool(), torch.inf).sort(dim=1).values for keep in (got, expected)]
    same = torch.isclose(*kept, rtol=1e-5, atol=0)  # a product of float32 is off by 1e-7 or so
    return None if same.all() else difference


def _is_mask(values: Tensor) -> bool:
    return values.ndim == 2 and bool(((values == 0) | (values == 1)).all())


def _missing(case: Case) -> Tensor:
    """By how much the output moves, squared, when a neuron is taken out of it: (T, F)."""
    hidden, down = (x.double() for x in case.arguments[:2])
    return torch.stack([torch.outer(h, w).square().sum(1) for h, w in zip(hidden.T, down.T, strict=True)], dim=1)


def _as_masks(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.masks import compare_masks

    fig = compare_masks(got, expected, score=_missing(case))
    for panel in fig.axes:
        panel.set_xlabel("neuron")
    fig.axes[0].set_ylabel("token")
    return fig


def _length(hidden: Tensor, down: Tensor) -> Tensor:
    """Of h_i w_i, (T, F)."""
    return hidden.abs() * down.norm(dim=0)


def _best(score: Tensor, k: int, dim: int = 1) -> Tensor:
    """True for the k highest along an axis."""
    return torch.zeros(score.shape, dtype=torch.bool).scatter(dim, score.topk(k, dim=dim).indices, True)


def _by(score: Score) -> Answer:
    """The answer with another score, (hidden, down) -> (T, F) or one for all tokens."""
    return lambda hidden, down, k: _best(score(hidden, down).expand_as(hidden), k)


def _of_all(hidden: Tensor, down: Tensor, k: int) -> Tensor:
    """The best pairs of a token and a neuron, wherever they are."""
    worth = _length(hidden, down)
    return _best(worth.reshape(1, -1), k * len(worth)).reshape(worth.shape)


def _reach(worth: Tensor, k: int) -> Tensor:
    """All that reach the k-th best of their row."""
    return worth >= worth.topk(k, dim=1).values[:, -1:]


def _importance_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_neurons: int, width: int) -> tuple[Tensor, Tensor]:
        """Neurons with large values and short columns, and the reverse."""
        scale = torch.exp(torch.randn(n_neurons, generator=generator))
        hidden = torch.randn(n_tokens, n_neurons, generator=generator) * scale
        far = torch.exp(torch.randn(n_neurons, generator=generator)) / scale
        return hidden, torch.randn(width, n_neurons, generator=generator) * far

    down = torch.tensor([[3.0, 0.0, 0.0, 0.6], [4.0, 1.0, 2.0, 0.8]])
    by_hand = torch.tensor([[1.0, -4.0, 1.4, 3.0], [-0.5, 3.0, 2.0, -1.0]]), down
    fires = drawn(12, 20, 9)
    whole = torch.randint(-2, 3, (15, 18), generator=generator).float()
    signs = torch.randint(0, 2, (4, 18), generator=generator) * 2.0 - 1
    turned = [x.T.contiguous().T for x in drawn(7, 14, 10)]
    return [
        Case("2 tokens, 4 neurons, by hand: 5, 4, 2.8, 3 and 2.5, 3, 4, 1", (*by_hand, 2)),
        Case("17 tokens, 6 of 23 neurons", (*drawn(17, 23, 11), 6)),
        Case("as many tokens as neurons as channels", (*drawn(12, 12, 12), 5)),
        Case("more than are active, after a ReLU", (fires[0].relu(), fires[1], 13)),
        Case("equal lengths", (whole, signs, 7)),
        Case("a single neuron per token", (*drawn(9, 16, 16), 1)),
        Case("not contiguous", (*turned, 4)),
    ]


def _library(hidden: Tensor, down: Tensor, k: int) -> Tensor:
    from course_lib.contextual.neurons import Neurons
    from course_lib.sparsity.ranking import keep_highest

    neurons = Neurons(gate=None, up=down.T, down=down, activation="relu")
    return keep_highest(neurons.importance(hidden), hidden.shape[1] - k)


IMPORTANCE = Exercise(
    id="dejavu.importance",
    title="Which neurons matter",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_by(_length),
    cases=_importance_cases,
    agree=_agree_on_worth,
    picture=_as_masks,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("squares of both", _by(lambda h, w: h.square() * w.square().sum(dim=0))),
        Variant("the parts themselves", _by(lambda h, w: (h[:, None] * w).norm(dim=1))),
        Variant("by ranks", lambda h, w, k: _length(h, w).argsort(dim=1).argsort(dim=1) >= h.shape[1] - k),
        Variant("the last of equal ones, as 0 and 1", lambda h, w, k: _best(_length(h, w).flip(1), k).flip(1).int()),
        Variant("in float64", lambda h, w, k: _best(_length(h.double(), w.double()), k)),
    ),
    hints=(
        "The output is a sum with one vector for each neuron: its value times its column of `down`. This vector is "
        "missing when the neuron is left out. How long is it?",
        "The length of h_i w_i is |h_i| times the length of w_i, (T, F). topk(k, dim=1).indices are the positions of "
        "the longest in each row.",
        "torch.zeros_like(hidden, dtype=torch.bool).scatter(1, positions, True)",
    ),
)
