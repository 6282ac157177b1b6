"""The exercise patterns.choose, "Choose a format": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes


def fits_two_of_four(keep: Tensor) -> bool:
    """Whether at most two of every four neighbours of a row are kept."""
    return keep.shape[1] % 4 == 0 and int(keep.long().unflatten(1, (-1, 4)).sum(2).max()) <= 2


def _used_columns(keep: Tensor) -> int:
    return int((keep.sum(0) > 0).sum())


def choose(
    keep: Tensor,
    sizes: dict[str, int],
    value_bytes: int,
    fits: Callable[[Tensor], bool] = fits_two_of_four,
    n_columns: Callable[[Tensor], int] = _used_columns,
    column_bytes: Callable[[int, int], int] = lambda rows, value_bytes: rows * value_bytes + 4,
    best: Callable = min,
) -> tuple[str, int]:
    """The format and its bytes; mistakes change one of the last four settings."""
    able = {name: size for name, size in sizes.items() if name != "2:4" or fits(keep)}
    able["columns"] = n_columns(keep) * column_bytes(len(keep), value_bytes)
    name, n_bytes = best(able.items(), key=lambda pair: pair[1])
    return name, n_bytes


def case_of(name: str, keep: Tensor, value_bytes: int = 2) -> Case:
    """A mask with its sizes in the four formats of patterns.bytes. 2:4 is one of them, whether or not the mask fits."""
    (rows, columns), n_stored = keep.shape, int(keep.sum())
    per_row, row_starts = -(-columns // 8), 4 * rows + 4
    sizes = {
        "dense": rows * columns * value_bytes,
        "CSR": n_stored * (value_bytes + 4) + row_starts,
        "bitmap": n_stored * value_bytes + rows * per_row + row_starts,
        "2:4": rows * (columns // 2 * value_bytes + per_row),
    }
    return Case(name, (keep, sizes, value_bytes))


def two_of_four(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """A random mask with exactly two of every four."""
    return (torch.rand(rows, columns // 4, 4, generator=generator).argsort(2) < 2).flatten(1)


def of_columns(rows: int, columns: int, kept: list[int]) -> Tensor:
    """A mask that keeps whole columns."""
    keep = torch.zeros(rows, columns, dtype=torch.bool)
    keep[:, kept] = True
    return keep


def random_mask(generator: torch.Generator, rows: int, columns: int, density: float) -> Tensor:
    """Keep this fraction of all entries at random, and also the first group of four and the first column."""
    keep = torch.zeros(rows * columns, dtype=torch.bool)
    keep[torch.randperm(rows * columns, generator=generator)[: int(density * rows * columns)]] = True
    keep = keep.reshape(rows, columns)
    keep[0, :4] = True
    keep[:, 0] = True
    return keep


def _cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[1, 1, 0, 0, 0, 0, 1, 1], [0, 1, 0, 1, 1, 1, 0, 0]]).bool()
    one_less = two_of_four(generator, 24, 32)
    one_less[3, 8:12] = torch.tensor([0, 0, 1, 0]).bool()
    three = two_of_four(generator, 24, 32)
    three[5, 4:12] = torch.tensor([1, 1, 1, 0, 0, 0, 1, 0]).bool()  # as many in the row, three in one group
    one_more = two_of_four(generator, 24, 32)
    one_more[11, 16:20] = torch.tensor([1, 0, 1, 1]).bool()
    few = torch.zeros(40, 100, dtype=torch.bool)
    few[torch.arange(40), torch.randperm(100, generator=generator)[:40]] = True
    return [
        case_of("2 × 8 by hand, two of every four", by_hand),
        case_of("two of every four, except for one group with a single weight", one_less),
        case_of("half of each row, three of one group", three),
        case_of("two of every four, except for one group with three", one_more),
        case_of("ten inputs, all kept: no groups of four", torch.ones(6, 10, dtype=torch.bool)),
        case_of("three of every four columns are removed", of_columns(20, 16, [0, 5, 10, 15])),
        case_of("seven columns of 16, three of them neighbours", of_columns(40, 16, [0, 1, 2, 6, 9, 12, 13])),
        case_of("a single column", of_columns(20, 16, [7])),
        case_of("eight neighbouring columns of 16", of_columns(8, 16, list(range(8)))),
        case_of("whole rows: two of every four", torch.tensor([1, 1, 0, 0] * 4).bool()[:, None].repeat(1, 16)),
        case_of("one weight per row", few),
        case_of("a random half, float32", random_mask(generator, 30, 64, 0.5), 4),
        case_of("one of every four, a quarter of the groups empty", _sparse_groups(generator)),
    ]


def _sparse_groups(generator: torch.Generator) -> Tensor:
    """A mask that fits 2:4, although a bitmap is smaller, because 2:4 would store many zeros."""
    keep = (torch.rand(24, 8, 4, generator=generator).argsort(2) < 1).flatten(1)
    keep[:6] = False
    return keep


def _exactly_two(keep: Tensor) -> bool:
    return keep.shape[1] % 4 == 0 and bool((keep.unflatten(1, (-1, 4)).sum(2) == 2).all())


def _half_of_each_row(keep: Tensor) -> bool:
    return bool((keep.sum(1) <= keep.shape[1] // 2).all())


def _half_in_all(keep: Tensor) -> bool:
    return int(keep.sum()) <= keep.numel() // 2


def _down(keep: Tensor) -> bool:
    return fits_two_of_four(keep.T.contiguous())


def _strided(keep: Tensor) -> bool:
    return keep.shape[1] % 4 == 0 and int(keep.unflatten(1, (4, -1)).sum(1).max()) <= 2


def _at_least_two(keep: Tensor) -> bool:
    return keep.shape[1] % 4 == 0 and int(keep.unflatten(1, (-1, 4)).sum(2).min()) >= 2


def _library(keep: Tensor, sizes: dict[str, int], value_bytes: int) -> tuple[str, int]:
    from course_lib.sparsity.choice import bytes_by_format, cheapest

    every = bytes_by_format(keep, value_bytes)
    able = {name: every[name] for name in ("dense", "CSR", "bitmap", "2:4") if name in every}
    able["columns"] = int(keep.any(0).sum()) * (keep.shape[0] * value_bytes + 4)
    return cheapest(able), min(able.values())


CHOOSE = Exercise(
    id="patterns.choose",
    title="Choose a format",
    difficulty=3,
    minutes=10,
    points=3,
    reference=choose,
    cases=_cases,
    library=_library,
    trivial=(
        Trivial("always choosing the bitmap", lambda k, s, v: ("bitmap", s["bitmap"])),
        Trivial("always choosing 2:4", lambda k, s, v: ("2:4", s["2:4"])),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("a loop over the formats", lambda k, s, v: _in_a_loop(k, s, v)),
        Variant("sorted pairs, as a list", lambda k, s, v: _by_sorting(k, s, v)),
    ),
    hints=(
        "Which of the formats can store every mask? Which one cannot, and what do you have to count to find out?",
        "keep.unflatten(1, (-1, 4)).sum(2) counts each group, where the width is a multiple of 4; keep.any(0) marks "
        "the columns in which anything is kept.",
        'Copy sizes, remove "2:4" if a group keeps three or more, add "columns", and take the smallest: '
        "min(able, key=able.get).",
    ),
)


def _in_a_loop(keep: Tensor, sizes: dict[str, int], value_bytes: int) -> tuple[str, int]:
    groups = [row[at : at + 4] for row in keep.tolist() for at in range(0, len(row), 4)]
    used = sum(any(column) for column in zip(*keep.tolist(), strict=True))
    best = ("columns", used * (len(keep) * value_bytes + 4))
    for name, size in sizes.items():
        holds = name != "2:4" or all(len(group) == 4 and sum(group) < 3 for group in groups)
        best = (name, size) if holds and size < best[1] else best
    return best


def _by_sorting(keep: Tensor, sizes: dict[str, int], value_bytes: int) -> list:
    used = keep.sum(0).count_nonzero().item()
    pairs = [*sizes.items(), ("columns", used * (keep.shape[0] * value_bytes + 4))]
    pairs = sorted(pairs, key=lambda pair: pair[1])
    if not fits_two_of_four(keep):
        pairs = [pair for pair in pairs if pair[0] != "2:4"]
    return list(pairs[0])
