"""Parameters beside products, and the bias of a router's gradient, from made-up rows."""

import pytest

from course_lib.lessons.moe import claims

WEIGHTS = {"weights of top-1", "weights of top-2"}
PRODUCTS = {"multiplications of top-1", "multiplications of top-2"}


@pytest.mark.parametrize(
    ("weights", "flops", "word", "held"),
    [
        (400, 102, "holds", WEIGHTS | PRODUCTS),
        (200, 102, "mixed (holds in 2; fails in 2)", PRODUCTS),
        (400, 120, "mixed (holds in 2; fails in 2)", WEIGHTS),
        (200, 120, "does not hold", set()),
    ],
)
def test_weights_and_products_are_counted(weights, flops, word, held):
    rows = [{"model": "dense", "parameters": 100, "flops_a_byte": 100}]
    rows += [{"model": name, "parameters": weights, "flops_a_byte": flops} for name in ("top-1", "top-2")]
    judged = claims.DECOUPLED.judge({"tables": {"models": rows}})
    assert judged.words == word
    assert {name for name, effect in judged.effects.items() if effect.holds} == held


@pytest.mark.parametrize(
    ("mixer", "word"),
    [
        ([0.1, 0.2, 0.1], "holds"),
        ([0.9, 0.8, 0.9], "does not hold"),
        ([0.1, 0.9, 0.5], "undecided (n = 3; over 10 times as many samples would be needed)"),
    ],
)
def test_problems_are_paired(mixer, word):
    rows = [
        {"loss": "cubic", "estimator": "Multiplier", "biases": [0.5, 0.5, 0.5]},
        {"loss": "cubic", "estimator": "SparseMixer v1, as released", "biases": mixer},
    ]
    assert claims.SPARSE_MIXER.judge({"tables": {"estimators": rows}}).words == word
