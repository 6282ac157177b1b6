"""The hidden cases of lesson 00: numbers closer to zero, other machines, sizes of one.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

import torch

from course_lib.checking.exercise import Case


def _sparsity(generator: torch.Generator) -> list[Case]:
    """Return cases of which all but one hold numbers that are nearly zero."""

    def faint(size: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        numbers = (0.1 + torch.rand(*shape, generator=generator, dtype=dtype)) * size
        return numbers * torch.randint(-1, 2, shape, generator=generator)  # a third zero, a third negative

    half = torch.cat([torch.randint(-2, 3, (8, 2), generator=generator), torch.zeros(1, 2)])
    whole = torch.cat([half, -half], dim=1)  # the mean is 0, so it is never the fraction of zeros
    return [
        Case("a single number, nearly zero", (torch.tensor(1e-9),)),
        Case("tiny numbers in float64", (faint(1e-12, 6, 7, dtype=torch.float64),)),
        Case("a long vector of tiny numbers", (faint(1e-20, 1000),)),
        Case("four axes, one of length 1", (faint(1e-9, 3, 1, 4, 5),)),
        Case("whole numbers", (whole,)),
    ]


def _intensity(generator: torch.Generator) -> list[Case]:
    n_tokens = int(torch.randint(100, 4000, (), generator=generator))
    return [
        Case("one weight, one token, one byte per number", (1, 1, 1, 1)),
        Case("4-bit numbers, as many tokens as inputs", (640, 320, 320, 0.5)),
        Case("a single output", (1, 2048, n_tokens, 8)),
    ]


def _step_seconds(generator: torch.Generator) -> list[Case]:
    slow = 1e9 * (1 + torch.rand(3, generator=generator, dtype=torch.float64))
    seven = torch.rand(2, 7, generator=generator, dtype=torch.float64) + 0.1
    return [
        Case("integers: 3 and 1 seconds of arithmetic, 2 and 4 of reading", (row(6, 2), row(10, 20), 2, 5)),
        Case("memory-bound by two per cent", (row(1e12), row(1.02e11), 1e12, 1e11)),
        Case("an accelerator, arithmetic and then memory", (row(5e15, 4e12), row(4e9, 8e11), 3e14, 2e12)),
        Case("every layer is memory-bound, on a slow machine", (slow, 2 * slow.flip(0), 5e9, 1e8)),
        Case("seven layers, some of each kind", (8e14 * seven[0], 2e12 * seven[1], 3e14, 2e12)),
    ]


def row(*values: int | float) -> torch.Tensor:
    """Return a vector with one number per layer."""
    return torch.tensor(values, dtype=torch.float64)


def _speedup(generator: torch.Generator) -> list[Case]:
    fraction, left = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    large = 0.6 + 0.3 * fraction
    return [
        Case("a goal of 1: no speedup needed", (0.3, 1.0)),
        Case("a small part cannot double the speed", (0.02, 2.0)),
        Case("three quarters of the time, 4 times as fast: exactly at the limit", (0.75, 4.0)),
        Case("99.9 % of the time, 100 times as fast", (0.999, 100.0)),
        Case("a large part, close to its limit", (large, 1 / (1 - large + 0.05 + 0.05 * left))),
    ]


def _cache_bytes(generator: torch.Generator) -> list[Case]:
    blocks, heads, tokens, batch = torch.randint(2, 90, (4,), generator=generator).tolist()
    return [
        Case("one key-value head for 32 query heads", (22, 32, 1, 64, 300, 5, 2)),
        Case("no shared heads, a million tokens, one byte per number", (48, 40, 40, 128, 2**20, 3, 1)),
        Case("random sizes, float32, several sequences", (blocks, 7 * heads, heads, 80, tokens, batch, 4)),
    ]


HIDDEN = {
    "start.sparsity": _sparsity,
    "start.intensity": _intensity,
    "start.step_seconds": _step_seconds,
    "start.speedup": _speedup,
    "start.cache_bytes": _cache_bytes,
}
