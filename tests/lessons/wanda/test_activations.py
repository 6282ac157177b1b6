"""Outlier features and massive activations: what the text of lesson 04 says of the stored norms."""

import pytest
import torch

from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.wanda import plots
from course_lib.lessons.wanda.experiments import activations
from course_lib.models import Part, part_only


def test_norms_with_and_without_the_first_token_by_hand():
    """Two windows of two tokens: feature 0 is large at one first token alone, feature 2 everywhere."""
    inputs = torch.tensor([[[60.0, 1.0, 5.0], [0.0, 2.0, 5.0]], [[0.0, 1.0, 5.0], [0.0, 2.0, 5.0]]])
    assert activations.largest_and_median(inputs) == pytest.approx(
        {"largest": 60.0, "median": 10.0, "largest_without_first": 50**0.5, "median_without_first": 8**0.5}
    )


@pytest.mark.real
def test_a_quick_run_has_a_row_for_every_distinct_input():
    with part_only(Part()):
        (step,) = activations.EXPERIMENT.steps(activations.EXPERIMENT.quick)
        tables = step.run(0)
    assert [row["layer"] for row in tables["activations"]][:4] == [f"blocks.0.{kind}" for kind in plots.INPUTS]
    assert len(tables["activations"]) == 4 * 4
    assert tables["norms"][0]["layer"] == "blocks.2.self_attn.q_proj"


def test_what_the_text_says_of_the_two_kinds_of_large_inputs():
    """q, k, v: 18 to 70 in both panels. Down: 1,235, then 5 (block 11); 223, then 59 (28); 88, then 71 (2)."""
    all_tokens = plots.stored_ratios("largest", "median")
    without_first = plots.stored_ratios("largest_without_first", "median_without_first")
    for ratios in (all_tokens, without_first):
        assert (round(min(ratios["self_attn.q_proj"])), round(max(ratios["self_attn.q_proj"]))) == (18, 70)
    down = [[round(ratios["mlp.down_proj"][block]) for block in (2, 11, 28)] for ratios in (all_tokens, without_first)]
    assert down == [[88, 1235, 223], [71, 5, 59]]
    (row,) = rows(load_measured("wanda", "activations"), "norms")
    norms = torch.tensor(row["norms"])
    assert norms.argmax() == 247
    assert (norms.max() / norms.median()).item() == pytest.approx(44, abs=0.5)
