"""The exercise sinks.cost, "What one more token costs": its cases and its named mistakes.

Dimension key: T tokens read, W tokens of a window, D size of a head.
"""

from typing import Any

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

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
    """Right but for one of the three."""

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
    mistakes=(
        Mistake(
            "pairs that are not read",
            "Attention is causal: query i of the window reads i tokens, so that there are W (W + 1) / 2 pairs, not W².",
            _costs(lambda w: w * w),
        ),
        Mistake(
            "a token does not read itself",
            "Every query also reads its own token: W (W + 1) / 2 pairs, not W (W − 1) / 2.",
            _costs(lambda w: w * (w - 1) // 2),
        ),
        Mistake(
            "attention of the newest alone",
            "Without stored keys and values all tokens of the window must attend again, not only the newest.",
            _costs(lambda w: w),
        ),
        Mistake(
            "the weights once",
            "When the window is computed anew, each of its tokens goes through all weights.",
            _with(2, lambda p, n, d, t, w: 2 * p + 4 * n * d * (min(t, w) * (min(t, w) + 1) // 2)),
        ),
        Mistake(
            "a window that is not full yet",
            "Before `window` tokens have been read there are only `n_read` of them to attend to, or to compute anew.",
            _costs(full=lambda t, w: w),
            also=(
                _with(1, lambda p, n, d, t, w: 2 * p + 4 * n * d * w),
                _with(2, lambda p, n, d, t, w: 2 * p * w + 2 * n * d * w * (w + 1)),
            ),
        ),
        Mistake(
            "logits without values",
            "A pair costs a logit, and its share of the sum of the values: 2 FLOPs a number of the width each time.",
            _costs(pair=2),
        ),
        Mistake(
            "a multiplication without its addition",
            "A dot product of `width` numbers takes as many multiplications and as many additions: 4 × width in all.",
            _costs(pair=1),
        ),
        Mistake(
            "one FLOP a weight",
            "Each weight is multiplied and then added: two FLOPs a token.",
            _costs(token=1),
        ),
        Mistake(
            "the new token reads itself alone",
            "While streaming, the new token still attends over everything in the cache.",
            _with(1, lambda p, n, d, t, w: 2 * p + 4 * n * d),
            also=(_with(1, lambda p, n, d, t, w: 2 * p),),
        ),
        Mistake(
            "the dense model reads everything anew",
            "With a cache only the new token asks: it goes through the weights once and attends to `n_read` tokens.",
            _with(0, lambda p, n, d, t, w: 2 * p * t + 2 * n * d * t * (t + 1)),
            also=(_with(0, lambda p, n, d, t, w: 2 * p + 2 * n * d * t * (t + 1)),),
        ),
        Mistake(
            "one layer",
            "The attention of all layers counts.",
            lambda p, n, d, t, w: _cost(p, 1, d, t, w),
        ),
        Mistake(
            "in another order",
            "Dense comes first, then streaming, then the window read afresh.",
            lambda *sizes: _cost(*sizes)[::-1],
            also=(lambda *sizes: (_cost(*sizes)[0], *_cost(*sizes)[:0:-1]),),
        ),
        Mistake(
            "one token more or less",
            "The new token is among those that have been read, and among the `window`: it attends to itself too.",
            _with(1, lambda p, n, d, t, w: 2 * p + 4 * n * d * (min(t, w) - 1)),
            also=(
                _with(1, lambda p, n, d, t, w: 2 * p + 4 * n * d * (min(t, w) + 1)),
                _with(0, lambda p, n, d, t, w: 2 * p + 4 * n * d * (t - 1)),
                _with(0, lambda p, n, d, t, w: 2 * p + 4 * n * d * (t + 1)),
            ),
        ),
        Mistake(
            "streaming reads the window anew",
            "When streaming, only the new token asks: W pairs a layer. The others have their outputs already.",
            _with(1, lambda p, n, d, t, w: 2 * p + 4 * n * d * (min(t, w) * (min(t, w) + 1) // 2)),
        ),
        Mistake(
            "half of all pairs",
            "The diagonal counts whole: 1 + 2 + … + W is W (W + 1) / 2, not W² / 2.",
            _costs(lambda w: w * w / 2),
        ),
        Mistake(
            "not three numbers",
            "Three counts are asked for: dense, streaming, the window read afresh.",
            lambda *sizes: _cost(*sizes)[1:],
            also=(lambda *sizes: _cost(*sizes)[2], lambda *sizes: _cost(*sizes)[2] / _cost(*sizes)[1]),
        ),
    ),
    also_right=(
        Variant("query by query", lambda *sizes: _by_query(*sizes)),
        Variant("a tensor", lambda *sizes: torch.tensor(_cost(*sizes))),
    ),
    hints=(
        "A token costs 2 FLOPs a weight. A pair of a query and a token costs 2 × width for its logit and 2 × width for "
        "adding up the value, in each layer.",
        "Count the pairs: `n_read` for dense attention, and as many as the window holds, at most `window`, when "
        "streaming. Query i of a window that is read afresh reads i tokens, for i = 1, 2, 3 and so on.",
        "With m = min(n_read, window) the last one is m tokens through all weights and m (m + 1) / 2 pairs.",
    ),
)


def _by_query(n_weights: int, n_layers: int, width: int, n_read: int, window: int) -> tuple[int, int, int]:
    def query(seen: int) -> int:
        return 2 * n_weights + 4 * n_layers * width * seen

    held = range(1, n_read + 1)[:window]
    return query(n_read), query(held[-1]), sum(query(seen) for seen in held)
