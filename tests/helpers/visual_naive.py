"""VFlowOpt's steps in plain loops over images, patches and cells: what the library is held to."""

import math
from collections import Counter

import torch
from torch import Tensor


def entropy(image: Tensor, patch: int) -> list[float]:
    """Bits of each patch, row by row, counted with a dictionary."""
    found = []
    for top in range(0, len(image), patch):
        for left in range(0, len(image), patch):
            levels = Counter(image[top : top + patch, left : left + patch].flatten().tolist())
            shares = [n / patch**2 for n in levels.values()]
            found.append(sum(-share * math.log2(share) for share in shares))
    return found


def importance(attention: Tensor, bits: Tensor, t: float, alpha: float) -> list[float]:
    """Equations 1 to 4 of one image."""
    n = len(attention)
    received = [sum(float(attention[i, j]) for i in range(n)) for j in range(n)]
    asked = [j for j in range(n) if received[j] > t * sum(received) / n]
    exponentials = [math.exp(bit) for bit in bits.tolist()]
    rest = [each / sum(exponentials) for each in exponentials]
    return [sum(float(attention[k, i]) for k in asked) + alpha * rest[i] for i in range(n)]


def recycled(tokens: Tensor, weights: list[float], count: int, side: int) -> tuple[Tensor, list[int]]:
    """One image: the lowest are pruned one by one, the later of equals first, until kept and fused are `count`."""
    n, width = len(tokens), math.isqrt(len(tokens))
    order = sorted(range(n), key=lambda i: (weights[i], -i))
    by_cell: dict[tuple[int, int], list[int]] = {}
    n_pruned = 0
    while n - n_pruned + len(by_cell) > count:
        i = order[n_pruned]
        by_cell.setdefault((i // width // side, i % width // side), []).append(i)
        n_pruned += 1
    kept = {i: tokens[i].double() for i in order[n_pruned:]}
    for members in by_cell.values():
        strongest = min(members, key=lambda i: (-weights[i], i))
        kept[strongest] = sum(weights[i] * tokens[i].double() for i in members) / sum(weights[i] for i in members)
    return torch.stack([kept[i] for i in sorted(kept)]), sorted(kept)
