"""The exercise kv.window, "A window in two lines": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.kv.exercises.common import keep_newest, mask_picture, shuffled


def _window_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[[5, 1, 2, 3, 4], [0, 9, 2, 7, 4]]])
    gaps = shuffled(generator, torch.arange(14) ** 2, 2, 3) + 150 * torch.arange(3)[:, None]  # heads keep their own
    long_and_short = torch.stack([shuffled(generator, torch.arange(20) + first, 2) for first in (0, 13)])
    return [
        Case("two heads of five slots, by hand, 3 are kept", (by_hand, 3)),
        Case("positions with gaps, 2 sequences, 3 heads", (gaps, 6)),
        Case("a long and a short sequence", (long_and_short, 7)),
        Case("one slot is kept", (shuffled(generator, 3 * torch.arange(9), 1, 2), 1)),
    ]


def _library(position: Tensor, budget: int) -> Tensor:
    from course_lib.lessons.kv.steps import window_keep

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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("ranks", lambda p, n: p.argsort(dim=-1).argsort(dim=-1) >= p.shape[-1] - n),
        Variant("the last kept one", lambda p, n: p >= p.sort(dim=-1).values[..., -n, None]),
        Variant("zeros and ones", lambda p, n: keep_newest(p, n).float()),
    ),
    hints=(
        "position.topk(budget, dim=-1).indices are the slots that are kept.",
        "Start from a mask of False and scatter True: mask.scatter(-1, indices, True).",
    ),
)
