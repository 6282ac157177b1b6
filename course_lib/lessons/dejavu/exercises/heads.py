"""The exercise dejavu.heads, "Which heads matter": its cases and its named mistakes.

Dimension key: T tokens, D width, H query heads, d size of a head.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor, int], Tensor]


def _of_one_token(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    """The heads of the token that is furthest off."""
    from course_lib.lessons.common.answers import compare_bars

    got = torch.as_tensor(got).double()
    token = int((got - expected.double()).abs().sum(dim=1).argmax())
    fig = compare_bars(got[token], expected[token], tuple(map(str, range(expected.shape[1]))), "length of its part")
    fig.axes[0].set_xlabel(f"head, at token {token}")
    return fig


def _cut(matrix: Tensor, n_heads: int) -> Tensor:
    """Columns by head, in the order of the projection: (…, H, d)."""
    return matrix.unflatten(1, (n_heads, -1))


def _turn_about(matrix: Tensor, n_heads: int) -> Tensor:
    """Columns h, h + H, … taken for head h: (…, H, d)."""
    return matrix.unflatten(1, (-1, n_heads)).mT


def _parts(
    heads: Tensor, weight: Tensor, n_heads: int, of_heads: Callable = _cut, of_weight: Callable = _cut
) -> Tensor:
    """What each head adds to the output, (T, H, D)."""
    return torch.einsum("thi,dhi->thd", of_heads(heads, n_heads), of_weight(weight, n_heads))


def _norms(heads: Tensor, weight: Tensor, n_heads: int) -> Tensor:
    return _parts(heads, weight, n_heads).norm(dim=2)


def _of(change: Callable[[Tensor], Tensor]) -> Answer:
    """The answer with another number for the parts (T, H, D)."""
    return lambda a, w, n: change(_parts(a, w, n))


def _each(tokens: Tensor, like: Tensor) -> Tensor:
    """The same for every token."""
    return tokens.expand(len(like), -1)


def _up_to(heads: Tensor, weight: Tensor, n_heads: int) -> Tensor:
    return _parts(heads, weight, n_heads).cumsum(dim=1).norm(dim=2)


def _heads_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_heads: int, size: int, width: int) -> tuple[Tensor, Tensor, int]:
        """Heads with large values and small weights, and the reverse."""
        loud = torch.exp(torch.randn(n_heads, 1, generator=generator))
        heads = torch.randn(n_tokens, n_heads, size, generator=generator) * loud
        weight = torch.randn(width, n_heads, size, generator=generator) * 1.5 / loud
        return heads.flatten(1), weight.flatten(1), n_heads

    weight = torch.tensor([[3.0, 0.0, 0.0, 1.0], [4.0, 0.0, 0.0, 0.0]])
    by_hand = torch.tensor([[1.0, 9.0, 0.0, 2.0], [-2.0, 0.0, 5.0, -1.0]]), weight, 2
    heads, turned, n_heads = drawn(9, 3, 6, 18)
    return [
        Case("2 tokens, 2 heads of 2, by hand: 5, 2 and 10, 1", by_hand),
        Case("13 tokens, 3 heads of 5, width 7", drawn(13, 3, 5, 7)),
        Case("as many heads as entries in each, width 16", drawn(10, 4, 4, 16)),
        Case("as many tokens as channels, 6 heads of 2", drawn(12, 6, 2, 12)),
        Case("heads of one entry each", drawn(8, 7, 1, 7)),
        Case("not contiguous", (heads.T.contiguous().T, turned.T.contiguous().T, n_heads)),
    ]


def _library(heads: Tensor, weight: Tensor, n_heads: int) -> Tensor:
    from course_lib.contextual.attention.parts import SeenHeads, gram_of_heads

    outputs, gram = heads.unflatten(1, (n_heads, -1)), gram_of_heads(weight, n_heads)
    return SeenHeads(x=heads, earlier={}, outputs=outputs, gram=gram).part_norms


HEADS = Exercise(
    id="dejavu.heads",
    title="Which heads matter",
    difficulty=3,
    minutes=9,
    points=3,
    reference=_norms,
    cases=_heads_cases,
    picture=_of_one_token,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("head by head", lambda a, w, n: _by_slices(a, w, n)),
        Variant("the others set to zero", lambda a, w, n: _with_zeros(a, w, n)),
        Variant("in float64", lambda a, w, n: _norms(a.double(), w.double(), n)),
        Variant("the root of the sum of squares", _of(lambda p: (p * p).sum(dim=-1) ** 0.5)),
    ),
    hints=(
        "heads @ weight.T is a sum over H d columns. Which of them belong to one head? Its contribution is the "
        "sum over these only.",
        "Divide both in the same way: heads into (T, H, d), weight into (D, H, d). A product summed over d is "
        "(T, H, D), one part for each head.",
        'torch.einsum("thi,dhi->thd", …) makes the parts; then the norm over the last axis. A loop over heads with '
        "slices does it too.",
    ),
)


def _by_slices(heads: Tensor, weight: Tensor, n_heads: int) -> Tensor:
    size = heads.shape[1] // n_heads
    places = [slice(h * size, (h + 1) * size) for h in range(n_heads)]
    return torch.stack([(heads[:, at] @ weight[:, at].T).norm(dim=1) for at in places], dim=1)


def _by_rows(heads: Tensor, weight: Tensor, n_heads: int) -> Tensor:
    size = heads.shape[1] // n_heads
    places = [slice(h * size, (h + 1) * size) for h in range(n_heads)]
    return torch.stack([(heads[:, at] @ weight[at]).norm(dim=1) for at in places], dim=1)


def _with_zeros(heads: Tensor, weight: Tensor, n_heads: int) -> Tensor:
    owner = torch.arange(heads.shape[1]) // (heads.shape[1] // n_heads)
    alone = [heads.masked_fill(owner != h, 0) @ weight.T for h in range(n_heads)]
    return torch.linalg.vector_norm(torch.stack(alone), dim=2).T
