"""Parameters beside products, and the bias of a router's gradient, from made-up rows."""

import pytest
from claimed import one

from course_lib.lessons.moe.tables.further import MIXER, PRODUCT, decoupled, mixer_bias


@pytest.mark.parametrize(
    ("weights", "flops", "word"),
    [
        (400, 102, "holds"),
        (200, 102, "holds partly (2 of 4)"),
        (400, 120, "holds partly (2 of 4)"),
        (200, 120, "does not hold"),
    ],
)
def test_weights_and_products_are_counted(weights, flops, word):
    rows = [{"model": "dense", "parameters": 100, "flops_a_byte": 100}]
    rows += [{"model": name, "parameters": weights, "flops_a_byte": flops} for name in ("top-1", "top-2")]
    assert one(decoupled({"tables": {"models": rows}}), "experts have over 3 times") == word


@pytest.mark.parametrize(
    ("mixer", "word"),
    [
        ([0.1, 0.2, 0.1], "holds"),
        ([0.9, 0.8, 0.9], "does not hold"),
        ([0.1, 0.9, 0.5], "cannot tell (not with 100 times the sample, n = 3)"),
    ],
)
def test_problems_are_paired(mixer, word):
    rows = [
        {"loss": "cubic", "estimator": PRODUCT, "biases": [0.5, 0.5, 0.5]},
        {"loss": "cubic", "estimator": MIXER, "biases": mixer},
    ]
    assert one(mixer_bias({"tables": {"estimators": rows}}), "less biased") == word
