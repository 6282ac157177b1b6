"""Lesson 08: the exercises on attention sinks, their cases and their named mistakes.

Dimension key: L layers, H heads, Q queries, N tokens in the cache, T tokens of a text, D size of a head.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.sinks.figures import compare_slots

LESSON = "08 Attention sinks"


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _whole(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=generator))


def _causal(generator: torch.Generator, layers: int, heads: int, n: int, pull: float) -> Tensor:
    """Softmax rows of queries that see what came before, the first token favoured by `pull`."""
    logits = 1.5 * _randn(generator, layers, heads, n, n)
    logits[..., 0] += pull * torch.rand(layers, heads, 1, generator=generator)
    return logits.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)


# sinks.share -----------------------------------------------------------------------------------------------------


def _share(weights: Tensor, start: int) -> Tensor:
    return weights[:, :, start:, 0].mean(dim=2)


def _share_cases(generator: torch.Generator) -> list[Case]:
    # from query 1 on: (0.75 + 0.6) / 2 and (0.25 + 0.1) / 2
    first = [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.6, 0.3, 0.1]]
    second = [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.1, 0.1, 0.8]]
    return [
        Case("one layer, two heads, three tokens: 0.675 and 0.175", (torch.tensor([[first, second]]), 1)),
        Case("2 layers, 3 heads, 9 tokens, from query 4 on", (_causal(generator, 2, 3, 9, 3.0), 4)),
        Case("as many heads as layers, a strong sink", (_causal(generator, 4, 4, 20, 8.0), 10)),
        Case("attention that prefers nothing", (_causal(generator, 3, 2, 14, 0.0), 5)),
    ]


SHARE = Exercise(
    id="sinks.share",
    title="The share of the first token",
    difficulty=1,
    minutes=5,
    points=1,
    reference=_share,
    cases=_share_cases,
    mistakes=(
        Mistake(
            "every query counted",
            "The first query sees one token only, itself, with weight 1, and the next ones few. Begin at `start`.",
            lambda w, s: w[:, :, :, 0].mean(dim=2),
        ),
        Mistake(
            "what the first token reads",
            "This is row 0: what the first query reads of others, which is nothing. What it receives is column 0.",
            lambda w, s: w[:, :, 0, s:].mean(dim=2),
        ),
        Mistake(
            "a sum instead of a mean",
            "A sum grows with the length of the text. A share is a mean over the queries.",
            lambda w, s: w[:, :, s:, 0].sum(dim=2),
        ),
        Mistake(
            "averaged over the heads",
            "The mean ran over the heads, and the queries are still there. Heads differ: keep them apart.",
            lambda w, s: w[:, :, s:, 0].mean(dim=1),
        ),
        Mistake(
            "one number a layer",
            "The mean ran over heads and queries. Heads differ: keep them apart.",
            lambda w, s: w[:, :, s:, 0].mean(dim=(1, 2)),
        ),
        Mistake(
            "one query too late",
            "Query `start` itself counts too.",
            lambda w, s: w[:, :, s + 1 :, 0].mean(dim=2),
        ),
        Mistake(
            "the newest token",
            "Index −1 is the last token of the text. The sink is the first one.",
            lambda w, s: w[:, :, s:, -1].mean(dim=2),
        ),
        Mistake(
            "its share of the column",
            "The mean was taken over all tokens as well, and every row sums to 1: this is 1/T whatever the model does.",
            lambda w, s: w[:, :, s:].mean(dim=(2, 3)),
        ),
    ),
    also_right=(
        Variant("einsum, in float64", lambda w, s: torch.einsum("lhq->lh", w[:, :, s:, 0].double()) / (w.shape[2] - s)),
        Variant("head by head", lambda w, s: torch.stack([torch.stack([h[s:, 0].mean() for h in x]) for x in w])),
        Variant("as lists", lambda w, s: [[sum(h[s:, 0].tolist()) / (len(h) - s) for h in x] for x in w]),
    ),
    hints=(
        "weights[l, h, i, j] is what query i reads of token j. What token 0 receives is a column.",
        "Take weights[:, :, start:, 0], shape (L, H, queries), and the mean over its last axis.",
    ),
)


# sinks.evict -----------------------------------------------------------------------------------------------------


def _evict(weights: Tensor, keep: Tensor) -> Tensor:
    left = weights[:, keep]
    return left / left.sum(dim=1, keepdim=True)


def _evict_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[0.6, 0.1, 0.1, 0.2], [0.5, 0.25, 0.15, 0.1]])

    def drawn(queries: int, n: int, leave: list[int], pull: float) -> tuple[Tensor, Tensor]:
        logits, keep = _randn(generator, queries, n), torch.ones(n, dtype=torch.bool)
        logits[:, 0] += pull
        keep[leave] = False
        return logits.softmax(-1), keep

    return [
        Case("the first of four leaves: 0.25, 0.25, 0.5", (by_hand, torch.tensor([False, True, True, True]))),
        Case("5 queries, 12 tokens, a sink leaves", drawn(5, 12, [0], 5.0)),
        Case("the sink stays, three others leave", drawn(6, 9, [3, 4, 8], 3.0)),
        Case("all but two leave", drawn(4, 8, [0, 1, 3, 4, 6, 7], 1.0)),
    ]


EVICT = Exercise(
    id="sinks.evict",
    title="What the others get",
    difficulty=2,
    minutes=6,
    points=2,
    reference=_evict,
    cases=_evict_cases,
    mistakes=(
        Mistake(
            "rows that no longer sum to 1",
            "The denominator of the softmax lost its terms too: what is left of a row is divided by its own sum.",
            lambda w, k: w[:, k],
        ),
        Mistake(
            "softmax once more",
            "The weights are exponentials already. A second softmax flattens them; divide by their sum.",
            lambda w, k: w[:, k].softmax(1),
        ),
        Mistake(
            "spread evenly",
            "The share that left was dealt out in equal parts. Each token grows by the same factor instead.",
            lambda w, k: w[:, k] + (1 - w[:, k].sum(1, keepdim=True)) / k.sum(),
        ),
        Mistake(
            "one factor for all queries",
            "The factor was averaged. Every query lost a share of its own and has a denominator of its own.",
            lambda w, k: w[:, k] / w[:, k].sum(1).mean(),
        ),
        Mistake(
            "divided by the number of tokens",
            "Divide by the sum of the weights that stay, not by how many there are.",
            lambda w, k: w[:, k] / k.sum(),
        ),
        Mistake(
            "divided by what left",
            "The new denominator is what stays of the old one, not what left.",
            lambda w, k: w[:, k] / (1 - w[:, k].sum(1, keepdim=True)),
        ),
        Mistake(
            "places left in",
            "Tokens that left still have a column, of zeros. Return the columns of those that stay.",
            lambda w, k: w * k / (w * k).sum(1, keepdim=True),
        ),
        Mistake(
            "those that leave",
            "`keep` is True for the tokens that stay.",
            lambda w, k: _evict(w, ~k),
        ),
        Mistake(
            "divided down the columns",
            "The sum ran over the queries. A row of attention is one query: it must sum to 1.",
            lambda w, k: w[:, k] / w[:, k].sum(0),
        ),
    ),
    also_right=(
        Variant("from the logits", lambda w, k: w.log()[:, k].softmax(dim=1)),
        Variant("masked", lambda w, k: w.log().masked_fill(~k, float("-inf")).softmax(dim=1)[:, k]),
        Variant("by what left", lambda w, k: w[:, k] / (1 - w.double()[:, ~k].sum(dim=1, keepdim=True))),
    ),
    hints=(
        "softmax(x)_j = e^x_j / Σ e^x. Without a token, its term leaves the sum below; nothing changes above.",
        "Take weights[:, keep] and divide each row by its sum.",
    ),
)


# sinks.slots -----------------------------------------------------------------------------------------------------


def _slots(n_tokens: int, sinks: int, budget: int) -> list[int]:
    if n_tokens <= budget:
        return list(range(n_tokens))
    return [*range(sinks), *range(n_tokens - (budget - sinks), n_tokens)]


def _agree_on_slots(got: Any, expected: tuple) -> str | None:
    """The set of tokens counts, not their order; none may be there twice."""
    expected = torch.tensor(expected)
    got, problem = tensor_like(got, expected)
    if problem:
        return problem.replace("the shape is", "the number of tokens is")
    return close(got.double().sort().values, expected.double().sort().values)


SLOTS = Exercise(
    id="sinks.slots",
    title="Sinks and a window",
    difficulty=2,
    minutes=7,
    points=2,
    reference=_slots,
    cases=lambda generator: [
        Case("10 tokens, 2 sinks, 6 slots: 0 1 6 7 8 9", (10, 2, 6)),
        Case("5 tokens in 8 slots: all stay", (5, 2, 8)),
        Case("12 tokens, no sink, 4 slots", (12, 0, 4)),
        Case("one token more than there are slots", (9, 4, 8)),
        Case("a drawn text that fits", (_whole(generator, 6, 11), 3, _whole(generator, 12, 16))),
        Case("a drawn long text", (_whole(generator, 40, 90), _whole(generator, 1, 5), _whole(generator, 8, 14))),
    ],
    mistakes=(
        Mistake(
            "a window without sinks",
            "These are the newest tokens alone: the window whose collapse you have seen. The first ones must stay.",
            lambda n, s, b: list(range(max(0, n - b), n)),
        ),
        Mistake(
            "sinks beside the budget",
            "Sinks take up slots too: of the budget, `budget − sinks` are left for the newest tokens.",
            lambda n, s, b: sorted({*range(min(s, n)), *range(max(0, n - b), n)}),
        ),
        Mistake(
            "a token twice",
            "While the text is shorter than the budget, the first tokens are also among the newest: count them once.",
            lambda n, s, b: [*range(s), *range(max(0, n - (b - s)), n)],
            also=(lambda n, s, b: [*range(min(s, n)), *range(max(0, n - (b - s)), n)],),
        ),
        Mistake(
            "the newest left out",
            "Of n tokens the newest is n − 1, and it attends to itself: it must be among them.",
            lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - 1 - (b - s), n - 1)],
        ),
        Mistake(
            "a slot left empty",
            "One slot is unused: the newest `budget − sinks` tokens begin at n − (budget − sinks).",
            lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - (b - s) + 1, n)],
        ),
        Mistake(
            "the window never moves",
            "These are the first tokens of the text. Only `sinks` of them stay for good; the rest of the slots follow "
            "the newest.",
            lambda n, s, b: list(range(min(n, b))),
        ),
        Mistake(
            "nothing leaves",
            "All tokens are kept, so that the cache grows with the text. It may hold `budget`.",
            lambda n, s, b: list(range(n)),
        ),
    ),
    also_right=(
        Variant("newest first", lambda n, s, b: _slots(n, s, b)[::-1]),
        Variant(
            "a tensor",
            lambda n, s, b: torch.arange(n)[[j < s or j >= n - (b - s) for j in range(n)] if n > b else slice(None)],
        ),
        Variant("token by token", lambda n, s, b: _streamed(n, s, b)),
    ),
    hints=(
        "Two ranges: the first `sinks` tokens, and the newest that fit beside them.",
        "The newest begin at n − (budget − sinks). When n is no larger than the budget, everything stays.",
    ),
    agree=_agree_on_slots,
    picture=lambda case, got, expected: compare_slots(case.arguments[0], got, expected),
)


def _streamed(n_tokens: int, sinks: int, budget: int) -> list[int]:
    """As a cache does it: a token comes, and when there is one too many, the oldest behind the sinks leaves."""
    kept: list[int] = []
    for token in range(n_tokens):
        kept.append(token)
        if len(kept) > budget:
            del kept[sinks]
    return kept


# sinks.positions -------------------------------------------------------------------------------------------------


def _positions(position: Tensor) -> Tensor:
    return position.argsort(dim=1).argsort(dim=1) - position


def _kept(generator: torch.Generator, heads: int, n: int, seen: int) -> Tensor:
    """What each head has kept of a text, in no order."""
    return torch.stack([torch.randperm(seen, generator=generator)[:n] for _ in range(heads)])


POSITIONS = Exercise(
    id="sinks.positions",
    title="Places in the cache",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_positions,
    cases=lambda generator: [
        Case("one head kept 0, 7, 8, 9, in order: 0, −6, −6, −6", (torch.tensor([[0, 7, 8, 9]]),)),
        Case("the same tokens in other slots", (torch.tensor([[8, 0, 9, 7]]),)),
        Case("3 heads that kept different tokens", (_kept(generator, 3, 7, 40),)),
        Case("as many heads as slots", (_kept(generator, 5, 5, 30),)),
        Case("one head, 12 of 1000 tokens", (_kept(generator, 1, 12, 1000),)),
    ],
    mistakes=(
        Mistake(
            "turned the wrong way",
            "This is position − place. A key stands at `position` and must go to its place: place − position.",
            lambda p: -_positions(p),
        ),
        Mistake(
            "the place itself",
            "These are the places. RoPE has turned the key to `position` already: only the difference is left to turn.",
            lambda p: p.argsort(dim=1).argsort(dim=1),
        ),
        Mistake(
            "the slot's number",
            "A slot's number says nothing of the order of the text: new tokens may fill the slots of old ones. Rank "
            "the positions.",
            lambda p: torch.arange(p.shape[1]) - p,
        ),
        Mistake(
            "sorted once",
            "argsort says which slot comes at place 0, 1, 2 …; asked is the place of each slot, the inverse of that. "
            "Sort once more.",
            lambda p: p.argsort(dim=1) - p,
        ),
        Mistake(
            "counted from 1",
            "The first token in the cache has place 0, as the first token of a text has position 0.",
            lambda p: _positions(p) + 1,
        ),
        Mistake(
            "all turned alike",
            "Every key was turned by what the newest needs. RoPE sees differences: the distance to the sinks stays as "
            "large as before.",
            lambda p: (p.shape[1] - 1 - p.max(dim=1, keepdim=True).values).expand(p.shape),
        ),
        Mistake(
            "ranked over all heads",
            "Heads may keep different tokens: rank each row by itself.",
            lambda p: p.flatten().argsort().argsort().reshape(p.shape) - p,
            also=(lambda p: p.argsort(dim=0).argsort(dim=0) - p,),
        ),
    ),
    also_right=(
        Variant("count who came before", lambda p: (p[:, None, :] < p[:, :, None]).sum(dim=2) - p),
        Variant(
            "binary search", lambda p: torch.searchsorted(p.sort(dim=1).values, p.contiguous()) - p.to(torch.float64)
        ),
        Variant("lists", lambda p: [[sorted(row).index(x) - x for x in row] for row in p.tolist()]),
    ),
    hints=(
        "The place of a token is the number of tokens in its row that came before it.",
        "position.argsort(dim=1).argsort(dim=1) ranks each row. Then: from where to where is a key turned?",
    ),
)


# sinks.rotate ----------------------------------------------------------------------------------------------------


def _rotate(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    angle = by[:, None] * frequencies
    low, high = keys.chunk(2, dim=1)
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=1)


def _frequencies(size: int) -> Tensor:
    return 10_000.0 ** (-torch.arange(0, size, 2) / size)


def _rotate_cases(generator: torch.Generator) -> list[Case]:
    # the pair (0, 2) makes a quarter turn, the pair (1, 3) none
    by_hand = (torch.tensor([[1.0, 2.0, 0.0, 3.0]]), torch.tensor([1]), torch.tensor([torch.pi / 2, 0.0]))

    def drawn(n: int, size: int, low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
        by = torch.randint(low, high, (n,), generator=generator)
        return _randn(generator, n, size), by, _frequencies(size)

    return [
        Case("a quarter turn of the first pair: (0, 2, 1, 3)", by_hand),
        Case("6 keys of size 8, forwards", drawn(6, 8, 1, 30)),
        Case("5 keys of size 16, backwards", drawn(5, 16, -90, -1)),
        Case("8 keys of size 8, to and fro", drawn(8, 8, -50, 50)),
    ]


def _interleaved(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    halves = torch.cat([keys[:, 0::2], keys[:, 1::2]], dim=1)
    return torch.stack(_rotate(halves, by, frequencies).chunk(2, dim=1), dim=2).flatten(1)


def _rotate_half(keys: Tensor) -> Tensor:
    low, high = keys.chunk(2, dim=1)
    return torch.cat([-high, low], dim=1)


def _complex(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    low, high = keys.chunk(2, dim=1)
    turned = torch.complex(low, high) * torch.polar(torch.ones(len(by), low.shape[1]), by[:, None] * frequencies)
    return torch.cat([turned.real, turned.imag], dim=1)


ROTATE = Exercise(
    id="sinks.rotate",
    title="Turn a key on",
    difficulty=4,
    minutes=10,
    points=3,
    reference=_rotate,
    cases=_rotate_cases,
    mistakes=(
        Mistake(
            "turned back",
            "The sine has the wrong sign: positive `by` turns the first half towards the second.",
            lambda k, b, f: _rotate(k, -b, f),
        ),
        Mistake(
            "neighbours as pairs",
            "Here dimension i goes with i + D/2, as in Llama's code for Hugging Face; you paired 2i with 2i + 1, as in "
            "the paper on RoPE.",
            _interleaved,
        ),
        Mistake(
            "one angle for all pairs",
            "Each pair turns at a speed of its own: `frequencies` has an entry for each.",
            lambda k, b, f: _rotate(k, b, f[:1].expand(len(f))),
        ),
        Mistake(
            "angles in another order than the pairs",
            "Dimensions i and i + D/2 share frequency i. Repeated in place (f0 f0 f1 f1), the frequencies fit "
            "neighbouring pairs.",
            lambda k, b, f: (
                k * (b[:, None] * f.repeat_interleave(2)).cos()
                + _rotate_half(k) * (b[:, None] * f.repeat_interleave(2)).sin()
            ),
        ),
        Mistake(
            "no minus",
            "A rotation has one minus: low cos − high sin, high cos + low sin. Otherwise lengths change.",
            lambda k, b, f: k * (b[:, None] * f.repeat(2)).cos() + k.roll(len(f), 1) * (b[:, None] * f.repeat(2)).sin(),
        ),
        Mistake(
            "halves not exchanged",
            "The sine multiplies the other half of the pair, not the number itself.",
            lambda k, b, f: k * ((b[:, None] * f.repeat(2)).cos() + (b[:, None] * f.repeat(2)).sin()),
        ),
        Mistake(
            "sine and cosine exchanged",
            "An angle of 0 must leave the key as it is: the number itself is multiplied with the cosine.",
            lambda k, b, f: k * (b[:, None] * f.repeat(2)).sin() + _rotate_half(k) * (b[:, None] * f.repeat(2)).cos(),
        ),
        Mistake(
            "one amount for all keys",
            "Each key has its own way to go: by[n] belongs to row n.",
            lambda k, b, f: _rotate(k, b[:1].expand(len(b)), f),
        ),
    ),
    also_right=(
        Variant(
            "rotate_half",
            lambda k, b, f: k * (b[:, None] * f.repeat(2)).cos() + _rotate_half(k) * (b[:, None] * f.repeat(2)).sin(),
        ),
        Variant("complex numbers", _complex),
        Variant("float64", lambda k, b, f: _rotate(k.double(), b, f.double())),
    ),
    hints=(
        "The pair (keys[i], keys[i + D/2]) is a point of a plane; turn it by the angle by · frequencies[i].",
        "With low and high, the two halves of each key: low cos − high sin, and high cos + low sin.",
        "The angles have shape (N, D/2): by[:, None] * frequencies. Join the halves with torch.cat(..., dim=1).",
    ),
)


# sinks.softmax ---------------------------------------------------------------------------------------------------


def _softmax(logits: Tensor, sink: Tensor) -> Tensor:
    column = sink[:, None, None].expand(-1, logits.shape[1], 1)
    return torch.cat([logits, column], dim=2).softmax(dim=2)[:, :, :-1]


def _softmax_cases(generator: torch.Generator) -> list[Case]:
    # e^0 = 1 three times, and e^sink = 1 or 2: each weight is 1/4 or 1/5
    by_hand = torch.zeros(2, 1, 3), torch.tensor([1.0, 2.0]).log()
    masked = _randn(generator, 2, 5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
    return [
        Case("logits of 0, sinks log 1 and log 2: 1/4 and 1/5", by_hand),
        Case("3 heads, 4 queries, 7 tokens", (_randn(generator, 3, 4, 7), 1 + _randn(generator, 3))),
        Case("causal, as many queries as heads see tokens", (masked, torch.tensor([0.5, -2.0]))),
        Case("logits near 200", (200 + _randn(generator, 4, 3, 6), 200 + _randn(generator, 4))),
        Case("logits near −200, sinks too", (_randn(generator, 2, 4, 5) - 200, _randn(generator, 2) - 200)),
    ]


def _shifted(logits: Tensor, sink: Tensor) -> Tensor:
    """The maximum is taken from the logits, and not from the sink."""
    e = (logits - logits.max(dim=2, keepdim=True).values).exp()
    return e / (sink.exp()[:, None, None] + e.sum(dim=2, keepdim=True))


SOFTMAX = Exercise(
    id="sinks.softmax",
    title="A softmax that may decline",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_softmax,
    cases=_softmax_cases,
    mistakes=(
        Mistake(
            "the sink has no effect",
            "The rows sum to 1: either the sink is not in the denominator, or the weights were divided by their sum "
            "after its column was dropped. The share of the sink is to be lost.",
            lambda x, s: x.softmax(dim=2),
        ),
        Mistake(
            "the sink's column left in",
            "The sink has no value to read: it takes its share of the denominator, and then its column is dropped.",
            lambda x, s: torch.cat([x, s[:, None, None].expand(-1, x.shape[1], 1)], 2).softmax(2),
            also=(lambda x, s: torch.cat([s[:, None, None].expand(-1, x.shape[1], 1), x], 2).softmax(2),),
        ),
        Mistake(
            "a token dropped instead of the sink",
            "The sink stands in the last column, but the first one was dropped, or the other way round.",
            lambda x, s: torch.cat([x, s[:, None, None].expand(-1, x.shape[1], 1)], 2).softmax(2)[:, :, 1:],
            also=(lambda x, s: torch.cat([s[:, None, None].expand(-1, x.shape[1], 1), x], 2).softmax(2)[:, :, :-1],),
        ),
        Mistake(
            "one sink for all heads",
            "Every head has a sink of its own: sink[h] belongs to head h.",
            lambda x, s: _softmax(x, s[:1].expand(len(s))),
            also=(lambda x, s: _softmax(x, s.mean().expand(len(s))),),
        ),
        Mistake(
            "overflow",
            "e^200 is more than float32 holds. Take the largest entry of each row from logits and sink first.",
            lambda x, s: x.exp() / (s.exp()[:, None, None] + x.exp().sum(2, keepdim=True)),
        ),
        Mistake(
            "the maximum taken from one side only",
            "The maximum was subtracted from the logits and not from the sink. Both must be shifted alike, "
            "or the sink is e^maximum times too strong.",
            _shifted,
        ),
        Mistake(
            "always 1",
            "This is the softmax-off-by-one, the sink with logit 0. Here the sink's logit is given: e^sink, not 1.",
            lambda x, s: _softmax(x, torch.zeros_like(s)),
        ),
        Mistake(
            "the sink not exponentiated",
            "The sink is a logit like the others: e^sink is added to the denominator.",
            lambda x, s: (
                (x - x.amax(2, keepdim=True)).exp()
                / ((x - x.amax(2, keepdim=True)).exp().sum(2, keepdim=True) + s[:, None, None])
            ),
            also=(lambda x, s: x.exp() / (x.exp().sum(2, keepdim=True) + s[:, None, None]),),
        ),
        Mistake(
            "1 on top of the sink",
            "The denominator has a 1 besides e^sink. A sink of 0 is that 1 already.",
            lambda x, s: _softmax(x, torch.logaddexp(s, torch.zeros(()))),
        ),
    ),
    also_right=(
        Variant(
            "by the log of the sum", lambda x, s: (x - torch.logaddexp(x.logsumexp(2), s[:, None])[..., None]).exp()
        ),
        Variant("softmax times a gate", lambda x, s: x.softmax(2) * (x.logsumexp(2) - s[:, None]).sigmoid()[..., None]),
        Variant("sink first, float64", lambda x, s: _sink_first(x.double(), s.double())),
    ),
    hints=(
        "Put the sink beside the tokens, as one more column of the logits, and take the softmax of all of them.",
        "torch.cat([logits, column], dim=2), with sink[:, None, None] expanded to one number for every query.",
        "Then drop that column again. Do not divide by the rest: rows shall sum to less than 1.",
    ),
)


def _sink_first(logits: Tensor, sink: Tensor) -> Tensor:
    column = sink.repeat_interleave(logits.shape[1]).reshape(len(sink), -1, 1)
    return torch.cat([column, logits], dim=2).softmax(dim=2)[:, :, 1:]


# sinks.gate ------------------------------------------------------------------------------------------------------


def _gate(output: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
    return output * (lse - sink[:, None]).sigmoid()[..., None]


def _gate_cases(generator: torch.Generator) -> list[Case]:
    # three tokens with logit 0 and values 2, 4, 6: the output is 4 and lse = log 3. A sink of 0 leaves 3/4 of it.
    by_hand = torch.tensor([[[4.0]]]), torch.tensor([[3.0]]).log(), torch.zeros(1)

    def drawn(heads: int, queries: int, size: int, level: float) -> tuple[Tensor, Tensor, Tensor]:
        lse = level + _randn(generator, heads, queries)
        return _randn(generator, heads, queries, size), lse, level + _randn(generator, heads)

    return [
        Case("three tokens with logit 0, a sink with logit 0: 4 becomes 3", by_hand),
        Case("3 heads, 5 queries, size 4", drawn(3, 5, 4, 1.0)),
        Case("as many queries as heads", drawn(4, 4, 4, 0.0)),
        Case("logits near 150", drawn(2, 6, 3, 150.0)),
    ]


GATE = Exercise(
    id="sinks.gate",
    title="A sink for any attention",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_gate,
    cases=_gate_cases,
    mistakes=(
        Mistake(
            "the share of the sink",
            "σ(sink − lse) is what the sink takes. What is left for the tokens is σ(lse − sink).",
            lambda o, lse, s: o * (s[:, None] - lse).sigmoid()[..., None],
        ),
        Mistake(
            "a ratio of two sums",
            "e^(lse − sink) is tokens over sink. The share is tokens over tokens and sink: the sigmoid of that "
            "difference.",
            lambda o, lse, s: o * (lse - s[:, None]).exp()[..., None],
        ),
        Mistake(
            "the sink of another head",
            "Broadcasting put sink[h] beside query h. It belongs to a head: sink[:, None].",
            lambda o, lse, s: o * (lse - s).sigmoid()[..., None],
            also=(lambda o, lse, s: o * (lse - s[: lse.shape[1]]).sigmoid()[..., None],),
        ),
        Mistake(
            "one sink for all heads",
            "Every head has a sink of its own: sink[h] belongs to head h.",
            lambda o, lse, s: _gate(o, lse, s[:1].expand(len(s))),
            also=(lambda o, lse, s: _gate(o, lse, s.mean().expand(len(s))),),
        ),
        Mistake(
            "off by one whatever the sink",
            "σ(lse) is the gate of a sink with logit 0. Here the sink's logit is given.",
            lambda o, lse, s: o * lse.sigmoid()[..., None],
        ),
        Mistake(
            "overflow",
            "e^lse is more than float32 holds when logits are large. σ(lse − sink) needs only the difference.",
            lambda o, lse, s: o * (lse.exp() / (lse.exp() + s.exp()[:, None]))[..., None],
        ),
        Mistake(
            "the logarithm counted as the sum",
            "lse is the logarithm of the sum of exponentials: lse / (lse + sink) divides logarithms.",
            lambda o, lse, s: o * (lse / (lse + s[:, None]))[..., None],
        ),
        Mistake(
            "divided instead of multiplied",
            "The sink takes a share away: the output shrinks.",
            lambda o, lse, s: o / (lse - s[:, None]).sigmoid()[..., None],
        ),
    ),
    also_right=(
        Variant("one over one plus", lambda o, lse, s: o / (1 + (s[:, None] - lse).exp())[..., None]),
        Variant(
            "two logits", lambda o, lse, s: o * torch.stack([lse, s[:, None].expand_as(lse)], 2).softmax(2)[..., :1]
        ),
        Variant(
            "in float64",
            lambda o, lse, s: o * (lse.double() - torch.logaddexp(lse.double(), s.double()[:, None])).exp()[..., None],
        ),
    ),
    hints=(
        "The output is a sum over e^x_j v_j, divided by e^lse. With the sink it is divided by e^lse + e^sink instead.",
        "Multiply by e^lse / (e^lse + e^sink) = σ(lse − sink): one number a head and query.",
    ),
)


# sinks.cost ------------------------------------------------------------------------------------------------------


def _cost(n_weights: int, n_layers: int, width: int, window: int) -> tuple[int, int]:
    token, pair = 2 * n_weights, 4 * n_layers * width
    return token + pair * window, token * window + pair * (window * (window + 1) // 2)


def _costs(pairs: Any = None, **changed: int) -> Any:
    """The count with something else in one place."""

    def count(n_weights: int, n_layers: int, width: int, window: int) -> tuple[int, int]:
        token, pair = changed.get("token", 2) * n_weights, changed.get("pair", 4) * n_layers * width
        seen = pairs(window) if pairs else window * (window + 1) // 2
        return token + pair * window, token * window + pair * seen

    return count


COST = Exercise(
    id="sinks.cost",
    title="Streaming against recomputing",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_cost,
    cases=lambda generator: [
        Case("10 weights, 1 layer of width 2, window 3: 44 and 108", (10, 1, 2, 3)),
        Case("SmolLM2's blocks, a window of 256", (106_168_320, 30, 576, 256)),
        Case("the same, a window of 4096", (106_168_320, 30, 576, 4096)),
        Case("a drawn model", (_whole(generator, 1000, 10**6), _whole(generator, 2, 40), 64, 100)),
    ],
    mistakes=(
        Mistake(
            "pairs that are not read",
            "Attention is causal: query i of the window reads i tokens, so that there are W (W + 1) / 2 pairs, not W².",
            _costs(lambda w: w * w),
        ),
        Mistake(
            "a token does not read itself",
            "Every query also reads its own token: W (W + 1) / 2 pairs, not W (W − 1) / 2.",
            _costs(lambda w: w * (w - 1) // 2),
        ),
        Mistake(
            "attention of the newest alone",
            "Without stored keys and values all tokens of the window must attend again, not only the newest.",
            _costs(lambda w: w),
        ),
        Mistake(
            "the weights once",
            "When the window is computed anew, each of its tokens goes through all weights.",
            lambda p, n, d, w: (_cost(p, n, d, w)[0], 2 * p + 4 * n * d * (w * (w + 1) // 2)),
        ),
        Mistake(
            "logits without values",
            "Each pair costs 2 D FLOPs a head for the logit, and as many for adding up the value.",
            _costs(pair=2),
        ),
        Mistake(
            "one FLOP a weight",
            "Each weight is multiplied and then added: two FLOPs a token.",
            _costs(token=1),
        ),
        Mistake(
            "the new token reads itself alone",
            "While streaming, the new token still attends over everything in the cache: W pairs a layer.",
            lambda p, n, d, w: (2 * p + 4 * n * d, _cost(p, n, d, w)[1]),
        ),
        Mistake(
            "one layer",
            "The attention of all layers counts.",
            lambda p, n, d, w: _cost(p, 1, d, w),
        ),
        Mistake(
            "in the other order",
            "Streaming comes first, then recomputation.",
            lambda p, n, d, w: _cost(p, n, d, w)[::-1],
        ),
    ),
    also_right=(
        Variant(
            "query by query",
            lambda p, n, d, w: (2 * p + 4 * n * d * w, sum(2 * p + 4 * n * d * (i + 1) for i in range(w))),
        ),
        Variant("a tensor", lambda p, n, d, w: torch.tensor(_cost(p, n, d, w))),
    ),
    hints=(
        "A token costs 2 FLOPs a weight. A pair of a query and a token costs 2 × width for its logit and 2 × width for "
        "its value, in each layer.",
        "Streaming: one token, W pairs. Recomputing: W tokens, and 1 + 2 + … + W pairs.",
    ),
)

EXERCISES = (SHARE, EVICT, SLOTS, POSITIONS, ROTATE, COST, SOFTMAX, GATE)
