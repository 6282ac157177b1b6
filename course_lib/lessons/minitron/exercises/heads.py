"""The exercise minitron.heads, "Heads within their group": its cases and its named mistakes.

Dimension key: L blocks, H query heads, G key-value heads, of which g stay, m heads of each.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _agree_on_heads(got: Any, expected: Tensor, case: Case) -> str | None:
    """Accept the same group at each position, and heads with equal scores; ties and the order in a group are free."""
    scores, _, n_groups, _ = case.arguments
    got, problem = tensor_like(got, expected)
    if problem or torch.equal(got.double(), expected.double()):
        return problem
    problem = _not_numbers(got, scores.shape[1])
    if problem:
        return problem
    pairs = zip(got.long().tolist(), expected.long().tolist(), scores.tolist(), strict=True)
    differences = (_of_block(block, *each, n_groups) for block, each in enumerate(pairs))
    return next((difference for difference in differences if difference), None)


def _not_numbers(got: Tensor, n_heads: int) -> str | None:
    numbers = got.long()
    if (numbers != got).any() or (numbers < 0).any() or (numbers >= n_heads).any():
        return f"got entries that are no numbers of heads; expected whole numbers from 0 to {n_heads - 1}"
    twice = [(block, row) for block, row in enumerate(numbers.tolist()) if len(set(row)) < len(row)]
    return f"block {twice[0][0]} names a head twice: {twice[0][1]}" if twice else None


def _of_block(block: int, mine: list[int], best: list[int], scores: list[float], n_groups: int) -> str | None:
    """Say where the heads of one block differ from the best ones."""
    owner = [head * n_groups // len(scores) for head in range(len(scores))]
    for place, (head, other) in enumerate(zip(mine, best, strict=True)):
        if owner[head] != owner[other]:
            return (
                f"block {block}: position {place} of the smaller model uses key-value head {owner[other]}, but "
                f"contains head {head}, which used {owner[head]}"
            )
    for group in sorted({owner[head] for head in best}):
        heads = [[head for head in one if owner[head] == group] for one in (mine, best)]
        worth = [sorted(scores[head] for head in one) for one in heads]
        if worth[0] != worth[1]:
            return f"block {block}, key-value head {group}: got the heads {heads[0]}, expected {heads[1]}"
    return None


def _as_masks(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.masks import compare_masks

    scores, _, n_groups, _ = case.arguments
    masks = [
        torch.zeros(scores.shape, dtype=torch.bool).scatter(1, torch.as_tensor(x).long(), True) for x in (got, expected)
    ]
    fig = compare_masks(*masks, group=scores.shape[1] // n_groups, score=scores)
    for panel in fig.axes:
        panel.set_xlabel("query head, groups ruled off")
        if len(scores) <= 12:
            panel.set_yticks(range(len(scores)))
    fig.axes[0].set_ylabel("block")
    return fig


def _best(scores: Tensor, n: int) -> Tensor:
    """Return the n highest of each row, ascending."""
    return scores.topk(n, dim=-1).indices.sort(dim=-1).values


def _best_first(scores: Tensor, n: int) -> Tensor:
    """Return the n highest of each row, the highest first."""
    return scores.topk(n, dim=-1).indices


def _inside(choose: Callable[[Tensor, int], Tensor]) -> Callable:
    """The answer with another choice of n among the heads of each group (L, g, H / G)."""

    def heads(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
        size = scores.shape[1] // n_groups
        stay = scores.unflatten(1, (n_groups, size)).gather(1, groups[:, :, None].expand(-1, -1, size))
        return (choose(stay, n_each) + size * groups[:, :, None]).flatten(1)

    return heads


_keep_best = _inside(_best)
_keep_best_first = _inside(_best_first)
_keep_same_places = _inside(lambda stay, n: _best(stay.sum(dim=1, keepdim=True), n).expand(-1, stay.shape[1], -1))


def _of_all(lowest: float, choose: Callable[[Tensor, int], Tensor] = _best) -> Callable:
    """Return as many heads, ranked over all groups together; heads of pruned groups score `lowest`."""

    def heads(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
        owner = torch.arange(scores.shape[1]) * n_groups // scores.shape[1]
        stays = (owner[:, None] == groups[:, None]).any(dim=2)  # (L, H)
        return choose(torch.where(stays, scores, scores + lowest), n_each * groups.shape[1])

    return heads


def _by_remainder(
    scores: Tensor, groups: Tensor, n_groups: int, n_each: int, choose: Callable[[Tensor, int], Tensor] = _best
) -> Tensor:
    """Heads h, h + G, … taken for a group."""
    inside = scores.unflatten(1, (-1, n_groups)).mT  # (L, G, H/G)
    stay = inside.gather(1, groups[:, :, None].expand(-1, -1, inside.shape[2]))
    return (choose(stay, n_each) * n_groups + groups[:, :, None]).flatten(1)


def _interleaved(
    scores: Tensor,
    groups: Tensor,
    n_groups: int,
    n_each: int,
    ranking: bool,
    choose: Callable[[Tensor, int], Tensor] = _best,
) -> Tensor:
    """Heads h, h + G, … taken for a group in the ranking but not in the numbers, or in the numbers alone."""
    size = scores.shape[1] // n_groups
    if not ranking:
        places = _inside(choose)(scores, groups, n_groups, n_each).unflatten(1, (-1, n_each)) % size
        return (places * n_groups + groups[:, :, None]).flatten(1)
    places = _by_remainder(scores, groups, n_groups, n_each, choose).unflatten(1, (-1, n_each)) // n_groups
    return (places + size * groups[:, :, None]).flatten(1)


def _in_order_of_scores(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
    chosen = _keep_best(scores, groups, n_groups, n_each)
    return chosen.gather(1, scores.gather(1, chosen).argsort(dim=1, descending=True))


def _shifted(
    scores: Tensor, groups: Tensor, n_groups: int, n_each: int, size: int, keep: Callable = _keep_best
) -> Tensor:
    """Group g taken to begin at head g · size."""
    off = groups * (size - scores.shape[1] // n_groups)
    return keep(scores, groups, n_groups, n_each) + off.repeat_interleave(n_each, dim=1)


def _heads_cases(generator: torch.Generator) -> list[Case]:
    def drawn(blocks: int, n_groups: int, stay: int, of_a_group: int) -> tuple[Tensor, Tensor]:
        """Return scores of which one group has larger ones, and the kept groups, different in each block."""
        loud = 1 + 4 * torch.rand(blocks, n_groups, 1, generator=generator)
        scores = (torch.rand(blocks, n_groups, of_a_group, generator=generator) + 0.3 * loud).flatten(1)
        groups = [torch.randperm(n_groups, generator=generator)[:stay].sort().values for _ in range(blocks)]
        return scores, torch.stack(groups)

    by_hand = torch.tensor([[9.0, 8.0, 7.0, 1.0, 3.0, 2.0], [1.0, 2.0, 3.0, 6.0, 5.0, 4.0]])
    every = torch.arange(3).repeat(30, 1)
    ties = torch.randint(-2, 3, (6, 20), generator=generator).float()
    three = torch.stack([torch.randperm(5, generator=generator)[:3].sort().values for _ in range(6)])
    scores, groups = drawn(12, 3, 2, 4)
    turned = scores.T.contiguous().T, groups
    return [
        Case("2 blocks, 6 heads on 2, one of each is kept, by hand", (by_hand, torch.tensor([[0, 1], [0, 1]]), 2, 1)),
        Case("9 heads on 3 in 30 blocks, as in SmolLM2", (drawn(30, 3, 3, 3)[0], every, 3, 2)),
        Case("12 heads on 4, of which two are kept", (*drawn(5, 4, 2, 3), 4, 2)),
        Case("24 heads on 3 in one block, scores below zero", ((low := drawn(1, 3, 2, 8))[0] - 2, low[1], 3, 3)),
        Case("ties, also below zero", (ties, three, 5, 2)),
        Case("not contiguous", (*turned, 3, 2)),
    ]


def _library(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
    from course_lib.pruning.structured.choice import best_heads

    return best_heads(scores, groups, n_groups, n_each)


HEADS = Exercise(
    id="minitron.heads",
    title="Heads within their group",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_keep_best,
    cases=_heads_cases,
    agree=_agree_on_heads,
    picture=_as_masks,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("best first inside a group", _inside(lambda stay, n: stay.topk(n, dim=2).indices)),
        Variant("lists", lambda s, g, n, m: _by_loops(s, g, n, m)),
        Variant("by a mask", lambda s, g, n, m: _by_ranks(s, g, n, m)),
    ),
    hints=(
        "Which heads compete with each other? Give the scores an axis of groups: (L, n_groups, H / n_groups).",
        "For each kept group, topk returns positions within the group. What do you have to add to a position to get "
        "the number of a head?",
        "positions + size * groups[:, :, None] with size = H // n_groups, flattened to (L, g · n_each).",
    ),
)


def _by_loops(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> list[list[int]]:
    size, rows = scores.shape[1] // n_groups, []
    for row, stay in zip(scores.tolist(), groups.tolist(), strict=True):
        best = [sorted(range(group * size, (group + 1) * size), key=lambda h: -row[h])[:n_each] for group in stay]
        rows.append([head for heads in best for head in sorted(heads)])
    return rows


def _by_ranks(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
    inside = scores.reshape(len(scores), n_groups, -1)
    ranks = inside.argsort(dim=2, descending=True).argsort(dim=2)
    stays = torch.zeros(len(scores), n_groups, dtype=torch.bool).scatter(1, groups, True)
    keep = ((ranks < n_each) & stays[:, :, None]).flatten(1)
    return keep.nonzero()[:, 1].reshape(len(scores), -1)
