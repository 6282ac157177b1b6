"""The exercise capstone.split, "Where the next byte goes": its cases and its named mistakes.

Dimension key: P parts, L levels of each, from the smallest to the largest.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor, int], Any]
Worth = Callable[[Tensor, Tensor, int, int], float]  # (sizes, losses, part, its level) -> of one level more


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """The levels, and in words what the first other one costs."""
    problem = close(got, expected)
    if problem is None:
        return None
    mine = torch.as_tensor(got) if not isinstance(got, (str, dict)) else None
    sizes, losses, budget = case.arguments
    whole = mine is not None and mine.shape == expected.shape and not mine.is_floating_point()
    if not whole or mine.dtype == torch.bool or mine.min() < 0 or mine.max() >= sizes.shape[1]:
        return problem
    total = [int(sizes.gather(1, levels.long()[:, None]).sum()) for levels in (mine, expected)]
    loss = [float(losses.gather(1, levels.long()[:, None]).sum()) for levels in (mine, expected)]
    return (
        f"{problem}. Yours takes {total[0]} of {budget} bytes and loses {loss[0]:.3f}, expected {total[1]} and "
        f"{loss[1]:.3f}"
    )


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    names = tuple(f"part {p}" for p in range(len(expected)))
    return compare_bars(torch.as_tensor(got), expected, names, "level")


def _per_byte(sizes: Tensor, losses: Tensor, part: int, level: int) -> float:
    saved, more = losses[part, level] - losses[part, level + 1], sizes[part, level + 1] - sizes[part, level]
    return float(saved.double() / more)


def _per_step(sizes: Tensor, losses: Tensor, part: int, level: int) -> float:
    return float(losses[part, level].double() - losses[part, level + 1])


def _per_total_byte(sizes: Tensor, losses: Tensor, part: int, level: int) -> float:
    """Divided by the size of the level, not by what it takes more."""
    return float((losses[part, level].double() - losses[part, level + 1]) / sizes[part, level + 1])


def _from_the_first(sizes: Tensor, losses: Tensor, part: int, level: int) -> float:
    """As if every step began at the smallest level."""
    return float((losses[part, 0].double() - losses[part, level + 1]) / (sizes[part, level + 1] - sizes[part, 0]))


def _fewest_bytes(sizes: Tensor, losses: Tensor, part: int, level: int) -> float:
    return -float(sizes[part, level + 1] - sizes[part, level])


def _worst_part(sizes: Tensor, losses: Tensor, part: int, level: int) -> float:
    return float(losses[part, level])


def _used(sizes: Tensor, levels: list[int]) -> int:
    return sum(int(sizes[part, level]) for part, level in enumerate(levels))


def _greedy(
    worth: Worth = _per_byte,
    fits: Callable[[int, int], bool] = lambda used, budget: used <= budget,
    ends: bool = False,
    start: Callable[[Tensor], int] = lambda sizes: 0,
    once: bool = False,
    largest: bool = True,
) -> Answer:
    """ends: at the first step that does not fit. once: what a step is worth is never found again."""

    def answer(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
        n_parts, n_levels = sizes.shape
        levels = [0] * n_parts
        while True:
            steps, before = [], _used(sizes, levels) - start(sizes)
            for part, level in enumerate(levels):
                if level + 1 < n_levels:
                    used = before + int(sizes[part, level + 1] - sizes[part, level])
                    value = worth(sizes, losses, part, 0 if once else level)
                    steps.append((value if largest else -value, fits(used, budget), part))
            chosen = [step for step in steps if ends or step[1]]
            if not chosen:
                return torch.tensor(levels)
            _, is_possible, best = max(chosen)
            if not is_possible:
                return torch.tensor(levels)
            levels[best] += 1

    return answer


def _all_steps_once(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    """All steps sorted beforehand, each taken if it fits and is the next of its part when its turn comes."""
    n_parts, n_levels = sizes.shape
    steps = [(_per_byte(sizes, losses, p, level), p, level) for p in range(n_parts) for level in range(n_levels - 1)]
    levels = [0] * n_parts
    for _, part, level in sorted(steps, reverse=True):
        more = int(sizes[part, level + 1] - sizes[part, level])
        if levels[part] == level and _used(sizes, levels) + more <= budget:
            levels[part] += 1
    return torch.tensor(levels)


def _part_by_part(order: Callable[[Tensor, Tensor], list[int]]) -> Answer:
    """One part as far up as it goes, then the next."""

    def answer(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
        levels = [0] * len(sizes)
        for part in order(sizes, losses):
            while levels[part] + 1 < sizes.shape[1]:
                levels[part] += 1
                if _used(sizes, levels) > budget:
                    levels[part] -= 1
                    break
        return torch.tensor(levels)

    return answer


def _by_first_worth(sizes: Tensor, losses: Tensor) -> list[int]:
    return sorted(range(len(sizes)), key=lambda part: -_per_byte(sizes, losses, part, 0))


def _equally(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    """An equal share of the budget for each part."""
    share = budget / len(sizes)
    return ((sizes <= share).sum(dim=1) - 1).clamp(min=0)


def _same_level(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    level = int((sizes.sum(dim=0) <= budget).sum()) - 1
    return torch.full((len(sizes),), level)


def _split_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_parts: int, n_levels: int, share: float, bent: bool = False) -> tuple[Tensor, Tensor, int]:
        """Parts of very different sizes; with `bent`, some steps are worth more than the one before."""
        scale = (1.2 * torch.randn(n_parts, 1, generator=generator)).exp()
        steps = (40 * scale * (0.5 + torch.rand(n_parts, n_levels, generator=generator))).long() + 3
        worth = (0.9 * torch.randn(n_parts, n_levels - 1, generator=generator)).exp() * 0.2
        if not bent:
            worth = worth * 2.0 ** -torch.arange(n_levels - 1)
        worth = worth * scale**0.5
        losses = torch.cat([worth.flip(1).cumsum(dim=1).flip(1), torch.zeros(n_parts, 1)], dim=1)
        sizes = steps.cumsum(dim=1)
        least, most = int(sizes[:, 0].sum()), int(sizes[:, -1].sum())
        return sizes, losses, least + int(share * (most - least))

    sizes = torch.tensor([[10, 30, 50], [10, 15, 45], [20, 26, 30]])
    losses = torch.tensor([[1.0, 0.5, 0.25], [0.75, 0.5, 0.0], [0.375, 0.25, 0.125]])
    tight = drawn(6, 4, 0.5)
    return [
        Case(
            "3 parts by hand, 75 bytes, 40 at first; the steps save 1/40, 1/20 and 1/48 per byte", (sizes, losses, 75)
        ),
        Case("6 parts, half of all bytes", tight),
        Case("steps that save more than those before them", drawn(5, 5, 0.45, bent=True)),
        Case("two thirds of all bytes, some steps save more than those before", drawn(7, 4, 0.66, bent=True)),
        Case("a third of all bytes, many levels", drawn(4, 9, 0.33, bent=True)),
        Case("nothing more fits", (*tight[:2], int(tight[0][:, 0].sum()) + 1)),
        Case("one byte is missing for everything", (*tight[:2], int(tight[0][:, -1].sum()) - 1)),
        Case("everything fits", (*tight[:2], int(tight[0][:, -1].sum()))),
        Case("20 parts of 3 levels", drawn(20, 3, 0.5, bent=True)),
    ]


def _library(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    from course_lib.lessons.capstone.methods import levels_within

    return levels_within(sizes, losses, budget)


SPLIT = Exercise(
    id="capstone.split",
    title="Where the next byte goes",
    difficulty=3,
    minutes=12,
    points=4,
    reference=_greedy(),
    cases=_split_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    trivial=(
        Trivial("the smallest of each", lambda sizes, losses, budget: torch.zeros(len(sizes), dtype=torch.long)),
        Trivial("the largest of each", lambda s, losses, budget: torch.full((len(s),), s.shape[1] - 1)),
        Trivial("the same level for all", _same_level),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("with a heap", lambda *given: _with_a_heap(*given)),
        Variant("a list", lambda *given: _greedy()(*given).tolist()),
    ),
    hints=(
        "Begin with all levels 0. Which steps are possible now, one level up in one part, and which of them still fit?",
        "A step of part p from level l is worth (losses[p, l] − losses[p, l + 1]) / (sizes[p, l + 1] − sizes[p, l]).",
        "Take the best of those that fit, and look again at all parts. Stop when none fits.",
    ),
)


def _from_the_top(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    """Levels given back, those first that lose least for their bytes, until the rest fits."""
    levels = [sizes.shape[1] - 1] * len(sizes)
    while _used(sizes, levels) > budget:
        parts = [part for part, level in enumerate(levels) if level > 0]
        levels[min(parts, key=lambda part: _per_byte(sizes, losses, part, levels[part] - 1))] -= 1
    return torch.tensor(levels)


def _at_once(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    """As many levels of the best part as fit, then of the next, each worth what its whole way saves."""
    whole = (losses[:, 0] - losses[:, -1]).double() / (sizes[:, -1] - sizes[:, 0])
    order = whole.sort(descending=True).indices.tolist()
    return _part_by_part(lambda s, x: order)(sizes, losses, budget)


def _one_too_many(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    """The budget is looked at before a step, not after it."""
    levels = [0] * len(sizes)
    while _used(sizes, levels) < budget:
        steps = [
            (_per_byte(sizes, losses, part, level), part)
            for part, level in enumerate(levels)
            if level + 1 < sizes.shape[1]
        ]
        if not steps:
            break
        levels[max(steps)[1]] += 1
    return torch.tensor(levels)


def _with_a_heap(sizes: Tensor, losses: Tensor, budget: int) -> Tensor:
    import heapq

    levels, left = [0] * len(sizes), budget - int(sizes[:, 0].sum())
    heap = [(-_per_byte(sizes, losses, part, 0), part) for part in range(len(sizes))]
    heapq.heapify(heap)
    while heap:
        _, part = heapq.heappop(heap)
        more = int(sizes[part, levels[part] + 1] - sizes[part, levels[part]])
        if more > left:  # and never will fit
            continue
        left, levels[part] = left - more, levels[part] + 1
        if levels[part] + 1 < sizes.shape[1]:
            heapq.heappush(heap, (-_per_byte(sizes, losses, part, levels[part]), part))
    return torch.tensor(levels)
