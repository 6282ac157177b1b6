"""Parameters of published shapes and cut models on a clock, from made-up rows."""

import pytest

from course_lib.lessons.minitron import claims

SHAPE = {"model": "toy", "blocks": 1, "width": 256, "heads": 2, "groups": 1, "neurons": 1000}
# Query and output 2 * 256 * 256, key and value 2 * 256 * 128, MLP 2 * 256 * 1000, words 2 * 256 * 256000: 131.78 M.
COUNTED = 0.13178
MIXED = "mixed (holds in cut, long; fails in cut, short)"


@pytest.mark.parametrize(("printed", "word"), [(COUNTED, "holds"), (COUNTED * 1.02, "does not hold")])
def test_a_shape_counted_by_hand(printed, word):
    published = {"tables": {"shapes": [SHAPE | {"billions": printed}]}}
    (distance,) = claims.shape_distances(published).values()
    assert distance.below(claims.AGREE).holds == (word == "holds")
    assert distance.below(claims.AGREE).fails == (word == "does not hold")


def test_the_published_shapes_are_counted():
    judged = claims.SHAPES_COUNTED.judge()
    assert (judged.ours, judged.words) == ("15.63, 8.54, 8.27, 4.19 billion", "holds")


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((1.2, 1.5), "holds"),
        ((0.8, 0.9), "does not hold"),
        ((0.8, 1.5), MIXED),
        ((1, 1), None),
    ],
)
def test_every_cut_must_be_faster(times, word):
    rows = [{"side": "dense", "anchor": "dense"}]
    rows += [
        {
            "side": "cut",
            "contest": contest,
            "anchor": "dense",
            "times_anchor": t,
            "times_anchor_low": t / 1.02,
            "times_anchor_high": t * 1.02,
        }
        for contest, t in zip(("short", "long"), times, strict=True)
    ]
    assert claims.CUT_FASTER.judge({"tables": {"sides": rows}}).words == (word or "undecided")
