"""Lesson 11, hidden cases: many heads, long rows, single peaks and flat rows, blocks larger than the text's rest,
channels that hardly change, heads steered by other α, patches of two levels, drafts far from their target model.

Dimension key: H heads, N blocks or entries, T tokens, R last queries, P tokens of a prompt, k drafted tokens, V ids.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _rand(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator)


def _divergence(generator: torch.Generator) -> list[Case]:
    def drawn(n_heads: int, n: int, sharp: float, zeros: float) -> tuple[Tensor, Tensor]:
        gone = _rand(generator, 2, n_heads, n) < zeros
        gone[0, :, 0], gone[1, :, -1] = False, False
        p, q = (sharp * _randn(generator, 2, n_heads, n)).masked_fill(gone, -torch.inf).softmax(dim=-1)
        return p, q

    return [
        Case("30 heads, 4 blocks", drawn(30, 4, 1.0, 0.25)),
        Case("256 blocks, most of them 0", drawn(3, 256, 2.0, 0.8)),
        Case("two blocks", drawn(9, 2, 1.5, 0.0)),
        Case("peaked distributions", drawn(5, 20, 6.0, 0.1)),
        Case("a single head", drawn(1, 33, 1.0, 0.4)),
    ]


def _smallest_set(generator: torch.Generator) -> list[Case]:
    def drawn(n_rows: int, n: int, sharp: float, size: float) -> Tensor:
        return size * (sharp * (0.4 + _rand(generator, n_rows, 1)) * _randn(generator, n_rows, n)).exp()

    zeros = drawn(6, 20, 2.0, 1.0) * (_rand(generator, 6, 20) < 0.5)
    zeros[:, 7] = 1.0
    return [
        Case("rows that sum to far more than one, 80 %", (drawn(7, 24, 2.0, 40.0), 0.8)),
        Case("rows that sum to far less than one, 95 %", (drawn(4, 31, 1.5, 1e-4), 0.95)),
        Case("half of the entries are 0, 98 %", (zeros, 0.98)),
        Case("very peaked rows, 70 %", (drawn(12, 10, 5.0, 1.0), 0.7)),
        Case("a single row, a third", (drawn(1, 40, 1.5, 2.0), 1 / 3)),
    ]


def _lines(generator: torch.Generator) -> list[Case]:
    def drawn(n_last: int, n_tokens: int, sharp: float, near: float = 0.0) -> tuple[Tensor]:
        query, key = torch.arange(n_tokens - n_last, n_tokens)[:, None], torch.arange(n_tokens)
        logits = sharp * _randn(generator, n_last, n_tokens) - near * (query - key)
        return (logits.masked_fill(key > query, -torch.inf).softmax(dim=1),)

    return [
        Case("64 queries of 200 tokens", drawn(64, 200, 2.0)),
        Case("queries that attend to near keys", drawn(6, 25, 0.5, 0.6)),
        Case("two queries, peaked", drawn(2, 13, 5.0)),
        Case("all queries of a text of 12", drawn(12, 12, 1.0)),
        Case("all except the first query", drawn(9, 10, 2.0)),
    ]


def _block_mask(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, size: int, share: float) -> tuple[Tensor, Tensor, int, int]:
        n = -(-n_tokens // size)
        columns, diagonals = _rand(generator, 2, n) < share
        columns[n // 2] = True
        columns[0] = diagonals[0] = False
        return columns, diagonals, n_tokens, size

    return [
        Case("101 tokens in blocks of 16", drawn(101, 16, 0.2)),
        Case("33 tokens in blocks of 8, the last of one", drawn(33, 8, 0.3)),
        Case("blocks of three, few lines", drawn(43, 3, 0.1)),
        Case("nearly everything", drawn(58, 9, 0.8)),
        Case("64 tokens in blocks of 16", drawn(64, 16, 0.3)),
    ]


def _delta(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_channels: int, step: float, low: float, size: float = 1.0) -> tuple[Tensor, Tensor]:
        walk = step * _randn(generator, n_tokens, n_channels).cumsum(dim=0) + 2 * _randn(generator, 1, n_channels)
        return size * walk, size * (low + _rand(generator, n_channels))

    keys, theta = drawn(15, 6, 0.5, 0.3)
    return [
        Case("60 tokens that change slowly", drawn(60, 8, 0.2, 0.5)),
        Case("large keys", drawn(20, 5, 0.5, 0.4, 500.0)),
        Case("a single channel", drawn(25, 1, 0.6, 0.5)),
        Case("thresholds of 0 and others side by side", (keys, theta * (torch.arange(6) % 2))),
        Case(
            "keys that do not move at all, then jump",
            (keys[:1].expand(15, -1) + (torch.arange(15) > 8)[:, None], theta),
        ),
    ]


def _steer(generator: torch.Generator) -> list[Case]:
    def drawn(n_heads: int, n_new: int, n_tokens: int, n_prompt: int, alpha: float) -> tuple[Any, ...]:
        logits = 2 * _randn(generator, n_heads, n_new, n_tokens)
        later = torch.arange(n_tokens) > torch.arange(n_tokens - n_new, n_tokens)[:, None]
        highlighted = _rand(generator, n_prompt) < 0.5
        highlighted[:3] = torch.tensor([False, False, True])
        chosen = _rand(generator, n_heads) < 0.5
        chosen[:2] = torch.tensor([True, False])
        return logits.masked_fill(later, -1e4), highlighted, chosen, alpha

    logits, highlighted, chosen, _ = drawn(6, 4, 20, 14, 0.5)
    return [
        Case("12 heads, half of the weight", drawn(12, 2, 18, 12, 0.5)),
        Case("a thousandth", (logits, highlighted, chosen, 1e-3)),
        Case("many generated tokens", drawn(3, 9, 24, 6, 0.05)),
        Case("all of the prompt highlighted except the first", (logits, torch.arange(14) > 0, chosen, 0.1)),
        Case("a prompt and nothing else", drawn(4, 10, 10, 10, 0.2)),
    ]


def _recycle(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, n_pixels: int, n_cells: int, alpha: float, levels: int) -> tuple[Any, ...]:
        grey = torch.randint(0, levels, (n, n_pixels), generator=generator) * (255 // levels)
        grey[::5] = grey[::5, :1]
        grey[1::5] = torch.randint(0, 256, grey[1::5].shape, generator=generator)
        cell = torch.cat([torch.full((4,), -1), torch.arange(n - 4) % n_cells])[torch.randperm(n, generator=generator)]
        return grey, _randn(generator, n).exp(), alpha, _randn(generator, n, 6), cell

    return [
        Case("patches of two levels and of many", drawn(20, 16, 4, 5.0, 2)),
        Case("100 tokens, 9 cells", drawn(100, 16, 9, 8.0, 5)),
        Case("patches of 14 × 14 pixels", drawn(12, 196, 3, 3.0, 12)),
        Case("many cells of one or two tokens", drawn(18, 9, 10, 2.0, 3)),
        Case("a single cell", drawn(11, 25, 1, 10.0, 7)),
    ]


def _accept(generator: torch.Generator) -> list[Case]:
    def drawn(k: int, n_words: int, falls_at: int | None, apart: float = 0.8) -> tuple[Any, ...]:
        """Drafted tokens that the draft likes too much: one is rejected, and those after it would be accepted."""
        logits = 1.5 * _randn(generator, k + 1, n_words)
        p, q = logits.softmax(dim=1), (logits[:k] + apart * _randn(generator, k, n_words)).softmax(dim=1)
        drafted = (q - p[:k]).argmax(dim=1)
        ratio = (p[torch.arange(k), drafted] / q[torch.arange(k), drafted]).clamp(max=1)
        luck = ratio * (0.1 + 0.8 * _rand(generator, k))
        if falls_at is not None:
            luck[falls_at] = ratio[falls_at] + (1 - ratio[falls_at]) * 0.6
        return drafted, q, p, luck

    return [
        Case("8 tokens, the sixth rejected", drawn(8, 12, 5)),
        Case("a draft far from its target model", drawn(3, 20, 1, 3.0)),
        Case("6 tokens, all accepted", drawn(6, 9, None)),
        Case("a vocabulary of two tokens", drawn(4, 2, 2)),
        Case("a vocabulary of 500 tokens, the first rejected", drawn(4, 500, 0)),
    ]


HIDDEN = {
    "sparse_attention.divergence": _divergence,
    "sparse_attention.smallest_set": _smallest_set,
    "sparse_attention.lines": _lines,
    "sparse_attention.block_mask": _block_mask,
    "sparse_attention.delta": _delta,
    "sparse_attention.steer": _steer,
    "sparse_attention.recycle": _recycle,
    "sparse_attention.accept": _accept,
}
