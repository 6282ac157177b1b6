"""The search for heads to steer, on worths that are known."""

import pytest

from course_lib.attention.steering.heads import search_heads

GOOD = {(1, 0): 3.0, (1, 2): 1.0, (3, 1): 2.0}


def worth(heads):
    """Good heads add up; every other costs a little, so that fewer are better."""
    return sum(GOOD.get(head, -0.1) for head in heads)


def test_it_finds_the_good_heads_coarse_to_fine():
    found = search_heads(worth, 5, 4, best_layers=2, per_layer=(1, 2), pooled=(3, 5))
    assert found.by_layer == pytest.approx((-0.4, 3.8, -0.4, 1.7, -0.4))
    assert set(found.by_head) == {(layer, head) for layer in (1, 3) for head in range(4)}
    assert (set(found.heads), found.name) == (set(GOOD), "3 heads of all")
    assert found.n_tried == 5 + 8 + len(found.candidates)
    assert list(found.candidates) == [
        "best 1 layers", "best 2 layers", "1 heads of each", "2 heads of each", "3 heads of all", "5 heads of all",
    ]  # fmt: skip
    assert found.candidates["1 heads of each"] == (((1, 0), (3, 1)), 5.0)


def test_sets_that_are_whole_layers_are_not_tried_twice():
    found = search_heads(worth, 5, 4, best_layers=1, per_layer=(4, 6), pooled=(4, 16))
    assert list(found.candidates) == ["best 1 layers"]


def test_of_equals_the_first_is_taken():
    assert search_heads(lambda heads: 0.0, 3, 2, best_layers=1).name == "best 1 layers"


@pytest.mark.parametrize("best_layers", [0, 6])
def test_layers_that_are_not_there_are_refused(best_layers):
    with pytest.raises(ValueError, match=f"best_layers={best_layers}"):
        search_heads(worth, 5, 4, best_layers)
