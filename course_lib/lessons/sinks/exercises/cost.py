"""The exercise sinks.cost, "Streaming against recomputing": its cases and its named mistakes.

Dimension key: W tokens of a window, D size of a head.
"""

from typing import Any

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.sinks.exercises.common import whole


def _cost(n_weights: int, n_layers: int, width: int, window: int) -> tuple[int, int]:
    token, pair = 2 * n_weights, 4 * n_layers * width
    return token + pair * window, token * window + pair * (window * (window + 1) // 2)


def _costs(pairs: Any = None, **changed: int) -> Any:
    """The count with something else in one place."""

    def count(n_weights: int, n_layers: int, width: int, window: int) -> tuple[int, int | float]:
        token, pair = changed.get("token", 2) * n_weights, changed.get("pair", 4) * n_layers * width
        seen = pairs(window) if pairs else window * (window + 1) // 2
        return token + pair * window, token * window + pair * seen

    return count


COST = Exercise(
    id="sinks.cost",
    title="Streaming against recomputing",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_cost,
    cases=lambda generator: [
        Case("10 weights, 1 layer of width 2, window 3: 44 and 108", (10, 1, 2, 3)),
        Case("SmolLM2's blocks, a window of 256", (106_168_320, 30, 576, 256)),
        Case("the same, a window of 4096", (106_168_320, 30, 576, 4096)),
        Case("a drawn model", (whole(generator, 1000, 10**6), whole(generator, 2, 40), 64, 100)),
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
            lambda p, n, d, w: (_cost(p, n, d, w)[0], 2 * p + 4 * n * d * (w * (w + 1) // 2)),
        ),
        Mistake(
            "logits without values",
            "Each pair costs 2 D FLOPs a head for the logit, and as many for adding up the value.",
            _costs(pair=2),
        ),
        Mistake(
            "one FLOP a weight",
            "Each weight is multiplied and then added: two FLOPs a token.",
            _costs(token=1),
        ),
        Mistake(
            "the new token reads itself alone",
            "While streaming, the new token still attends over everything in the cache: W pairs a layer.",
            lambda p, n, d, w: (2 * p + 4 * n * d, _cost(p, n, d, w)[1]),
            also=(lambda p, n, d, w: (2 * p, _cost(p, n, d, w)[1]),),
        ),
        Mistake(
            "one layer",
            "The attention of all layers counts.",
            lambda p, n, d, w: _cost(p, 1, d, w),
        ),
        Mistake(
            "in the other order",
            "Streaming comes first, then recomputation.",
            lambda p, n, d, w: _cost(p, n, d, w)[::-1],
        ),
        Mistake(
            "one token more or less",
            "When streaming, the new token reads `window` tokens, itself among them: W pairs a layer.",
            lambda p, n, d, w: (2 * p + 4 * n * d * (w - 1), _cost(p, n, d, w)[1]),
            also=(lambda p, n, d, w: (2 * p + 4 * n * d * (w + 1), _cost(p, n, d, w)[1]),),
        ),
        Mistake(
            "streaming reads the window anew",
            "When streaming, only the new token asks: W pairs a layer. The others have their outputs already.",
            lambda p, n, d, w: (2 * p + 4 * n * d * (w * (w + 1) // 2), _cost(p, n, d, w)[1]),
        ),
        Mistake(
            "half of all pairs",
            "The diagonal counts whole: 1 + 2 + … + W is W (W + 1) / 2, not W² / 2.",
            _costs(lambda w: w * w / 2),
        ),
        Mistake(
            "one number",
            "Two counts are asked for: streaming, then recomputing.",
            lambda p, n, d, w: _cost(p, n, d, w)[1],
            also=(lambda p, n, d, w: _cost(p, n, d, w)[1] / _cost(p, n, d, w)[0],),
        ),
    ),
    also_right=(
        Variant(
            "query by query",
            lambda p, n, d, w: (2 * p + 4 * n * d * w, sum(2 * p + 4 * n * d * (i + 1) for i in range(w))),
        ),
        Variant("a tensor", lambda p, n, d, w: torch.tensor(_cost(p, n, d, w))),
    ),
    hints=(
        "A token costs 2 FLOPs a weight. A pair of a query and a token costs 2 × width for its logit and 2 × width for "
        "its value, in each layer.",
        "Streaming: one token, W pairs. Recomputing: W tokens, and 1 + 2 + … + W pairs.",
    ),
)
