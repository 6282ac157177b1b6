"""The open task of lesson 01: masks by a rule, bytes of their formats, and a model that is restored afterwards."""

import pytest
import torch
from table_cells import rows

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.patterns import tables
from course_lib.lessons.patterns.experiments import budget
from course_lib.models import layers_of, tiny_model, weight_of


def test_a_rule_receives_every_matrix_with_its_depth_and_cannot_change_it():
    model, seen = tiny_model(), []

    def rule(part, depth, weight):
        seen.append((part, depth))
        return weight.zero_() == 0

    before = [weight_of(layer.module).clone() for layer in layers_of(model)]
    masks = budget.masks_of(rule, model)
    assert len(seen) == len(masks) == len(before)
    assert {depth for _, depth in seen} == {0.0, 1.0}  # two blocks
    assert "mlp.up_proj" in {part for part, _ in seen}
    assert all(torch.equal(weight, dense) for (weight, _), dense in zip(masks, before, strict=True))


def test_an_attempt_counts_bytes_and_is_evaluated_only_within_the_budget(monkeypatch, tiny_tokenizer):
    model, losses = tiny_model(), torch.tensor([1.0, 2.0])
    zeros = []
    monkeypatch.setattr(budget, "windows", lambda *settings, **more: None)
    monkeypatch.setattr(
        budget,
        "window_losses",
        lambda model, *_, **more: (
            zeros.append(sum(int((weight_of(layer.module) == 0).sum()) for layer in layers_of(model))) or losses
        ),
    )
    whole = budget.attempt(lambda part, depth, weight: torch.ones_like(weight).bool(), model, tiny_tokenizer)
    assert (whole.size, whole.density, whole.losses) == (1.0, 1.0, None)
    assert set(whole.formats) == {"dense"}
    before = [weight_of(layer.module).clone() for layer in layers_of(model)]
    quarter = budget.attempt(
        lambda part, depth, weight: torch.arange(weight.shape[1]).expand_as(weight) % 4 == 0, model, tiny_tokenizer
    )
    assert quarter.density == pytest.approx(0.25, abs=0.01)
    assert quarter.size < 0.4
    assert quarter.losses is losses
    assert zeros[0] >= 0.7 * sum(weight.numel() for weight in before)
    assert all(torch.equal(weight_of(layer.module), w) for layer, w in zip(layers_of(model), before, strict=True))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, "got NoneType for blocks.0.self_attn.q_proj; expected a mask of its shape"),
        (torch.ones(3), r"got a tensor of shape \(3,\) for"),
        (0.5, "got float for"),
    ],
)
def test_anything_but_a_mask_is_refused_with_its_layer(mask, message):
    with pytest.raises(ValueError, match=message):
        budget.masks_of(lambda part, depth, weight: mask, tiny_model())
    with pytest.raises(ValueError, match="expected True where a weight is kept"):
        budget.masks_of(lambda part, depth, weight: weight, tiny_model())


def test_ideas_are_compared_window_by_window():
    """Windows 2 and 4 against 3 and 6: above by 1 and 2, 1.5 ± 0.5."""
    first = budget.Attempt(0.7, 0.63, {"bitmap": 2}, torch.tensor([2.0, 4.0]))
    other = budget.Attempt(0.69, 0.6, {"2:4": 1, "dense": 1}, torch.tensor([3.0, 6.0]))
    table = tables.ideas(other, {"one": first, "over": budget.Attempt(0.9, 0.8)})
    assert rows(table) == [
        ["one", "63.0 %", "70.0 %", "20.1", "–"],
        ["over", "80.0 %", "90.0 %", "–", "–"],
        ["yours", "60.0 %", "69.0 %", "90.0", "+1.500 ± 0.500"],
    ]
    assert "over the budget of 70 % is not evaluated" in table.note
    assert table.note.endswith("Yours is stored as 2:4 (1), dense (1).")


def test_the_committed_ideas_are_those_of_the_task_and_within_the_budget():
    measured = load_measured("patterns", "budget")
    ideas = budget.stored(measured["tables"]["ideas"])
    assert tuple(ideas) == budget.EXPERIMENT.sizes.ideas == tuple(measured["sizes"]["ideas"])
    for made in ideas.values():
        assert len(made.losses) == budget.EVALUATION[0]
        assert 0.6 < made.size <= budget.BUDGET
