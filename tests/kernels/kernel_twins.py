"""Slow twins of the kernels: plain Python loops in float64 over the bytes of the formats, one named after each kernel.

A twin returns, for each output of the kernel, the exact value and the error that the kernel is allowed.
"""

import numpy
import torch
from torch import Tensor

Expected = tuple[Tensor, Tensor]  # exact value in float64, largest error allowed


def nm_matmul(inputs, weight) -> list[Expected]:
    value, place = weight.values.double().tolist(), weight.positions.tolist()
    n, m = weight.n, weight.m
    exact = torch.zeros(*inputs.shape[:-1], weight.shape[0], dtype=torch.float64)
    size = torch.zeros_like(exact)
    for t, x in enumerate(inputs.double().tolist()):
        for o in range(weight.shape[0]):
            columns = [j // n * m + (place[o][j // 4] >> 2 * (j % 4)) % 4 for j in range(len(value[o]))]
            terms = [v * x[i] for v, i in zip(value[o], columns, strict=True)]
            exact[t, o], size[t, o] = sum(terms), sum(map(abs, terms))
    return [(exact, _rounding(exact, size, weight.values.shape[1], inputs.dtype))]


def bitmap_matvec(inputs, weight) -> list[Expected]:
    x, values, bitmap = inputs.double().tolist(), weight.values.double().tolist(), weight.bitmap.tolist()
    exact, size = torch.zeros(2, weight.shape[0], dtype=torch.float64)
    at = 0
    for o in range(weight.shape[0]):
        for i in range(weight.shape[1]):
            if bitmap[o][i // 8] >> (i % 8) & 1:
                exact[o] += values[at] * x[i]
                size[o] += abs(values[at] * x[i])
                at += 1
    return [(exact, _rounding(exact, size, weight.shape[1], inputs.dtype))]


def wanda_mask(weight, norm, n, m) -> list[Expected]:
    keep = torch.ones(weight.shape, dtype=torch.float64)
    w, x = weight.float().numpy(), norm.numpy()
    for o in range(weight.shape[0]):
        for start in range(0, weight.shape[1], m):
            score = [(numpy.abs(w[o, i]) * x[i], i) for i in range(start, start + m)]  # one product in float32
            for _, i in sorted(score)[: m - n]:  # ties: the lower index leaves first
                keep[o, i] = 0
    exact = weight.double() * keep
    return [(exact, torch.zeros_like(exact)), (keep, torch.zeros_like(keep))]


def sparsegpt_columns(weight, upper, keep, n, m) -> list[Expected]:
    """With each number its error, were each step of the loop rounded to float32 (running error analysis)."""
    rows, width = weight.shape
    u, unit = upper.double().tolist(), 2.0**-23
    exact, allowed, made, made_allowed = torch.zeros(4, rows, width, dtype=torch.float64)
    for o in range(rows):
        w, off = weight[o].double().tolist(), [0.0] * width
        stays = [True] * width if keep is None else keep[o].tolist()
        for i in range(width):
            if keep is None and i % m == 0:
                cost = [(abs(w[j] / u[j][j]), j) for j in range(i, i + m)]
                for _, j in sorted(cost)[: m - n]:
                    stays[j] = False
            if not stays[i]:
                error = w[i] / u[i][i]
                wrong = off[i] / u[i][i] + unit * abs(error)
                made[o, i], made_allowed[o, i], w[i], off[i] = error, wrong, 0.0, 0.0
                for j in range(i + 1, width):
                    w[j] -= error * u[i][j]
                    off[j] += wrong * abs(u[i][j]) + unit * (abs(error * u[i][j]) + abs(w[j]))
        exact[o], allowed[o] = torch.tensor(w, dtype=torch.float64), torch.tensor(off, dtype=torch.float64)
    return [(x, a + _rounding(x, x.abs(), 0, weight.dtype)) for x, a in ((exact, allowed), (made, made_allowed))]


def _rounding(exact: Tensor, size: Tensor, n_terms: int, dtype: torch.dtype) -> Tensor:
    """A float32 sum of n products in any order errs by at most (n + 1) * 2^-24 of the sum of their sizes.

    Twice that, since tensor cores may truncate where float32 rounds; then one unit in the last place of the output,
    since the interpreter truncates to bfloat16; then the smallest number that the output type tells from zero.
    """
    kind = torch.finfo(dtype)
    return 2 * (n_terms + 1) * 2.0**-24 * size + kind.eps * exact.abs() + kind.smallest_normal * kind.eps
