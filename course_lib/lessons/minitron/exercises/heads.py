"""The exercise minitron.heads, "Heads inside their group": its cases and its named mistakes.

Dimension key: L blocks, H query heads, G key-value heads, of which g stay, m heads of each.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _agree_on_heads(got: Any, expected: Tensor, case: Case) -> str | None:
    """Place by place the same group, and of each group heads of equal worth: ties, and the order inside, are free."""
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
    """Where the heads of one block differ from the best ones."""
    owner = [head * n_groups // len(scores) for head in range(len(scores))]
    for place, (head, other) in enumerate(zip(mine, best, strict=True)):
        if owner[head] != owner[other]:
            return (
                f"block {block}: place {place} of the smaller model reads key-value head {owner[other]}, but "
                f"holds head {head}, which read {owner[head]}"
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
    """The n highest of each row, rising."""
    return scores.topk(n, dim=-1).indices.sort(dim=-1).values


def _inside(choose: Callable[[Tensor, int], Tensor]) -> Callable:
    """The answer with another choice of n among the heads of each group (L, g, H / G)."""

    def heads(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
        size = scores.shape[1] // n_groups
        stay = scores.unflatten(1, (n_groups, size)).gather(1, groups[:, :, None].expand(-1, -1, size))
        return (choose(stay, n_each) + size * groups[:, :, None]).flatten(1)

    return heads


_keep_best = _inside(_best)
_keep_best_first = _inside(lambda stay, n: stay.topk(n, dim=-1).indices)  # as topk gives them, not sorted
_keep_same_places = _inside(lambda stay, n: _best(stay.sum(dim=1, keepdim=True), n).expand(-1, stay.shape[1], -1))


def _of_all(lowest: float, choose: Callable[[Tensor, int], Tensor] = _best) -> Callable:
    """As many heads, but of all groups together; those of groups that leave score `lowest`."""

    def heads(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
        owner = torch.arange(scores.shape[1]) * n_groups // scores.shape[1]
        stays = (owner[:, None] == groups[:, None]).any(dim=2)  # (L, H)
        return choose(torch.where(stays, scores, scores + lowest), n_each * groups.shape[1])

    return heads


def _by_remainder(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
    """Heads h, h + G, … taken for a group."""
    inside = scores.unflatten(1, (-1, n_groups)).mT  # (L, G, H/G)
    stay = inside.gather(1, groups[:, :, None].expand(-1, -1, inside.shape[2]))
    return (_best(stay, n_each) * n_groups + groups[:, :, None]).flatten(1)


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
        """Scores of which one group is louder than the others, and groups that stay, other ones in each block."""
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
        Case("2 blocks, 6 heads on 2, one of each stays, by hand", (by_hand, torch.tensor([[0, 1], [0, 1]]), 2, 1)),
        Case("9 heads on 3 in 30 blocks, as in SmolLM2", (drawn(30, 3, 3, 3)[0], every, 3, 2)),
        Case("12 heads on 4, of which two stay", (*drawn(5, 4, 2, 3), 4, 2)),
        Case("24 heads on 3 in one block, scores below zero", ((low := drawn(1, 3, 2, 8))[0] - 2, low[1], 3, 3)),
        Case("ties, also below zero", (ties, three, 5, 2)),
        Case("not contiguous", (*turned, 3, 2)),
    ]


def _library(scores: Tensor, groups: Tensor, n_groups: int, n_each: int) -> Tensor:
    from course_lib.pruning.structured.choice import best_heads

    return best_heads(scores, groups, n_groups, n_each)


HEADS = Exercise(
    id="minitron.heads",
    title="Heads inside their group",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_keep_best,
    cases=_heads_cases,
    agree=_agree_on_heads,
    picture=_as_masks,
    library=_library,
    mistakes=(
        Mistake(
            "all heads ranked together",
            "The best heads were taken from the whole block, or from all groups that stay. Every group has to keep "
            "equally many, or the heads of the smaller model cannot be divided among its key-value heads: rank inside "
            "each group.",
            _of_all(-1000.0),
            also=(_of_all(0.0),),
        ),
        Mistake(
            "groups by the remainder",
            "Heads h, h + G, h + 2G, … were taken for a group. Neighbouring heads share a key-value head: head h "
            "belongs to group h // (H / G).",
            _by_remainder,
            also=(lambda s, g, n, m: _by_remainder(s, g, n, m).sort(dim=1).values,),
        ),
        Mistake(
            "lowest kept",
            "The heads with the lowest scores stay here. A high score stays.",
            _inside(lambda stay, n: _best(-stay, n)),
        ),
        Mistake(
            "lowest of all groups together",
            "Two things are wrong. The heads with the lowest scores stay here; a high score stays. And heads of all "
            "groups were ranked together: rank inside each group.",
            _of_all(1000.0, lambda s, n: _best(-s, n)),
            also=(_of_all(0.0, lambda s, n: _best(-s, n)),),
        ),
        Mistake(
            "as many leave as should stay",
            "n_each says how many heads of a group stay.",
            _inside(lambda stay, n: _best(stay, stay.shape[2] - n)),
        ),
        Mistake(
            "places inside the group",
            "These count from the first head of each group. Add where the group begins: group · H / G.",
            lambda s, g, n, m: _shifted(s, g, n, m, 0),
            also=(lambda s, g, n, m: _shifted(s, g, n, m, 0, _keep_best_first),),
        ),
        Mistake(
            "a group begins elsewhere",
            "Group g begins at head g · H / G. Here another number stands for H / G, which is how many query heads a "
            "group has before any leaves.",
            lambda s, g, n, m: _shifted(s, g, n, m, m),
            also=(
                lambda s, g, n, m: _shifted(s, g, n, m, n),
                lambda s, g, n, m: _shifted(s, g, n, m, g.shape[1]),
                lambda s, g, n, m: _shifted(s, g, n, m, m, _keep_best_first),
            ),
        ),
        Mistake(
            "groups counted anew",
            "These count groups as in the smaller model. What is asked are numbers of heads of the large one: begin at "
            "group · H / G for the group's own number.",
            lambda s, g, n, m: (
                _keep_best(s, g, n, m) - (s.shape[1] // n * (g - torch.arange(g.shape[1]))).repeat_interleave(m, dim=1)
            ),
        ),
        Mistake(
            "in the order of the scores",
            "The right heads, in the order of their scores. Its place decides which key-value head a head reads in the "
            "smaller model: group after group, so sort.",
            _in_order_of_scores,
            also=(lambda s, g, n, m: _in_order_of_scores(s, g, n, m).flip(1),),
        ),
        Mistake(
            "groups that leave",
            "Heads of all groups stay here, or of other ones. Of a group that is not in `groups` no head stays.",
            lambda s, g, n, m: _keep_best(s, torch.arange(n).expand(len(s), n), n, m),
            also=(lambda s, g, n, m: _keep_best(s, torch.arange(g.shape[1]).expand(g.shape), n, m),),
        ),
        Mistake(
            "first block's groups for all",
            "The groups of block 0 were used in every block. Row l of `groups` says which groups stay in block l.",
            lambda s, g, n, m: _keep_best(s, g[:1].expand(g.shape), n, m),
        ),
        Mistake(
            "the same places in every group",
            "The scores of all groups were added up, so that the same places stay in each. Every group chooses by "
            "itself.",
            _keep_same_places,
            also=(lambda s, g, n, m: _keep_same_places(s.unflatten(1, (n, -1)).sum(1).repeat(1, n), g, n, m),),
        ),
        Mistake(
            "one block's choice for all",
            "The scores of block 0 were used in every block. Every block has scores of its own: its row of `scores`.",
            lambda s, g, n, m: _keep_best(s[:1].expand(s.shape), g, n, m),
        ),
        Mistake(
            "scores averaged over blocks",
            "The scores of all blocks were averaged or added up, so that the same places are best in every block. "
            "Every block has scores of its own: its row of `scores`.",
            lambda s, g, n, m: _keep_best(s.sum(0).expand(s.shape), g, n, m),
        ),
        Mistake(
            "one block alone",
            "Only the heads of block 0 are here. The result has a row for each block, (L, g · n_each).",
            lambda s, g, n, m: _keep_best(s[:1], g[:1], n, m),
        ),
        Mistake(
            "absolute values ranked",
            "Absolute values were taken. The score says it all: one below zero is lower than zero.",
            _inside(lambda stay, n: _best(stay.abs(), n)),
            also=(_inside(lambda stay, n: stay.abs().argsort(dim=2, descending=True, stable=True)[:, :, :n]),),
        ),
        Mistake(
            "a mask",
            "This says of every head whether it stays. Return the numbers of those that do.",
            lambda s, g, n, m: torch.zeros_like(s, dtype=torch.bool).scatter(1, _keep_best(s, g, n, m), True),
        ),
        Mistake(
            "the scores",
            "These are the scores of the heads that stay. Return their numbers: topk has both.",
            lambda s, g, n, m: s.gather(1, _keep_best(s, g, n, m)),
        ),
        Mistake(
            "an axis of groups left",
            "The right heads, with an axis for the groups. Flatten it: (L, g · n_each).",
            lambda s, g, n, m: _keep_best(s, g, n, m).unflatten(1, (g.shape[1], m)),
        ),
        Mistake(
            "one too many, or too few",
            "n_each heads of every group stay, neither more nor fewer.",
            _inside(lambda stay, n: _best(stay, min(n + 1, stay.shape[2]))),
            also=(_inside(lambda stay, n: _best(stay, n - 1)),),
        ),
    ),
    also_right=(
        Variant("best first inside a group", _inside(lambda stay, n: stay.topk(n, dim=2).indices)),
        Variant("lists", lambda s, g, n, m: _by_loops(s, g, n, m)),
        Variant("by a mask", lambda s, g, n, m: _by_ranks(s, g, n, m)),
    ),
    hints=(
        "Which heads compete with each other? Give the scores an axis of groups: (L, n_groups, H / n_groups).",
        "Of each group that stays, topk gives places inside the group. What has to be added to a place, to have the "
        "number of a head?",
        "places + size * groups[:, :, None] with size = H // n_groups, flattened to (L, g · n_each).",
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
