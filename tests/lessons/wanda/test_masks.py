"""What a mask does to the output of its layer, from the Gram matrix: against the outputs themselves."""

import statistics
from pathlib import Path

import pytest
import torch

from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.wanda.experiments import masks
from course_lib.models import tiny_model
from course_lib.pruning.input_statistics import grams_by_block, input_grams, input_norms

ROOT = Path(__file__).parents[3]


def test_errors_are_those_of_the_outputs(generator):
    weight, seen = torch.randn(6, 8, generator=generator), torch.randn(40, 8, generator=generator)
    held_out = torch.randn(30, 8, generator=generator)
    found = masks.of_layer(weight, seen.T @ seen, held_out.T @ held_out, 0.5)
    keep = torch.ones_like(weight, dtype=torch.bool).scatter(1, weight.abs().topk(4, largest=False).indices, False)
    expected = (held_out @ (weight * ~keep).T).square().sum() / (held_out @ weight.T).square().sum()
    assert found["relative_error"]["magnitude, row"] == pytest.approx(expected.item(), rel=1e-4)
    by_wanda = (weight.abs() * seen.norm(dim=0)).topk(4).indices
    same = (torch.zeros_like(keep).scatter(1, by_wanda, True) == keep).double().mean().item()
    assert found["agree_with_wanda"]["magnitude"] == pytest.approx(same)


def test_errors_of_masks_that_agree_are_equal():
    """With inputs of one norm and without correlations nothing tells the three apart."""
    weight, gram = torch.arange(1.0, 13).reshape(3, 4), torch.eye(4)
    found = masks.of_layer(weight, gram, gram, 0.5)
    assert set(found["agree_with_wanda"].values()) == {1.0}
    by_row = [error for choice, error in found["relative_error"].items() if choice.endswith("row")]
    assert by_row == pytest.approx([(1 + 4 + 25 + 36 + 81 + 100) / 650] * 3)


def test_walking_the_blocks_gives_what_each_block_gives_alone(generator):
    model = tiny_model()
    ids = torch.randint(3, 90, (2, 16), generator=generator)
    norms = input_norms(model, ids)
    for index, (layers, grams) in enumerate(grams_by_block(model, ids, "matrix")):
        alone = input_grams(model, ids, index)
        for layer in layers:
            torch.testing.assert_close(grams[layer.name].matrix, alone[layer.part].matrix)
            if layer.is_first:
                torch.testing.assert_close(grams[layer.name].diagonal.sqrt(), norms[layer.name])


# What the slides report: the first choice has the smaller error in nearly all layers.
CLEAR = (
    ("wanda, row", "magnitude, row"),
    ("magnitude, column", "magnitude, row"),
    ("wanda, row", "sparsegpt_score, row"),
    ("wanda, layer", "wanda, row"),
)


def test_the_committed_masks_are_those_of_the_experiment():
    measured = load_measured("wanda", "masks")
    found = measured["tables"]["masks"]
    assert len(found) == 210
    assert set(found[0]["relative_error"]) == {", ".join(choice) for choice in masks.CHOICES}
    assert measured["sizes"]["sparsity"] == masks.Sizes().sparsity
    for better, worse in CLEAR:
        assert sum(row["relative_error"][better] < row["relative_error"][worse] for row in found) > 0.9 * len(found)


def test_what_the_lesson_says_of_all_layers_is_what_was_measured():
    errors = [row["relative_error"] for row in rows(load_measured("wanda", "masks"), "masks")]
    ratios = sorted(error["magnitude, row"] / error["wanda, row"] for error in errors)
    text = " ".join((ROOT / "solutions" / "04_wanda.py").read_text(encoding="utf-8").replace("\n# ", " ").split())
    assert len(ratios) == 210
    assert ratios[0] > 1
    assert "Wanda's error is smaller in every layer" in text
    n_worse = sum(error["sparsegpt_score, row"] > error["wanda, row"] for error in errors)
    assert f"SparseGPT's score has a larger error than Wanda's in {n_worse} of them" in text
    assert f"magnitude's is {statistics.median(ratios):.1f} times as large in the median layer" in text
