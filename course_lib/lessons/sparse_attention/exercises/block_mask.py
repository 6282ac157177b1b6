"""The exercise sparse_attention.block_mask, "A mask of blocks": its cases and its named mistakes.

Dimension key: T tokens in N blocks of S, the last of them ragged; i a block of queries, j a block of keys.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor, int, int], Any]
Blocks = Callable[[Tensor, Tensor], Tensor]  # (columns, diagonals) -> (N, N)


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    mine = torch.as_tensor(got).float()
    return compare_matrices(mine, expected.float(), "query", "key; light: read")


def _distance(n: int) -> Tensor:
    return torch.arange(n)[:, None] - torch.arange(n)


def _lines(columns: Tensor, diagonals: Tensor) -> Tensor:
    n = len(columns)
    return columns.expand(n, n) | diagonals[_distance(n).clamp(min=0)]


def _always(n: int, first: bool = True, own: bool = True) -> Tensor:
    always = torch.zeros(n, n, dtype=torch.bool)
    always[:, 0] = first
    return always | torch.eye(n, dtype=torch.bool) if own else always


def _blocks(columns: Tensor, diagonals: Tensor) -> Tensor:
    n = len(columns)
    return (_lines(columns, diagonals) | _always(n)) & torch.ones(n, n, dtype=torch.bool).tril()


def _whole(reads: Tensor, n_tokens: int, size: int) -> Tensor:
    """Every token of a block like its block, future or not."""
    block = torch.arange(n_tokens) // size
    return reads[block[:, None], block]


def _causal(n: int, strictly: int = 0) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril(-strictly)


def _with(blocks: Blocks = _blocks, spread: Callable[[Tensor, int, int], Tensor] = _whole) -> Answer:
    return lambda c, d, t, s: spread(blocks(c, d), t, s) & _causal(t)


def _padded(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    whole = len(c) * s
    return _whole(_blocks(c, d), whole, s) & _causal(whole)


def _cut(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    """Only whole blocks."""
    return _with()(c, d, t, s)[: t // s * s, : t // s * s]


def _ragged_unread(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    mask = _with()(c, d, t, s)
    mask[t // s * s :] = False
    return mask


def _ragged_keys_unread(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    mask = _with()(c, d, t, s)
    mask[:, t // s * s :] = False
    return mask


def _ragged_first(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    """Blocks counted from the end, so that the first is the short one."""
    block = (torch.arange(t) + (-t) % s) // s
    return _blocks(c, d)[block[:, None], block] & _causal(t)


def _by_token_distance(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    """Diagonals by the distance of the tokens over S."""
    block, apart = torch.arange(t) // s, (_distance(t).clamp(min=0)) // s
    own = block[:, None] == block
    return (c[block].expand(t, t) | d[apart] | own | (block == 0)) & _causal(t)


def _first_token_alone(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    mask = _with(lambda c, d: (_lines(c, d) | _always(len(c), first=False)) & _causal(len(c)))(c, d, t, s)
    mask[:, 0] = True
    return mask


def _own_token_alone(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    mask = _with(lambda c, d: (_lines(c, d) | _always(len(c), own=False)) & _causal(len(c)))(c, d, t, s)
    return mask | torch.eye(t, dtype=torch.bool)


def _columns_of_tokens(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    """Column j read as key j."""
    keys = torch.zeros(t, dtype=torch.bool)
    keys[: len(c)] = c
    return _with(lambda c, d: _blocks(c & False, d))(c, d, t, s) | keys & _causal(t)


def _diagonals_of_tokens(c: Tensor, d: Tensor, t: int, s: int) -> Tensor:
    """Diagonal k read at a distance of k tokens."""
    distances = torch.zeros(t, dtype=torch.bool)
    distances[: len(d)] = d
    near = distances[_distance(t).clamp(min=0)] & _causal(t)
    return _with(lambda c, d: _blocks(c, d & False))(c, d, t, s) | near


def _wrapped(c: Tensor, d: Tensor) -> Tensor:
    n = len(c)
    return c.expand(n, n) | d[_distance(n)] | _always(n)


def _mask_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, size: int, share: float = 0.25) -> tuple[Tensor, Tensor, int, int]:
        n = -(-n_tokens // size)
        columns, diagonals = torch.rand(2, n, generator=generator) < share
        columns[min(n - 1, 2)] = True
        columns[0] = diagonals[0] = False
        return columns, diagonals, n_tokens, size

    def of(n: int, *places: int) -> Tensor:
        return torch.isin(torch.arange(n), torch.tensor(places, dtype=torch.long))

    lone, size = torch.zeros(6, dtype=torch.bool), 4
    return [
        Case("5 tokens in blocks of 2 by hand: nothing chosen", (of(3), of(3), 5, 2)),
        Case("11 tokens in blocks of 2: column 3, no diagonal", (of(6, 3), of(6), 11, 2)),
        Case("9 tokens in blocks of 2: the diagonal at distance 2", (of(5), of(5, 2), 9, 2)),
        Case("23 tokens in blocks of 4", drawn(23, size)),
        Case("30 tokens in blocks of 5, none of which is ragged", drawn(30, 5)),
        Case("nothing chosen, the last block a single token", (lone, lone, 21, size)),
        Case("blocks of one token", drawn(12, 1)),
        Case("40 tokens in blocks of 7, many lines", drawn(40, 7, 0.5)),
    ]


def _library(columns: Tensor, diagonals: Tensor, n_tokens: int, block_size: int) -> Tensor:
    from course_lib.lessons.sparse_attention.steps import token_mask

    return token_mask(columns, diagonals, n_tokens, block_size)


BLOCK_MASK = Exercise(
    id="sparse_attention.block_mask",
    title="A mask of blocks",
    difficulty=3,
    minutes=11,
    points=3,
    reference=_with(),
    cases=_mask_cases,
    picture=_picture,
    library=_library,
    trivial=(
        Trivial("reading everything before", lambda c, d, t, s: _causal(t)),
        Trivial(
            "reading the first block and the own one",
            lambda c, d, t, s: _with(lambda c, d: _always(len(c)))(c, d, t, s),
        ),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("token by token", lambda c, d, t, s: _in_loops(c, d, t, s)),
        Variant(
            "repeated and cut",
            lambda c, d, t, s: _blocks(c, d).repeat_interleave(s, 0).repeat_interleave(s, 1)[:t, :t].tril(),
        ),
        Variant("zeros and ones", lambda c, d, t, s: _with()(c, d, t, s).long()),
        Variant(
            "a product of Kronecker",
            lambda c, d, t, s: torch.kron(_blocks(c, d).long(), torch.ones(s, s))[:t, :t].tril(),
        ),
    ),
    hints=(
        "Work with blocks first, an N × N map. Column j of blocks is [:, j]; diagonal k is where i − j = k.",
        "Set the first column and the main diagonal. Then token q lies in block q // S: index the map with that.",
        "At last, tokens: a query reads no key later than itself, in whichever block.",
    ),
)


def _in_loops(columns: Tensor, diagonals: Tensor, n_tokens: int, size: int) -> Tensor:
    mask = torch.zeros(n_tokens, n_tokens, dtype=torch.bool)
    for q in range(n_tokens):
        for k in range(q + 1):
            i, j = q // size, k // size
            mask[q, k] = bool(columns[j]) or bool(diagonals[i - j]) or j == 0 or i == j
    return mask
