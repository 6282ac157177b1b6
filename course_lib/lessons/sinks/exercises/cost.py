"""The exercise sinks.cost, "What one more token costs": its cases and its named mistakes.

Dimension key: T tokens read, W tokens of a window, D size of a head.
"""

from typing import Any

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Count = int | float


def _cost(n_weights: int, n_layers: int, width: int, n_read: int, window: int) -> tuple[int, int, int]:
    token, pair, full = 2 * n_weights, 4 * n_layers * width, min(n_read, window)
    return token + pair * n_read, token + pair * full, token * full + pair * (full * (full + 1) // 2)


def _costs(pairs: Any = None, full: Any = min, **changed: int) -> Any:
    """The count with something else in one place."""

    def count(n_weights: int, n_layers: int, width: int, n_read: int, window: int) -> tuple[int, Count, Count]:
        token, pair = changed.get("token", 2) * n_weights, changed.get("pair", 4) * n_layers * width
        held = full(n_read, window)
        seen = pairs(held) if pairs else held * (held + 1) // 2
        return token + pair * n_read, token + pair * held, token * held + pair * seen

    return count


def _with(place: int, cost: Any) -> Any:
    """Right except for one of the three."""

    def count(*sizes: int) -> tuple[Count, ...]:
        right = list(_cost(*sizes))
        right[place] = cost(*sizes)
        return tuple(right)

    return count


def _library(n_weights: int, n_layers: int, width: int, n_read: int, window: int) -> tuple[float, float, float]:
    from course_lib.lessons.sinks.experiments.four_ways import flops_a_token

    return flops_a_token(n_weights, n_layers, width, n_read, window)


COST = Exercise(
    id="sinks.cost",
    title="What one more token costs",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_cost,
    library=_library,
    cases=lambda generator: [
        Case("10 weights, 1 layer of width 2, 5 read, window 3: 60, 44 and 108", (10, 1, 2, 5, 3)),
        Case("the same, 2 tokens read: the window is not full: 36, 36 and 64", (10, 1, 2, 2, 3)),
        Case("SmolLM2's blocks, 8192 tokens, a window of 256", (106_168_320, 30, 576, 8192, 256)),
        Case("the first token of all", (106_168_320, 30, 576, 1, 4096)),
        Case("a drawn model", (whole(generator, 1000, 10**6), whole(generator, 2, 40), 64, 700, 100)),
    ],
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("query by query", lambda *sizes: _by_query(*sizes)),
        Variant("a tensor", lambda *sizes: torch.tensor(_cost(*sizes))),
    ),
    hints=(
        "A token costs 2 FLOPs per weight. A pair of a query and a token costs 2 × width for its logit and 2 × width "
        "for adding up the value, in each layer.",
        "Count the pairs: `n_read` for dense attention, and as many as the window holds, at most `window`, when "
        "streaming. Query i of a window that is recomputed attends to i tokens, for i = 1, 2, 3 and so on.",
        "With m = min(n_read, window) the last one is m tokens through all weights and m (m + 1) / 2 pairs.",
    ),
)


def _by_query(n_weights: int, n_layers: int, width: int, n_read: int, window: int) -> tuple[int, int, int]:
    def query(seen: int) -> int:
        return 2 * n_weights + 4 * n_layers * width * seen

    held = range(1, n_read + 1)[:window]
    return query(n_read), query(held[-1]), sum(query(seen) for seen in held)
