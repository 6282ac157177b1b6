"""Sparse prefill in plain loops over heads, queries and keys: what the library is held to."""

import math

import torch
from torch import Tensor


def draw(generator: torch.Generator, n_heads: int, n_groups: int, n_tokens: int, size: int = 8, sharp: float = 3.0):
    """Queries, keys and values of a text; `sharp` makes some keys matter more than others."""
    query = sharp * torch.randn(n_heads * n_groups, n_tokens, size, generator=generator)
    keys, values = torch.randn(2, n_heads, n_tokens, size, generator=generator)
    return query, keys, values


def weights(query: Tensor, keys: Tensor, scaling: float, head: int, i: int) -> list[float]:
    """Softmax attention of one query, over the keys up to its own."""
    mine = keys[head // (query.shape[0] // keys.shape[0])].double()
    logits = [scaling * float(query[head, i].double() @ mine[j]) for j in range(i + 1)]
    shares = [math.exp(logit - max(logits)) for logit in logits]
    return [share / sum(shares) for share in shares]


def attention(query: Tensor, keys: Tensor, values: Tensor, reads: Tensor, block_size: int, scaling: float) -> Tensor:
    """Query by query, in float64."""
    output = torch.zeros(*query.shape[:2], values.shape[2], dtype=torch.float64)
    for head in range(query.shape[0]):
        shared = head // (query.shape[0] // keys.shape[0])
        for i in range(query.shape[1]):
            seen = [j for j in range(i + 1) if reads[head, i // block_size, j // block_size]]
            logits = scaling * keys[shared, seen].double() @ query[head, i].double()
            output[head, i] = logits.softmax(dim=0) @ values[shared, seen].double()
    return output


def enough(mass: list[float], share: float, at_least: int, always: list[int]) -> set[int]:
    """The forced entries, then the largest, until they hold the share."""
    rest = sorted((i for i in range(len(mass)) if i not in always), key=lambda i: -mass[i])
    chosen = []
    for i in [*always, *rest]:
        if len(chosen) >= max(at_least, len(always)) and sum(mass[k] for k in chosen) >= share * sum(mass):
            break
        chosen.append(i)
    return set(chosen)


def flexprefill(query: Tensor, keys: Tensor, scaling: float, size: int, gamma: float, tau: float, budget: int):
    """reads[h][i][j] and which heads are query-aware, from loops; the budget in blocks."""
    n_heads, n_tokens = query.shape[:2]
    n = math.ceil(n_tokens / size)
    last = range(n_tokens - size, n_tokens)
    reads, aware = torch.zeros(n_heads, n, n, dtype=torch.bool), torch.zeros(n_heads, dtype=torch.bool)
    for head in range(n_heads):
        mine = keys[head // (n_heads // keys.shape[0])].double()
        mean_key = [mine[j * size : (j + 1) * size].mean(0) for j in range(n)]
        column, diagonal = [0.0] * n, [0.0] * n
        for i in last:
            for j, weight in enumerate(weights(query, keys, scaling, head, i)):
                column[j // size] += weight / size
                k, r = divmod(i - j, size)
                diagonal[k] += weight / size * (size - r) / size
                diagonal[min(k + 1, n - 1)] += weight / size * r / size
        mean_query = query[head, n_tokens - size :].double().mean(0)
        guess = torch.stack([scaling * mean_query @ key for key in mean_key]).softmax(dim=0).tolist()
        aware[head] = _divergence(guess, column) < tau
        share = 0.0 if aware[head] else gamma
        columns, diagonals = enough(column, share, budget, [0]), enough(diagonal, share, budget, [0])
        for i in range(n):
            for j in range(i + 1):
                reads[head, i, j] = j in columns or i - j in diagonals
        if aware[head]:
            reads[head] |= _asked_for(query[head].double(), mean_key, scaling, size, gamma)
    return reads, aware


def _divergence(p: list[float], q: list[float]) -> float:
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total += sum(x * math.log(x / m) / 2 for x in (a, b) if x > 0)
    return math.sqrt(max(total, 0.0))


def _asked_for(query: Tensor, mean_key: list[Tensor], scaling: float, size: int, gamma: float) -> Tensor:
    """The blocks of one head that the means of its queries ask for."""
    n, places, mass = len(mean_key), [], []
    for i in range(n):
        mean_query = query[i * size : (i + 1) * size].mean(0)
        row = torch.stack([scaling * mean_query @ mean_key[j] for j in range(i + 1)]).softmax(dim=0)
        places += [(i, j) for j in range(i + 1)]
        mass += row.tolist()
    always = [k for k, (i, j) in enumerate(places) if j in (0, i)]
    reads = torch.zeros(n, n, dtype=torch.bool)
    for k in enough(mass, gamma, 1, always):
        reads[places[k]] = True
    return reads
