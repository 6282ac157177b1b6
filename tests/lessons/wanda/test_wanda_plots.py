"""The titles say what the data say: every finding is computed, and changes when the data change."""

import math

import pytest
import torch
from figure_titles import drawn_title as title
from figure_titles import titles

from course_lib.lessons.common import masks
from course_lib.lessons.common.results import rows
from course_lib.lessons.common.verdicts import verdict
from course_lib.lessons.wanda import claims, deck, plots, tables
from course_lib.lessons.wanda.experiments import masks as experiment


def made_up():
    """A measurement of made-up numbers, in the shape of experiments/wanda.json."""
    label = [("dense", "dense")] + [(m, p) for p in ("50%", "4:8", "2:4") for m in ("magnitude", "wanda")]
    cost = {"dense": 10.0, "magnitude 50%": 90.0, "wanda 50%": 20.0, "magnitude 4:8": 80.0, "wanda 4:8": 30.0}
    cost |= {"magnitude 2:4": 95.0, "wanda 2:4": 40.0}
    task = {"chance": 0.25, "standard_error": 0.05, "n": 100, "normalised": 0.3}
    accuracy = {"sciq": 0.75, "boolq": 0.26}
    return {
        "command": "course reproduce wanda",
        "seed": 0,
        "started": "2026-01-02T03:04:05",
        "machine": {"cpu": "a processor", "cores": 2, "torch": "2.13"},
        "sizes": {
            "length": 512,
            "calibration": 32,
            "evaluation": {"wikipedia": 24},
            "curve_calibration": 16,
            "curve_evaluation": 16,
        },
        "tables": {
            "perplexity": [
                {
                    "method": m,
                    "pattern": p,
                    "corpus": "wikipedia",
                    "perplexity": cost[m if m == "dense" else f"{m} {p}"],
                    "standard_error": 1.0,
                    "n_tokens": 12 * 511,
                }
                for m, p in label
            ],
            "zero_shot": [
                {"method": m, "pattern": p, "task": t, "accuracy": a} | task
                for m, p in label
                for t, a in accuracy.items()
            ],
            "zero_shot_mean": [
                {"method": m, "pattern": p, "accuracy": 0.4, "standard_error": 0.02, "chance": 0.35} for m, p in label
            ],
            "sweep": [
                {"method": m, "sparsity": s, "perplexity": value, "standard_error": 1.0, "n_tokens": 12 * 511}
                for m, s, value in [("dense", 0.0, 10.0)]
                + [("wanda", s, 20.0 * s) for s in (0.3, 0.5, 0.7)]
                + [("magnitude", s, 300 * s * s) for s in (0.3, 0.5, 0.7)]
            ],
            "calibration": [
                {"n_windows": n, "sample": k, "perplexity": 24.0 - 4 * (n > 1) + k, "standard_error": 0.1}
                for n in (1, 8)
                for k in (0, 1)
            ],
            "groups": [
                {"method": m, "group": g, "perplexity": v, "standard_error": 1.0, "n_tokens": 12 * 511}
                for m, values in {"magnitude": (30.0, 40.0), "wanda": (25.0, 20.0)}.items()
                for g, v in zip(("layer", "(output, 1)"), values, strict=True)
            ],
            "seconds": [
                {
                    "method": "magnitude",
                    "pattern": "50%",
                    "calibration_tokens": 9,
                    "forward": 0.0,
                    "gram": 0.0,
                    "factorise": 0.0,
                    "solve": 2.0,
                },
                {
                    "method": "wanda",
                    "pattern": "50%",
                    "calibration_tokens": 9,
                    "forward": 50.0,
                    "gram": 1.0,
                    "factorise": 0.0,
                    "solve": 4.0,
                },
            ],
        },
    }


def test_sweep_title():
    # ratios 300 s² / 20 s = 15 s: 7.5 at 50 %, 10.5 at 70 %; the point at 30 % is not among them
    (axes,) = plots.sweep(made_up()).axes
    assert axes.get_ylabel().endswith(", n = 12)")
    assert title(plots.sweep(made_up())) == "From 50 % sparsity on, Wanda's perplexity is 8 to 10 times lower"


def test_pattern_title_follows_the_data():
    said = (
        "a tighter pattern clearly costs more in\n1 of 2 for magnitude, 2 of 2 for Wanda"  # 90, 80, 95 and 20, 30, 40
    )
    assert title(deck.by_pattern(made_up())).endswith(said)
    turned = made_up()
    next(r for r in turned["tables"]["perplexity"] if (r["method"], r["pattern"]) == ("wanda", "4:8"))["perplexity"] = (
        50.0
    )
    assert title(deck.by_pattern(turned)).endswith("1 of 2 for Wanda")


def test_calibration_title():
    # means 24.5 and 20.5
    said = "With one calibration window perplexity is 20 % higher than with 8"
    assert title(deck.calibration_curve(made_up())) == said
    rough = made_up()
    for row in rough["tables"]["calibration"]:
        row["standard_error"] = 2.0
    assert title(deck.calibration_curve(rough)) == f"{said}, within the errors"


def test_group_title():
    said = ":\nthe whole layer for magnitude, each output"
    assert title(deck.group_ablation(made_up())) == f"Clearly the best group{said} for Wanda"
    near = made_up()
    for row in near["tables"]["groups"]:
        row["standard_error"] = 4.0
    said = title(deck.group_ablation(near))
    assert said.startswith("The best group, and those not clearly worse:")
    assert said.endswith("each output and the whole layer for Wanda")


def test_zero_shot_title_and_order():
    measured = made_up()
    assert title(plots.zero_shot(measured)).startswith("On 1 of 2 tasks the dense model is clearly above chance")
    assert plots.by_signal(measured) == ["sciq", "boolq"]


def test_the_table_of_ratios_by_hand():
    """Here 20 / 10; published 6.42 / 5.12 = 1.25 for LLaMA-2-7B with Wanda at 50 %."""
    table = tables.perplexity_ratios(made_up())
    row = table.frame.set_index("").loc["Wanda 50 %"]
    assert (row["perplexity, 135M"], row["times dense, 135M"]) == (20.0, pytest.approx(2.0))
    assert row["times dense, LLaMA-2-7B"] == pytest.approx(1.25, abs=0.005)
    assert "12 windows of Wikipedia; dense perplexity 10.0" in table.note
    assert len(table.frame) == 6


def test_the_table_of_costs_counts_no_tokens_without_a_forward_pass():
    frame = tables.cost(made_up()).frame.set_index("")
    assert frame.loc["Wanda 50 %"].tolist() == [9, 50.0, 1.0, 4.0]
    assert frame.loc["magnitude 50 %"].tolist() == [0, 0.0, 0.0, 2.0]
    assert "seed 0, 2026-01-02, a processor (2 cores)" in tables.provenance(made_up())


def test_ratios_to_dense_are_those_of_each_model():
    """Here 20 / 10; published 6.42 / 5.12 = 1.25, 5.56 / 4.57 = 1.22, 3.98 / 3.12 = 1.28 at 50 %."""
    said = title(deck.published_ratios(made_up()))
    assert said == "50 %: Wanda's perplexity is 2.0 times the dense one\nhere, 1.2 to 1.3 times published"


def test_claims_follow_the_data():
    measured = made_up()
    measured["tables"]["groups"] += [
        {"method": "wanda", "group": "(input, 1)", "perplexity": 21.0, "standard_error": 3.0}
    ]
    words = {claim.id: claim.judge(measured).words for claim in claims.PAPER_CLAIMS}
    assert words["wanda-below-magnitude"] == words["wanda-patterns"] == "holds"  # 20 against 90; 20, 30, 40, each ± 1
    assert words["wanda-output-group"] == "holds partly (1 of 2)"  # 20 ± 1 against 25 ± 1 and 21 ± 3
    assert words["wanda-accuracy-with-signal"].startswith("undecided")  # no difference of accuracy
    assert words["wanda-calibration"] == "holds"  # 21 ± 0.1 with most, 24 and 25 with one
    assert all(claim.published_value for claim in claims.PAPER_CLAIMS)


def test_errors_of_choices_by_hand():
    """Three layers: magnitude's mask agrees by 90, 92, 94 %, with 2, 3, 4 times the error."""
    masks = {
        "masks": [
            {
                "layer": str(times),
                "agree_with_wanda": {"magnitude": 0.86 + 0.02 * times},
                "relative_error": {"magnitude, row": 0.01 * times, "wanda, row": 0.01},
            }
            for times in (2, 3, 4)
        ]
    }
    assert deck.agreement_and_error(masks) == pytest.approx((92, 3))
    drawn = deck.layer_errors(masks)
    assert title(drawn).endswith(
        "on 92 % of the weights,\nand magnitude's error is 3.0 times Wanda's (median of 3 layers)"
    )
    assert [text.get_text() for text in drawn.axes[0].get_yticklabels()] == [
        "Wanda, each output",
        "magnitude, each output",
    ]


def test_wilsons_interval_and_coverage_by_hand():
    """0 of n reaches up to z²/(n + z²); one answer at p = ½: the normal interval has no width, Wilson's has ½ in it."""
    assert plots.wilson(0, 10) == pytest.approx((0, 0, 3.8416 / 13.8416))
    assert plots.wilson(10, 10) == pytest.approx((1, 10 / 13.8416, 1))
    assert plots.normal(36, 100) == pytest.approx((0.36, 0.36 - 1.96 * 0.048, 0.36 + 1.96 * 0.048))
    for share in plots.wilson(7, 25)[1:]:  # at its ends the observed share is 1.96 errors away
        assert abs(7 / 25 - share) == pytest.approx(1.96 * (share * (1 - share) / 25) ** 0.5)
    assert plots.coverage_of(plots.normal, 0.5, 1) == 0
    assert plots.coverage_of(plots.wilson, 0.5, 1) == 1
    assert plots.coverage_of(lambda k, n: (k / n, 0, 0.5), 0.5, 3) == 1


def test_the_worked_example_of_the_deck():
    assert "the masks agree on 8 of 12 weights" in deck.worked_example().get_suptitle()
    said = [axes.get_title(loc="left") for axes in plots.n_of_m_example().axes]
    assert said == [
        "Half of the row: the kept scores (dark) add up to 30 of 41",
        "Two of every four: the kept scores (dark) add up to 25 of 41",
    ]


def test_costs_of_a_removal_by_hand():
    """H = [[2, 1], [1, 2]], its inverse has 2/3 on the diagonal: 2 w² alone, 3/2 w² helped."""
    alone, helped = experiment.removal_costs(torch.tensor([[1.0, -2.0]]), torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    torch.testing.assert_close(alone, torch.tensor([[2.0, 8.0]]))
    torch.testing.assert_close(helped, torch.tensor([[1.5, 6.0]]))


def test_outlier_title_counts_the_features_that_hold_half():
    norms = torch.tensor([1.0, 1.0, 10.0, 1.0])
    assert (
        title(plots.feature_norms(norms, "a layer")) == "a layer: half of the squared norm is in 1 of 4 input features"
    )


def test_ratio_titles_name_the_largest_ratio_and_its_block():
    """q: 8 / 2 and 20 / 1; down: 9 / 1 in block 1, and 3 / 1 without the first token."""
    few, many = torch.tensor([1.0, 2.0, 8.0]), torch.tensor([1.0, 1.0, 20.0])
    norms = {f"layers.{i}.{kind}": few for i in (0, 1) for kind in plots.INPUTS}
    norms["layers.1.mlp.down_proj"] = many
    figure = plots.norm_ratios(norms, norms | {"layers.1.mlp.down_proj": few, "layers.0.self_attn.q_proj": 2 * many})
    assert titles(figure) == [
        "All tokens: up to 20 (block 1, down)",
        "Without the first token: up to 20 (block 0, q, k, v)",
    ]


def test_the_title_of_the_removed_weights_compares_what_they_change():
    """Row 0: 1.0 on an input of size 1, and 0.5 on one of size 8: 4 times as far."""
    weight = torch.tensor([[1.0, 0.2, 0.5], [0.1, 0.1, 0.6], [0.1, 0.1, 0.1]])
    inputs = torch.tensor([[1.0, 2.0, 8.0], [-1.0, 2.0, 8.0]])
    assert title(plots.removed_weights(weight, inputs)).startswith(
        "Removing the weight of 0.50 moves the output 4.0 times"
    )


def test_columns_title():
    weight = torch.tensor([[1.0, 2.0], [1.0, 2.0]])  # magnitude keeps column 1, Wanda the large column 0
    figure = plots.columns_kept(weight, torch.tensor([10.0, 1.0]))
    assert title(figure) == "Weights kept on the largest 1 % of inputs: magnitude 0 %, Wanda 100 %"


def test_removal_costs_are_wandas_score_squared_where_inputs_are_uncorrelated(generator):
    weight, gram = torch.randn(5, 6, generator=generator), torch.diag(torch.rand(6, generator=generator) + 0.5)
    _, helped = experiment.removal_costs(weight, experiment.damped(gram, 0.0))
    torch.testing.assert_close(helped, (weight.abs() * gram.diagonal().sqrt()).square(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("group", [None, 4])
def test_mask_picture_counts(group):
    got, expected = torch.zeros(3, 8, dtype=torch.bool), torch.ones(3, 8)
    figure = masks.compare_masks(got, expected, group)
    assert [a.get_title(loc="left") for a in figure.axes] == ["yours: 0 of 24 are kept", "expected: 24 of 24 are kept"]


def named(drawn):
    """What its two panels are called."""
    return [panel.get_title(loc="left").split(":")[0] for panel in drawn.axes]


def outlined(figure):
    """(x, y, width, height) of the box in the first panel, or None."""
    boxes = figure.axes[0].patches
    return (*boxes[0].get_xy(), boxes[0].get_width(), boxes[0].get_height()) if boxes else None


def test_a_tie_broken_the_other_way_is_not_outlined_and_the_row_that_differs_is():
    score = torch.tensor([[1.0, 1.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0]])
    expected = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 1]])
    other_tie, wrong = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 1]]), torch.tensor([[1, 0, 1, 1], [1, 0, 1, 1]])
    assert outlined(masks.compare_masks(other_tie, expected, score=score)) is None
    assert outlined(masks.compare_masks(wrong, expected, score=score)) == (-0.5, 0.5, 4, 1)
    assert outlined(masks.compare_masks(other_tie, expected)) == (-0.5, -0.5, 4, 1)
    assert outlined(masks.compare_masks(wrong, expected, marked=False)) is None
    assert named(masks.compare_masks(other_tie, expected, score=score)) == [
        "yours, equally good",
        "expected, one of several",
    ]
    assert named(masks.compare_masks(expected, expected, marked=False)) == ["yours", "expected"]
    assert named(masks.compare_masks(wrong, expected, score=score)) == ["yours", "expected"]


def test_a_group_that_keeps_others_is_outlined_though_its_row_keeps_as_much():
    score = torch.tensor([[1.0, 2.0, 1.0, 2.0]])
    expected, wrong = torch.tensor([[0, 1, 0, 1]]), torch.tensor([[0, 1, 1, 0]])
    assert outlined(masks.compare_masks(wrong, expected, 2, score=score)) == (-0.5, -0.5, 4, 1)


def test_columns_are_outlined_where_columns_are_compared():
    score = torch.tensor([[1.0, 5.0], [1.0, 6.0]])
    expected, wrong = torch.tensor([[0, 0], [1, 1]]), torch.tensor([[1, 1], [0, 0]])
    assert outlined(masks.compare_masks(wrong, expected, score=score, columns=True)) == (0.5, -0.5, 1, 2)


def test_the_first_number_that_differs_is_outlined():
    expected = torch.tensor([[0.0, 2.0], [3.0, 4.0]])
    wrong = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    figure = masks.compare_numbers(wrong, expected)
    assert outlined(figure) == (-0.5, 0.5, 1, 1)
    assert [a.get_title(loc="left") for a in figure.axes] == ["yours: 3 of 4 are zero", "expected: 1 of 4 are zero"]
    assert outlined(masks.compare_numbers(expected + 1e-6, expected)) is None
    assert outlined(masks.compare_numbers(torch.zeros(3, 1), expected)) is None


def test_negative_numbers_carry_a_dash_that_needs_no_colour():
    figure = masks.compare_numbers(torch.tensor([[1.0, 2.0], [-0.5, 0.0]]), torch.tensor([[1.0, -2.0], [-0.5, 0.0]]))
    yours, expected = ([tuple(at) for each in axes.collections for at in each.get_offsets()] for axes in figure.axes)
    assert (yours, expected) == ([(0, 1)], [(1, 0), (0, 1)])  # (column, row)


def test_a_single_row_has_a_single_tick():
    figure = masks.compare_numbers(torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 2.0]]))
    assert all(tick == int(tick) for tick in figure.axes[0].get_yticks())


def test_margins_above_chance_are_beside_those_of_the_dense_model():
    """Dense 75 % with 25 % by chance; 50 % is half of that margin. The error of the share by hand, from n = 100."""
    measured = made_up()
    for row in rows(measured, "zero_shot", method="wanda", pattern="50%", task="sciq"):
        row["accuracy"] = 0.5
    found = claims.kept_margins(measured)
    assert list(found) == ["sciq"]  # boolq has no signal
    assert [perplexity for perplexity, *_ in found["sciq"]] == [20.0, 30.0, 40.0, 80.0, 90.0, 95.0]
    perplexity, share, error = found["sciq"][0]
    of_half, of_dense = (math.sqrt(p * (1 - p) / 104) for p in (52 / 104, 77 / 104))
    assert (perplexity, share) == (20.0, 0.5)
    assert error == pytest.approx(math.hypot(of_half, 0.5 * of_dense) / 0.5)
    drawn = title(deck.margins(measured))
    assert drawn == "Margin above chance that is left at a perplexity of 80 (% of dense):\nsciq 100"


def answers(share, n=100, first=0):
    """So many of n questions right, from the first one on."""
    return "".join(str(int(first <= i < first + round(share * n))) for i in range(n))


def test_margins_are_compared_question_by_question_where_the_answers_are_kept():
    """50 of the 75 that dense has right, or as many on other questions: the same share, another error."""
    measured, errors = made_up(), []
    for first in (0, 50):
        for row in rows(measured, "zero_shot", task="sciq"):
            row["accuracy"] = 0.75 if row["method"] == "dense" else 0.5
            row["right"] = answers(row["accuracy"], first=0 if row["method"] == "dense" else first)
        (_, share, error), *_ = claims.kept_margins(measured)["sciq"]
        assert share == 0.5
        errors.append(error)
    counts = {(1, 1): 50.5, (0, 1): 25.5, (0, 0): 25.5, (1, 0): 0.5}  # of 102 with half a question more of each kind
    mean, square = (sum(n * (a - 0.5 * b) ** power for (a, b), n in counts.items()) / 102 for power in (1, 2))
    assert errors[0] == pytest.approx(((square - mean**2) / 102) ** 0.5 / 0.5)
    assert errors[1] > 1.3 * errors[0]


def test_a_task_of_one_word_is_judged_beside_the_others_model_by_model():
    measured = made_up()
    for row in rows(measured, "zero_shot", task="boolq"):  # from here on a task with a signal, of which nothing is left
        row["accuracy"] = 0.75 if row["method"] == "dense" else 0.25
    assert verdict(claims.one_word_gaps(measured, "boolq")) == "holds"
    assert verdict(claims.one_word_gaps(measured, "sciq")) == "does not hold"
