"""The exercise kv.window, "A window in two lines": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.kv.exercises.common import keep_newest, mask_picture, shuffled


def _window_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[[5, 1, 2, 3, 4], [0, 9, 2, 7, 4]]])
    gaps = shuffled(generator, torch.arange(14) ** 2, 2, 3) + 150 * torch.arange(3)[:, None]  # heads keep their own
    long_and_short = torch.stack([shuffled(generator, torch.arange(20) + first, 2) for first in (0, 13)])
    return [
        Case("two heads of five slots, by hand, 3 stay", (by_hand, 3)),
        Case("positions with gaps, 2 sequences, 3 heads", (gaps, 6)),
        Case("a long and a short sequence", (long_and_short, 7)),
        Case("one slot stays", (shuffled(generator, 3 * torch.arange(9), 1, 2), 1)),
    ]


def _library(position: Tensor, budget: int) -> Tensor:
    from course_lib.lessons.kv.running.own import window_keep

    return window_keep(position, budget)


WINDOW = Exercise(
    id="kv.window",
    title="A window in two lines",
    difficulty=1,
    minutes=5,
    points=2,
    reference=keep_newest,
    cases=_window_cases,
    picture=mask_picture,
    library=_library,
    mistakes=(
        Mistake(
            "the oldest kept",
            "The lowest positions stay here. A window keeps the newest tokens: the highest positions.",
            lambda p, n: keep_newest(-p, n),
        ),
        Mistake(
            "the last slots",
            "The order of slots says nothing: a new token takes the place of one that left. Look at the positions.",
            lambda p, n: torch.arange(p.shape[-1]).expand(p.shape) >= p.shape[-1] - n,
        ),
        Mistake(
            "a threshold on the position",
            "Positions may have gaps, so that fewer than `budget` of them lie above last − budget. Choose by count.",
            lambda p, n: p > p.amax(dim=-1, keepdim=True) - n,
            also=(lambda p, n: p >= p.amax(dim=-1, keepdim=True) - n,),
        ),
        Mistake(
            "one threshold for all",
            "Every sequence and head has tokens of its own: rank along the last axis.",
            lambda p, n: p > p.max() - n,
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a token leaves. In this course True means that it stays.",
            lambda p, n: ~keep_newest(p, n),
        ),
        Mistake(
            "order instead of ranks",
            "argsort says which slot comes first, second, …; it does not say the rank of each slot.",
            lambda p, n: p.argsort(dim=-1) >= p.shape[-1] - n,
        ),
        Mistake(
            "one too many",
            "budget + 1 slots stay: sorted[-budget] stays, those below it leave.",
            lambda p, n: keep_newest(p, n + 1),
        ),
        Mistake(
            "a slot too few",
            "One slot less than `budget` stays: the slot of sorted[-budget] itself stays too.",
            lambda p, n: keep_newest(p, n - 1) if n > 1 else torch.zeros_like(p, dtype=torch.bool),
        ),
        Mistake(
            "one head's choice for all",
            "The slots of one head were taken for all. Every head holds tokens of its own.",
            lambda p, n: keep_newest(p, n)[:, :1].expand(p.shape),
        ),
        Mistake(
            "numbers instead of a mask",
            "These are positions, or numbers of slots. Return a mask that is True where a slot stays.",
            lambda p, n: p.topk(n, dim=-1).indices,
            also=(lambda p, n: p.topk(n, dim=-1).values,),
        ),
    ),
    also_right=(
        Variant("ranks", lambda p, n: p.argsort(dim=-1).argsort(dim=-1) >= p.shape[-1] - n),
        Variant("the last one that stays", lambda p, n: p >= p.sort(dim=-1).values[..., -n, None]),
        Variant("zeros and ones", lambda p, n: keep_newest(p, n).float()),
    ),
    hints=(
        "position.topk(budget, dim=-1).indices are the slots that stay.",
        "Start from a mask of False and scatter True: mask.scatter(-1, indices, True).",
    ),
)
