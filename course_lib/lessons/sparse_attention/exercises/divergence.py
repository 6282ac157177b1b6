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
from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial, Variant
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
    mistakes=(
        Mistake(
            "0 · log 0 is not a number",
            "Where a probability is 0 this is 0 times −∞, which is NaN, and so is the whole sum; where both are 0, so "
            "is m, and 0/0 is NaN too. The limit of x log x for x → 0 is 0: such a block adds nothing. (NaN < τ is "
            "False, so a rule built on this decides without saying so.)",
            _quotient,
            also=(
                lambda p, q: _quotient(p, q).sqrt(),
                lambda p, q: (
                    (p * p.log() - p * ((p + q) / 2).log() + q * q.log() - q * ((p + q) / 2).log()).sum(dim=1) / 2
                ),
                lambda p, q: (xlogy(p, 2 * p / (p + q)) + xlogy(q, 2 * q / (p + q))).sum(dim=1) / 2,
            ),
        ),
        Mistake(
            "one of the two sums",
            "Only one of Σ p log(p/m) and Σ q log(q/m) is here. The divergence is the mean of both, the same whichever "
            "way round p and q are given.",
            lambda p, q: _terms(p, (p + q) / 2).sum(dim=1),
            also=(
                lambda p, q: _terms(q, (p + q) / 2).sum(dim=1),
                lambda p, q: _terms(p, (p + q) / 2).sum(dim=1) / 2,
                lambda p, q: _terms(q, (p + q) / 2).sum(dim=1) / 2,
            ),
        ),
        Mistake(
            "compared with each other",
            "This is the Kullback–Leibler divergence of p and q, or the mean or sum of both directions. It is infinite "
            "where one is 0 and the other is not. Both are compared with their mean m instead.",
            _kl,
            also=(
                lambda p, q: _kl(q, p),
                lambda p, q: (_kl(p, q) + _kl(q, p)) / 2,
                lambda p, q: _kl(p, q) + _kl(q, p),
                lambda p, q: torch.where((p > 0) & (q > 0), p * (p / q).log(), 0).sum(dim=1),
                lambda p, q: (p * (p / q).log()).sum(dim=1),
            ),
        ),
        Mistake(
            "the wrong way round",
            "m is compared with p and with q: Σ m log(m/p) is infinite wherever p is 0. It is p that weighs the "
            "terms, and p/m of which the logarithm is taken.",
            lambda p, q: (_kl((p + q) / 2, p) + _kl((p + q) / 2, q)) / 2,
            also=(
                lambda p, q: (_filled(_kl_terms((p + q) / 2, p)) + _filled(_kl_terms((p + q) / 2, q))).sum(dim=1) / 2,
            ),
        ),
        Mistake(
            "half forgotten",
            "Twice too large: the two sums are averaged, and here they are added.",
            _then(lambda d: 2 * d),
        ),
        Mistake(
            "halved twice",
            "Half of what it should be. m is the mean of p and q, and the divergence the mean of the two sums: one "
            "half each.",
            _then(lambda d: d / 2),
        ),
        Mistake(
            "mean not halved",
            "m is p + q here, which sums to 2. It is their mean.",
            _with_middle(lambda p, q: p + q),
            also=(lambda p, q: _quotient(p, q) - log(2),),
        ),
        Mistake(
            "geometric mean",
            "m = √(pq) here, which is 0 wherever either is. It is the mean (p + q) / 2.",
            _with_middle(lambda p, q: (p * q).sqrt()),
        ),
        Mistake(
            "square root",
            "FlexPrefill compares the square root with τ. Here the divergence itself is asked for.",
            _then(torch.sqrt),
        ),
        Mistake(
            "not in nats",
            "The logarithm has base 2 or 10 here. With the natural logarithm, in nats, the largest value is log 2 = "
            "0.693.",
            _then(lambda d: d / log(2)),
            also=(_then(lambda d: d / log(10)),),
        ),
        Mistake(
            "square root, in bits",
            "This is the square root of the divergence in bits, the Jensen–Shannon distance of some libraries. Asked "
            "for is the divergence itself, with the natural logarithm.",
            _then(lambda d: (d / log(2)).sqrt()),
        ),
        Mistake(
            "wrong sign",
            "Negative: a divergence is 0 or more. p log(p/m), not p log(m/p).",
            _then(torch.neg),
        ),
        Mistake(
            "mean over the blocks",
            "This was divided by the number of blocks. Probabilities weigh the terms already: sum them.",
            lambda p, q: _divergence(p, q) / p.shape[1],
            also=(lambda p, q: 2 * _divergence(p, q) / p.shape[1],),
        ),
        Mistake(
            "along the wrong axis",
            "The sum goes over heads. Each head has a distribution over blocks, dim=1, and gets a number.",
            lambda p, q: _divergence(p.T, q.T),
        ),
        Mistake(
            "all heads together",
            "One number for all heads. Each head is judged by itself.",
            lambda p, q: _divergence(p, q).sum(),
            also=(lambda p, q: _divergence(p, q).mean(), lambda p, q: _divergence(p, q).max()),
        ),
        Mistake(
            "a small number added",
            "Something was added to every probability so that no logarithm is infinite, and it is large enough to move "
            "the result. Leave a block of probability 0 out instead.",
            _shifted(1e-3),
            also=(_shifted(1e-2), _shifted(1e-4)),
        ),
        Mistake(
            "blocks that one of them lacks left out",
            "A block where either has probability 0 counts for nothing here. If p is 0 and q is not, q log(q/m) = "
            "q log 2 is still there: it is just where they differ.",
            lambda p, q: torch.where((p > 0) & (q > 0), _terms(p, (p + q) / 2) + _terms(q, (p + q) / 2), 0).sum(1) / 2,
        ),
        Mistake(
            "another distance",
            "This is another measure of how far apart they are, for example the absolute or squared difference, a "
            "cosine, or the overlap. Use the formula with logarithms.",
            lambda p, q: (p - q).abs().sum(dim=1) / 2,
            also=(
                lambda p, q: (p - q).abs().sum(dim=1),
                lambda p, q: (p - q).square().sum(dim=1),
                lambda p, q: (p - q).norm(dim=1),
                lambda p, q: 1 - torch.cosine_similarity(p, q, dim=1),
                lambda p, q: (1 - (p * q).sqrt().sum(dim=1)).clamp(min=0).sqrt(),
            ),
        ),
    ),
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
