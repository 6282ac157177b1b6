"""The exercise kv.h2o_step, "Accumulate and evict": its cases and its named mistakes."""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.kv.exercises.common import (
    as_mask,
    keep_newest,
    mask_picture,
    recent_ones,
    shuffled,
    softmax_rows,
)


def _best(total: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    return keep_newest(_guarded(total, position, recent), budget)


def _guarded(total: Tensor, position: Tensor, recent: int) -> Tensor:
    return total.masked_fill(keep_newest(position, recent), float("inf"))


def _at_least(total: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    """Keep all slots that are as large as the lowest kept one."""
    protected = _guarded(total, position, recent)
    return protected >= protected.sort(dim=1, descending=True).values[:, budget - 1, None]


def _above(total: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    """Keep all slots that are larger than the highest evicted one."""
    protected = _guarded(total, position, recent)
    return protected > protected.sort(dim=1, descending=True).values[:, budget, None]


def _h2o_step(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[Tensor, Tensor]:
    total = score + new
    return _best(total, position, budget, recent), total


def _h2o_cases(generator: torch.Generator) -> list[Case]:
    by_hand = (
        torch.tensor([[3.0, 0.5, 1.0, 0.0, 0.0]]),
        torch.tensor([[0.1, 0.9, 0.2, 0.3, 0.1]]),
        torch.tensor([[0, 7, 2, 3, 8]]),
    )

    # Sums of any size: the newest token has 0.5, and no finite bonus protects it from sums like these
    long_text = (
        torch.tensor([[4e12, 0.0, 1.2e12, 2.5e12, 1.5e12]]),
        torch.tensor([[0.75, 0.5, 0.25, 0.5, 1.0]]),
        torch.tensor([[0, 9_000_000, 40, 7_000_000, 312]]),
    )

    # Sums of exactly 1 in four slots, of which one can be kept in addition to the newest token; neither the old scores
    # nor the new ones are tied
    tied = (
        torch.tensor([[0.25, 0.5, 0.125, 0.75, 0.0]]),
        torch.tensor([[0.75, 0.5, 0.875, 0.25, 0.0625]]),
        torch.tensor([[4, 3, 7, 2, 9]]),
    )

    def drawn(n_heads: int, n: int, recent: int, n_seen: int) -> tuple[Tensor, Tensor, Tensor]:
        old = torch.randperm(n_seen - recent - 1, generator=generator)[: n - recent - 1]
        position = shuffled(generator, torch.cat([old, torch.arange(n_seen - recent - 1, n_seen)]), n_heads)
        score = 4 * torch.rand(n_heads, n, generator=generator) ** 3 * (position < n_seen - 1)
        return score, 3 * softmax_rows(generator, n_heads, n, spread=2.5), position

    return [
        Case("one head, five slots, by hand, 4 are kept", (*by_hand, 4, 1)),
        Case("one head, huge sums, 3 are kept", (*long_text, 3, 1)),
        Case("one head, four slots with the same sum, 2 are kept", (*tied, 2, 1)),
        Case("3 heads, 20 slots, one is evicted", (*drawn(3, 20, 4, 60), 19, 4)),
        Case("4 heads, 30 slots, half of them are evicted", (*drawn(4, 30, 5, 90), 15, 5)),
        Case("2 heads, the recent ones take half of the budget", (*drawn(2, 24, 6, 40), 12, 6)),
    ]


def _agree_on_step(got: Any, expected: tuple, case: Case) -> str | None:
    """Compare the number of kept slots, their scores, and how many of them are recent; ties may fall either way.

    The scores of evicted slots may be anything, because nothing reads them any more.
    """
    if not isinstance(got, tuple) or len(got) != 2:
        return "expected two values: which slots are kept, and the new scores"
    keep, problem = as_mask(got[0], expected[0])
    score, other = tensor_like(got[1], expected[1])
    if problem or other:
        return f"which slots are kept: {problem}" if problem else f"the score: {other}"
    old, new, position, _, recent = case.arguments
    difference = _other_slots((old + new).double(), recent_ones(position, recent), keep, expected[0].bool())
    if difference:
        return difference
    difference = close(score.double().masked_fill(~keep, 0), expected[1].double().masked_fill(~keep, 0))
    return f"the new score: {difference}" if difference else None


def _other_slots(total: Tensor, newest: Tensor, keep: Tensor, right: Tensor) -> str | None:
    """Describe how the kept slots differ in number, newest tokens or scores, for the first head where they do."""
    for head, (mine, theirs) in enumerate(zip(keep, right, strict=True)):
        if mine.sum() != theirs.sum():
            return f"head {head} keeps {int(mine.sum())} slots, expected {int(theirs.sum())}"
        if (mine & newest[head]).sum() != (theirs & newest[head]).sum():
            n, of = int((mine & newest[head]).sum()), int((theirs & newest[head]).sum())
            return f"head {head} keeps {n} of the {int(newest[head].sum())} newest tokens, expected {of}"
        if not torch.allclose(total[head][mine].sort().values, total[head][theirs].sort().values, rtol=1e-5, atol=1e-7):
            worth = [float(total[head][mask].sum()) for mask in (mine, theirs)]
            return f"head {head} keeps scores of {worth[0]:.4g} together, expected {worth[1]:.4g}"
    return None


def _library(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.kv.steps import h2o_step

    return h2o_step(score, new, position, budget, recent)


H2O_STEP = Exercise(
    id="kv.h2o_step",
    title="Accumulate and evict",
    difficulty=3,
    minutes=10,
    points=4,
    reference=_h2o_step,
    cases=_h2o_cases,
    agree=_agree_on_step,
    library=_library,
    picture=lambda case, got, expected: mask_picture(
        case, got[0], expected[0], right=_agree_on_step(got, expected, case) is None
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("in place, with a threshold for the recent", lambda s, n, p, b, r: _h2o_in_place(s, n, p, b, r)),
        Variant("head by head, sorting", lambda s, n, p, b, r: _h2o_by_head(s, n, p, b, r)),
        Variant("scores of evicted slots set to zero", lambda s, n, p, b, r: _h2o_zeroed(s, n, p, b, r)),
    ),
    hints=(
        "First the new score of every slot: old plus new. Then choose among the slots that are not recent.",
        "Set a copy of the scores to infinity where the token is recent, and take the `budget` highest.",
        "Recent are the slots in position.topk(recent, dim=1).indices.",
    ),
)


def _h2o_in_place(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[Tensor, Tensor]:
    score += new
    protected = position >= position.topk(recent, dim=1).values[:, -1:]
    leaving = torch.where(protected, score.max() + 1, score).topk(score.shape[1] - budget, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(1, leaving, False), score


def _h2o_by_head(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[list, Tensor]:
    rows = []
    for total, places in zip((score + new).tolist(), position.tolist(), strict=True):
        by_age = sorted(range(len(places)), key=places.__getitem__)
        rest = sorted(by_age[: len(by_age) - recent], key=total.__getitem__, reverse=True)
        stay = set(by_age[len(by_age) - recent :]) | set(rest[: budget - recent])
        rows.append([slot in stay for slot in range(len(places))])
    return rows, score + new


def _h2o_zeroed(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[Tensor, Tensor]:
    keep, total = _h2o_step(score, new, position, budget, recent)
    return keep, total * keep
