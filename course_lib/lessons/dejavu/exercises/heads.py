"""The exercise dejavu.heads, "Which heads matter": its cases and its named mistakes.

Dimension key: T tokens, D width, H query heads, d size of a head.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

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
        """Heads of large values that meet small weights, and others for which it is the other way round."""
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
    mistakes=(
        Mistake(
            "before the output projection",
            "This is the length of what each head gives, before the output projection. Large values may meet small "
            "weights there: the residual stream gets the head's part only through its columns of `weight`.",
            lambda a, w, n: _cut(a, n).norm(dim=2),
        ),
        Mistake(
            "heads interleaved",
            "Columns h, h + H, h + 2H, … were taken for a head. Its d entries lie side by side: the axis of the heads "
            "comes first, (H, d).",
            lambda a, w, n: _parts(a, w, n, _turn_about, _turn_about).norm(dim=2),
        ),
        Mistake(
            "before the output projection, interleaved",
            "Two things are wrong. Columns h, h + H, h + 2H, … were taken for a head; its d entries lie side by side. "
            "And this is the length of what each head gives, before the output projection.",
            lambda a, w, n: _turn_about(a, n).norm(dim=2),
        ),
        Mistake(
            "heads and columns of the weight do not belong together",
            "What a head gives and its columns of `weight` were cut in two different ways, so that entries meet the "
            "weights of another head.",
            lambda a, w, n: _parts(a, w, n, _turn_about).norm(dim=2),
            also=(
                lambda a, w, n: _parts(a, w, n, _cut, _turn_about).norm(dim=2),
                lambda a, w, n: _parts(a, w.flip(1), n).norm(dim=2),
            ),
        ),
        Mistake(
            "the output cut into heads",
            "The output was projected first and then cut into H pieces. Every channel of it holds something of all "
            "heads: cut before the projection.",
            lambda a, w, n: _cut(a @ w.T, n).norm(dim=2),
            also=(lambda a, w, n: _cut(a @ w, n).norm(dim=2),),
        ),
        Mistake(
            "weight turned round",
            "The weight is (D, H d), as in nn.Linear: a head has columns of it, and the output is heads @ weight.T. "
            "Here a head has rows.",
            lambda a, w, n: _parts(a, w.T, n).norm(dim=2),
            also=(lambda a, w, n: _by_rows(a, w, n),),
        ),
        Mistake(
            "size and number of heads exchanged",
            "n_heads says how many heads there are. Here it was taken for how many entries a head has.",
            lambda a, w, n: _norms(a, w, a.shape[1] // n),
        ),
        Mistake(
            "before the output projection, size and number exchanged",
            "Two things are wrong. n_heads says how many heads there are, not how many entries a head has. And this is "
            "the length of what each head gives, before the output projection.",
            lambda a, w, n: _cut(a, a.shape[1] // n).norm(dim=2),
        ),
        Mistake(
            "product of two lengths",
            "The length of the head's values was multiplied by the norm of its weights. That is the most that it could "
            "be; how long the product is depends on the directions: multiply first.",
            lambda a, w, n: _cut(a, n).norm(dim=2) * _cut(w, n).norm(dim=(0, 2)),
            also=(lambda a, w, n: _cut(a, n).norm(dim=2) * torch.linalg.matrix_norm(_cut(w, n).transpose(0, 1), 2),),
        ),
        Mistake(
            "entry by entry",
            "Each entry was multiplied by the length of its column of `weight`, and these were added up or their norm "
            "taken. The columns point in different directions, so their sum is shorter: add the vectors first, then "
            "take the norm.",
            lambda a, w, n: (_cut(a, n) * _cut(w, n).norm(dim=0)).norm(dim=2),
            also=(lambda a, w, n: (_cut(a, n).abs() * _cut(w, n).norm(dim=0)).sum(dim=2),),
        ),
        Mistake(
            "over the tokens",
            "The norm, or a mean of the norms, runs over the tokens. Every token has numbers of its own: the norm runs "
            "over the D channels of the output, and nothing else.",
            lambda a, w, n: _parts(a, w, n).norm(dim=0),
            also=(
                lambda a, w, n: _parts(a, w, n).norm(dim=(0, 2)),
                lambda a, w, n: _each(_parts(a, w, n).norm(dim=(0, 2)), a),
                lambda a, w, n: _each(_norms(a, w, n).mean(dim=0), a),
                lambda a, w, n: _norms(a, w, n).mean(dim=0),
            ),
        ),
        Mistake(
            "over the heads",
            "The norm runs over the heads, or over the output of all heads together. It runs over the D channels of "
            "each head's part, and every head keeps a number.",
            lambda a, w, n: _parts(a, w, n).norm(dim=1),
            also=(lambda a, w, n: _parts(a, w, n).norm(dim=(1, 2)), lambda a, w, n: (a @ w.T).norm(dim=1)),
        ),
        Mistake(
            "without the root",
            "These are squares of the lengths: the root is missing.",
            _of(lambda p: p.square().sum(dim=2)),
        ),
        Mistake(
            "mean over the channels",
            "The mean over the channels was taken. A length is the root of the sum of squares.",
            _of(lambda p: p.square().mean(dim=2).sqrt()),
            also=(
                _of(lambda p: p.square().mean(dim=2)),
                _of(lambda p: p.abs().mean(dim=2)),
                _of(lambda p: p.mean(dim=2)),
            ),
        ),
        Mistake(
            "another length",
            "A sum of absolute values, or the largest of them, is another length. Asked for is the L2 norm.",
            _of(lambda p: p.abs().sum(dim=2)),
            also=(_of(lambda p: p.abs().amax(dim=2)),),
        ),
        Mistake(
            "entries added up",
            "The entries of each part were added with their signs, so that they cancel.",
            _of(lambda p: p.sum(dim=2)),
            also=(_of(lambda p: p.sum(dim=2).abs()),),
        ),
        Mistake(
            "shares",
            "The lengths were divided by something (the length of the whole output, their sum over the heads, the "
            "largest), or put through a softmax. The exercise asks for the lengths themselves.",
            _of(lambda p: p.norm(dim=2) / p.norm(dim=2).sum(dim=1, keepdim=True)),
            also=(
                _of(lambda p: p.norm(dim=2) / p.sum(dim=1).norm(dim=1, keepdim=True)),
                _of(lambda p: p.norm(dim=2).softmax(dim=1)),
                _of(lambda p: p.norm(dim=2) / p.norm(dim=(1, 2))[:, None]),
                _of(lambda p: p.norm(dim=2) / p.norm(dim=2).amax(dim=1, keepdim=True)),
            ),
        ),
        Mistake(
            "what is left without the head",
            "This is the length of the output without the head, or how much shorter or longer it gets. Asked for is "
            "the length of what is missing: a part that points across the others is missing too.",
            _of(lambda p: (p.sum(dim=1, keepdim=True) - p).norm(dim=2)),
            also=(
                _of(lambda p: p.sum(dim=1).norm(dim=1)[:, None] - (p.sum(dim=1, keepdim=True) - p).norm(dim=2)),
                _of(lambda p: (p.sum(dim=1).norm(dim=1)[:, None] - (p.sum(dim=1, keepdim=True) - p).norm(dim=2)).abs()),
            ),
        ),
        Mistake(
            "along the output",
            "This is how far each part points along the whole output. A part that points across it counts with its "
            "length too.",
            _of(lambda p: (p * p.sum(dim=1, keepdim=True)).sum(dim=2)),
            also=(
                _of(lambda p: torch.nn.functional.normalize(p.sum(dim=1, keepdim=True), dim=2).mul(p).sum(dim=2)),
                _of(lambda p: torch.cosine_similarity(p, p.sum(dim=1, keepdim=True), dim=2)),
            ),
        ),
        Mistake(
            "this head and those before it",
            "The parts of all heads up to this one were added before the norm. Each is taken by itself.",
            _up_to,
        ),
        Mistake(
            "the weights alone",
            "Only the weights were looked at: every token gets the same.",
            lambda a, w, n: _each(_cut(w, n).norm(dim=(0, 2)), a),
            also=(lambda a, w, n: _cut(w, n).norm(dim=(0, 2)),),
        ),
        Mistake(
            "the parts themselves",
            "Every head's part still has its D channels: the norm over them is missing.",
            _of(lambda p: p),
            also=(_of(lambda p: p.flatten(1)),),
        ),
        Mistake(
            "heads first",
            "The axes are exchanged: tokens come first, then heads.",
            lambda a, w, n: _norms(a, w, n).T,
        ),
    ),
    also_right=(
        Variant("head by head", lambda a, w, n: _by_slices(a, w, n)),
        Variant("the others set to zero", lambda a, w, n: _with_zeros(a, w, n)),
        Variant("in float64", lambda a, w, n: _norms(a.double(), w.double(), n)),
        Variant("the root of the sum of squares", _of(lambda p: (p * p).sum(dim=-1) ** 0.5)),
    ),
    hints=(
        "heads @ weight.T is a sum over H d columns. Which of them belong to one head? Its part of the output is the "
        "sum over these alone.",
        "Both cut in the same way: heads into (T, H, d), weight into (D, H, d). A product summed over d is (T, H, D), "
        "one part for each head.",
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
