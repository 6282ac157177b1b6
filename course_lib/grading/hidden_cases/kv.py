"""Lesson 07, hidden cases: gaps in the positions, budgets at their edges, groups of one and of all heads.

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries, W queries of a history, N slots,
D size of a head, P tokens of a prompt, K tokens of question and answer, V words.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case


def _order(generator: torch.Generator, values: Tensor, *heads: int) -> Tensor:
    """Return the values in a random order for every head."""
    n_heads = torch.Size(heads).numel()
    place = torch.rand(n_heads, len(values), generator=generator).argsort(dim=1)
    return values[place].reshape(*heads, -1)


def _slots(generator: torch.Generator) -> list[Case]:
    n, h, b = torch.randint(3, 12, (3,), generator=generator).tolist()
    token = 2 * n * h * 80 * 2 * b
    return [
        Case("too little for one slot", (token - 1, n, 3 * h, h, 80, b, 2)),
        Case("whole tokens that the sequences cannot divide evenly", (7 * token // b, 3, 8, 8, 40, 5, 2)),
        Case("one byte less than the last slot needs", (7 * token - 1, n, 3 * h, h, 80, b, 2)),
        Case("query heads with a key-value head each", (10**9 + n, n, 8, 8, 64, b, 4)),
        Case("one key-value head for all, one-byte numbers", (123_456_789, 24, 16, 1, 128, b, 1)),
    ]


def _window(generator: torch.Generator) -> list[Case]:
    sparse = (torch.rand(3, 2, 25, generator=generator) + 0.05).cumsum(dim=2).mul(100).long()
    shuffled = sparse.gather(2, torch.rand(3, 2, 25, generator=generator).argsort(dim=2))
    lengths = torch.stack([_order(generator, 2 * torch.arange(16) + 40 * i, 1) for i in range(4)])
    return [
        Case("large gaps, another set in every head", (shuffled, 10)),
        Case("four sequences of different length", (lengths, 5)),
        Case("all slots except one are kept", (_order(generator, torch.arange(12) * 5, 2, 2), 11)),
    ]


def _group_mass(generator: torch.Generator) -> list[Case]:
    def drawn(batch: int, n_heads: int, n_queries: int, n: int, n_key_value: int) -> tuple[Tensor, Tensor, int]:
        weights = (2 * torch.randn(batch, n_heads, n_queries, n, generator=generator)).softmax(dim=-1)
        padding = 1 + torch.arange(batch) % (n_queries - 1)
        return weights, torch.arange(n_queries) >= padding[:, None], n_key_value

    return [
        Case("12 heads on 4, a long prompt", drawn(2, 12, 30, 33, 4)),
        Case("8 heads on 2, three sequences", drawn(3, 8, 4, 9, 2)),
        Case("a group for every head", drawn(2, 4, 6, 5, 4)),
        Case("one key-value head for all", drawn(2, 5, 3, 12, 1)),
        Case("15 heads on 5", drawn(4, 15, 6, 10, 5)),
    ]


def _h2o_step(generator: torch.Generator) -> list[Case]:
    """Positions have gaps except among the newest; sums are skewed, and the newest token has none yet."""

    def drawn(n_heads: int, n: int, budget: int, recent: int) -> tuple:
        newest = 5 * n - torch.arange(recent + 2)
        position = _order(generator, torch.cat([4 * torch.arange(n - recent - 2), newest]), n_heads)
        score = torch.rand(n_heads, n, generator=generator).pow(4) * 6 * (position < 5 * n)
        new = 3 * (2.5 * torch.randn(n_heads, n, generator=generator)).softmax(dim=1)
        return score, new, position, budget, recent

    def long(step: tuple) -> tuple:
        return 2e12 * step[0], 2e10 * step[1], *step[2:]

    return [
        Case("a prompt of 60 tokens, 10 are kept", drawn(3, 60, 10, 3)),
        Case("huge sums of attention", long(drawn(2, 20, 9, 2))),
        Case("two slots too many", drawn(5, 18, 16, 5)),
        Case("one recent token", drawn(2, 25, 12, 1)),
    ]


def _deferred(generator: torch.Generator) -> list[Case]:
    """Make right and wrong predictions with a clear margin; the last row of the prompt predicts the question."""

    def drawn(
        n_question: int, right: tuple[int, ...], leak: int, known: int = 1, same: tuple[int, int] = (0, 0)
    ) -> tuple:
        n_words, n = 60, n_question + len(right)
        ids = torch.randperm(n_words, generator=generator)[:n]
        ids[same[0]] = ids[same[1]]
        before = torch.randn(4, n_words, generator=generator)
        after = torch.randn(n, n_words, generator=generator)
        before[-1, ids[0]] = 8.0 * (2 * leak - 1)
        verdicts = [*[known] * (n_question - 1), *right]
        for place, is_right in enumerate(verdicts):
            after[place, ids[place + 1]] = 8.0 * (2 * is_right - 1)
        after[-1, ids[0]] = 8.0
        return before, after, ids, n_question

    return [
        Case("an answer of one token that was lost", drawn(5, (0,), leak=1, same=(5, 0))),
        Case("eight tokens, two errors", drawn(2, (1, 1, 1, 1, 1, 0, 1, 0), leak=0, same=(3, 2))),
        Case("two right, the question not predicted", drawn(3, (1, 1, 0, 1, 1), leak=0, known=0)),
        Case("seven right", drawn(1, (1,) * 7, leak=0)),
    ]


def _scissorhands(generator: torch.Generator) -> list[Case]:
    """The newest tokens receive little, more than half of the old ones much, and three of them just too little."""

    def drawn(n_group: int, n_queries: int, n: int, n_seen: int, budget: int, recent: int) -> tuple:
        first = n_seen - n_queries
        old = torch.rand(first, generator=generator).argsort()[: n - n_queries]
        position = _order(generator, torch.cat([old, first + torch.arange(n_queries)]), 1)[0]
        asked_at = torch.arange(first, n_seen)
        attended = (torch.rand(n, generator=generator) < 0.65) & (position < n_seen - recent - 1)
        logits = 3.3 * attended + 1.6 * torch.randn(n_group, n_queries, n, generator=generator)
        weights = logits.masked_fill(position > asked_at[:, None], float("-inf")).softmax(dim=-1)
        nearly, share = torch.isin(position, old[:3]), (0.5 / (asked_at + 1) + 0.5 / (asked_at + 2))[:, None]
        rest = weights.masked_fill(nearly, 0)
        rest = rest / rest.sum(dim=-1, keepdim=True) * (1 - 3 * share)
        return torch.where(nearly, share, rest), asked_at, position, budget, recent

    def young(n_old: int, n_new: int) -> tuple[Tensor, Tensor, Tensor]:
        """Old tokens are low for one query; three in four of the n_new later ones for themselves and for the newest."""
        position = 2 + _order(generator, torch.arange(n_old + n_new + 1), 1)[0]  # two are evicted
        asked_at = 2 + torch.arange(n_old, n_old + n_new + 1)
        t, age, seen = asked_at[:, None] + 1, position - 2 - n_old, position <= asked_at[:, None]
        is_spared = (age >= 0) & (age % 4 == 1)
        low = (age >= 0) & (age < n_new) & ~is_spared & ((position == t - 1) | (t - 1 == 2 + n_old + n_new))
        low |= (age < 0) & (t - 1 == 2 + n_old + position % n_new) | is_spared & (position == t - 1)
        near = seen * (low * (0.6 / t + 0.4 / (t + 1)) + (is_spared & ~low) * (0.4 / t + 0.6 / (t - 1)))
        rest = seen & (near == 0)
        mean = near + rest * (1 - near.sum(dim=1, keepdim=True)) / rest.sum(dim=1, keepdim=True)
        u = torch.rand(mean.shape, generator=generator)
        apart = 0.9 * mean * (u - (mean * u).sum(dim=1, keepdim=True))  # sums to 0, and is less than the mean
        return torch.stack([mean + apart, mean - apart]), asked_at, position

    return [
        Case("most of the text is evicted", drawn(3, 12, 41, 300, 40, 6)),
        Case("four heads, nine slots too many", drawn(4, 13, 45, 120, 36, 6)),
        Case("new tokens that are low for themselves", (*young(3, 12), 15, 2)),
        Case("more of them, an even budget", (*young(3, 16), 18, 2)),
        Case("a budget that is full to the last slot", drawn(3, 8, 25, 80, 25, 4)),
    ]


def _merge(generator: torch.Generator) -> list[Case]:
    """The nearest key is short; another key has the larger product and the smaller distance."""

    def at(vector: Tensor, cosine: float, length: float) -> Tensor:
        along, across = vector / vector.norm(), torch.randn(len(vector), generator=generator)
        across -= (across @ along) * along
        return length * (cosine * along + (1 - cosine**2) ** 0.5 * across / across.norm())

    def drawn(n: int, size: int, cosine: float, threshold: float) -> tuple:
        keys, values = torch.randn(n, size, generator=generator), torch.randn(n, size, generator=generator)
        slot = int(torch.randint(n, (), generator=generator))
        keys *= 1.5 / keys.norm(dim=1, keepdim=True)
        keys[slot] *= 0.2
        key = at(keys[slot], cosine, 3.0)
        keys[slot - 2], keys[slot - 1] = at(key, 0.64, 3.0), at(key, 0.63, 1.2)
        value = 0.9 * values[slot - 1] + 0.3 * torch.randn(size, generator=generator)
        return key, value, keys, values, threshold

    return [
        Case("30 slots, near enough", drawn(30, 40, 0.8, 0.75)),
        Case("6 slots, clearly below the threshold", drawn(6, 30, 0.72, 0.9)),
        Case("three slots, in nearly the same direction", drawn(3, 12, 0.9, 0.5)),
        Case("a threshold that only copies pass", drawn(20, 16, 0.95, 0.99)),
    ]


def _quantize(generator: torch.Generator) -> list[Case]:
    flat = torch.randn(30, generator=generator)
    flat[10:20] = -2.5
    loud = 0.1 * torch.randn(96, generator=generator)
    loud[::32] += 5
    loud[48:64] *= 1e-2
    flat[20:] *= 5e-3
    quiet = torch.randn(24, generator=generator)
    quiet[6:12] = 8e-6 * (torch.randperm(6, generator=generator) % 4)
    return [
        Case("a group with a step below a hundred-thousandth", (quiet, 2, 6)),
        Case("large neighbours, groups of 16", (loud, 4, 16)),
        Case("all below zero, 3 bits", (-20 + torch.randn(36, generator=generator), 3, 12)),
        Case("a constant group between a large and a small one", (flat, 2, 10)),
        Case("another constant group, 5 bits", (flat.roll(10), 5, 10)),
    ]


HIDDEN = {
    "kv.slots": _slots,
    "kv.window": _window,
    "kv.group_mass": _group_mass,
    "kv.h2o_step": _h2o_step,
    "kv.deferred": _deferred,
    "kv.scissorhands": _scissorhands,
    "kv.merge": _merge,
    "kv.quantize": _quantize,
}
