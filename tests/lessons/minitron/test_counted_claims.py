"""Parameters of published shapes and cut models on a clock, from made-up rows."""

import pytest
from claimed import one

from course_lib.lessons.minitron.figures.counted import shapes_verdict, speed_verdict

SHAPE = {"model": "toy", "blocks": 1, "width": 256, "heads": 2, "groups": 1, "neurons": 1000}
# Query and output 2 * 256 * 256, key and value 2 * 256 * 128, MLP 2 * 256 * 1000, words 2 * 256 * 256000: 131.78 M.
COUNTED = 0.13178


@pytest.mark.parametrize(("printed", "word"), [(COUNTED, "holds"), (COUNTED * 1.02, "does not hold")])
def test_a_shape_counted_by_hand(printed, word):
    published = {"tables": {"shapes": [SHAPE | {"billions": printed}]}}
    assert one(shapes_verdict(published), "printed parameters within 1 %") == word


@pytest.mark.parametrize(
    ("times", "word"),
    [((1.2, 1.5), "holds"), ((0.8, 0.9), "does not hold"), ((0.8, 1.5), "holds partly (1 of 2)"), ((1, 1), None)],
)
def test_every_cut_must_be_faster(times, word):
    rows = [{"side": "dense", "anchor": "dense"}]
    rows += [
        {
            "side": "cut",
            "anchor": "dense",
            "times_anchor": t,
            "times_anchor_low": t / 1.02,
            "times_anchor_high": t * 1.02,
        }
        for t in times
    ]
    assert one(speed_verdict({"tables": {"sides": rows}}), "faster without kernels") == (word or "cannot tell")
