"""The exercise sparse_attention.divergence, "How far apart two distributions are": its cases and its named mistakes.

Dimension key: H heads, N blocks of keys.
"""

from collections.abc import Callable
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.special import xlogy

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import near

Answer = Callable[[Tensor, Tensor], Any]
ROUNDING = 2e-6  # of a sum of float32 terms of both signs, each below one


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    return near(got, expected, ROUNDING) if isinstance(expected, Tensor) else close(got, expected)


def _bars(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    names = tuple(f"head {h}" for h in range(len(expected)))
    return compare_bars(torch.as_tensor(got), expected, names, "divergence (nats)")


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    p, q = p.double(), q.double()
    m = (p + q) / 2
    return ((xlogy(p, p) - xlogy(p, m) + xlogy(q, q) - xlogy(q, m)).sum(dim=1) / 2).clamp(min=0)


def _then(change: Callable[[Tensor], Tensor]) -> Answer:
    return lambda p, q: change(_divergence(p, q))


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """Σ p log(p/q), where p is not zero."""
    return (xlogy(p, p) - xlogy(p, q)).sum(dim=1)


def _terms(p: Tensor, m: Tensor) -> Tensor:
    """p log(p/m), 0 for p = 0."""
    return xlogy(p, p) - xlogy(p, m)


def _kl_terms(p: Tensor, q: Tensor) -> Tensor:
    return p * (p / q).log()


def _filled(terms: Tensor) -> Tensor:
    """0 for what is no finite number."""
    return terms.nan_to_num(nan=0, posinf=0, neginf=0)


def _quotient(p: Tensor, q: Tensor) -> Tensor:
    m = (p + q) / 2
    return ((p * (p / m).log() + q * (q / m).log()).sum(dim=1)) / 2


def _with_middle(middle: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    return lambda p, q: (_terms(p, middle(p, q)) + _terms(q, middle(p, q))).sum(dim=1) / 2


def _shifted(by: float) -> Answer:
    """A small number added to every probability."""
    return lambda p, q: _quotient(p + by, q + by)


def _entropy(p: Tensor) -> Tensor:
    return -xlogy(p, p).sum(dim=1)


def _divergence_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_heads: int, n: int, sharp: float = 2.0, zeros: float = 0.0) -> tuple[Tensor, Tensor]:
        both = sharp * torch.randn(2, n_heads, n, generator=generator)
        gone = torch.rand(2, n_heads, n, generator=generator) < zeros
        gone[..., 0] = False
        p, q = both.masked_fill(gone, -torch.inf).softmax(dim=-1)
        return p, q

    by_hand = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.75, 0.25]]), torch.tensor([[0.5, 0.5], [0.0, 1.0], [0.25, 0.75]])
    p, _ = drawn(4, 8)
    apart = torch.zeros(2, 3, 10)
    apart[0, :, :4], apart[1, :, 4:] = drawn(3, 4)[0], drawn(3, 6)[0]
    turned = [each.T.contiguous().T for each in drawn(5, 9, zeros=0.3)]
    return [
        Case("3 heads by hand: the same, nothing shared, and in between", by_hand),
        Case("5 heads, 12 blocks, none of which is 0", drawn(5, 12)),
        Case("6 heads, half of the blocks at 0, not always the same ones", drawn(6, 16, zeros=0.5)),
        Case("a distribution against itself and against others", (p, p[torch.tensor([0, 2, 1, 3])])),
        Case("nothing shared", tuple(apart)),
        Case("as many heads as blocks", drawn(7, 7, 3.0, 0.2)),
        Case("not contiguous", tuple(turned)),
    ]


def _library(p: Tensor, q: Tensor) -> Tensor:
    from course_lib.attention.prefill.divergence import jensen_shannon

    return jensen_shannon(p, q)


DIVERGENCE = Exercise(
    id="sparse_attention.divergence",
    title="How far apart two distributions are",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_divergence,
    cases=_divergence_cases,
    agree=_agree,
    picture=_bars,
    library=_library,
    trivial=(Trivial("returning log 2 everywhere", lambda p, q: torch.full((len(p),), log(2))),),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("by entropies", lambda p, q: _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2),
        Variant("in loops", lambda p, q: _in_loops(p, q)),
        Variant(
            "a quotient where there is one",
            lambda p, q: sum(
                torch.where(x > 0, x * (2 * x / (p + q)).log(), 0).sum(dim=1) / 2 for x in (p.double(), q.double())
            ),
        ),
        Variant(
            "nan_to_num of each term",
            lambda p, q: sum(torch.nan_to_num(x * (2 * x / (p + q)).log()).sum(dim=1) / 2 for x in (p, q)),
        ),
    ),
    hints=(
        "Make m first: it is 0 where both are, and only there. Then each of the two sums is a Kullback–Leibler "
        "divergence from m.",
        "What is x · log(x / m) in torch for x = 0, and for x = m = 0? And what should it be? torch.where says so.",
        "Over blocks, not over heads, and half of the two sums. By hand: nothing shared gives log 2 = 0.693.",
    ),
)


def _in_loops(p: Tensor, q: Tensor) -> list[float]:
    found = []
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        pairs = [(x, (x + y) / 2) for x, y in [*zip(a, b, strict=True), *zip(b, a, strict=True)]]
        found.append(sum(x * log(x / m) for x, m in pairs if x > 0) / 2)
    return found
