"""The titles say what the data say: every finding is computed, and changes when the data change."""

import math

import pytest
import torch
from figure_titles import drawn_title as title

from course_lib.lessons.common import masks
from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import verdict
from course_lib.lessons.wanda import accuracies, deck, figures, tables
from course_lib.lessons.wanda import measured as wanda_results


def made_up():
    """A measurement of made-up numbers, in the shape of lessons/wanda/measured.json."""
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
    (axes,) = wanda_results.sweep(made_up()).axes
    assert axes.get_ylabel().endswith(", n = 12)")
    assert title(wanda_results.sweep(made_up())) == "Wanda's perplexity is 8 to 10 times lower from 50 % on"


def test_pattern_title_follows_the_data():
    said = (
        "a tighter pattern clearly costs more in\n1 of 2 for magnitude, 2 of 2 for Wanda"  # 90, 80, 95 and 20, 30, 40
    )
    assert title(wanda_results.by_pattern(made_up())).endswith(said)
    turned = made_up()
    next(r for r in turned["tables"]["perplexity"] if (r["method"], r["pattern"]) == ("wanda", "4:8"))["perplexity"] = (
        50.0
    )
    assert title(wanda_results.by_pattern(turned)).endswith("1 of 2 for Wanda")


def test_calibration_title():
    # means 24.5 and 20.5
    said = "One window of calibration text: perplexity 20 % above that of 8"
    assert title(wanda_results.calibration_curve(made_up())) == said
    rough = made_up()
    for row in rough["tables"]["calibration"]:
        row["standard_error"] = 2.0
    assert title(wanda_results.calibration_curve(rough)) == f"{said}, within the errors"


def test_group_title():
    said = ":\nthe whole layer for magnitude, each output"
    assert title(wanda_results.group_ablation(made_up())) == f"Clearly the best group{said} for Wanda"
    near = made_up()
    for row in near["tables"]["groups"]:
        row["standard_error"] = 4.0
    said = title(wanda_results.group_ablation(near))
    assert said.startswith("The best group, and what is not clearly worse:")
    assert said.endswith("each output and the whole layer for Wanda")


def test_zero_shot_title_and_order():
    measured = made_up()
    assert title(accuracies.zero_shot(measured)).startswith("1 of 2 tasks tell the dense model from chance")
    assert accuracies.by_signal(measured) == ["sciq", "boolq"]


def test_tables():
    measured = made_up()
    table = tables.zero_shot_table(measured)
    assert "sciq               100      25    75 ± 5" in table
    assert table.splitlines()[3].startswith("boolq * ")
    assert "10 %" in tables.cost_table(measured)
    assert "no forward pass needed" in tables.cost_table(measured)
    assert "seed 0, 2026-01-02, a processor (2 cores)" in tables.provenance(measured)


def test_zero_shot_verdict_follows_the_data():
    measured = made_up()
    said = tables.zero_shot_verdict(measured)
    assert said.startswith("The paper's seven tasks: +0.0 ± 6.2 points for Wanda on average. 1 of them have no signal")
    assert "+0.0 ± 6.1 percentage points" in said
    assert said.endswith("Verdict: undecided (n = 100; even 100 times as many samples would not decide)")
    for row in measured["tables"]["zero_shot"]:
        row["accuracy"] += 0.2 * (row["method"] == "wanda")
    said = tables.zero_shot_verdict(measured)
    assert "+20.0 ± 6.6 points for Wanda" in said
    assert said.endswith("Verdict: holds")


def test_published_numbers_are_marked_and_stand_beside_ours():
    table = tables.published_table()
    assert table.startswith("Published, not measured here")
    assert "54.21" in table
    lines = tables.perplexity_table(made_up()).splitlines()
    (wanda,) = (line for line in lines if line.startswith("Wanda 50 %"))
    assert wanda.split() == ["Wanda", "50", "%", "20.0", "±", "1.0", "6.42", "5.56", "3.98"]
    assert any(line.startswith("SparseGPT 2:4") and "lesson 03" in line and "10.17" in line for line in lines)


def test_ratios_to_dense_are_those_of_each_model():
    """Here 20 / 10; published 6.42 / 5.12 = 1.25, 5.56 / 4.57 = 1.22, 3.98 / 3.12 = 1.28 at 50 %."""
    said = title(wanda_results.beside_published(made_up()))
    assert said == "50 %: Wanda 2.0 times the dense perplexity\nhere, 1.2 to 1.3 published"


def test_claims_follow_the_data():
    measured = made_up()
    measured["tables"]["groups"] += [
        {"method": "wanda", "group": "(input, 1)", "perplexity": 21.0, "standard_error": 3.0}
    ]
    words = {claim.id: claim.judge(measured).words for claim in tables.PAPER_CLAIMS}
    assert words["wanda-below-magnitude"] == words["wanda-patterns"] == "holds"  # 20 against 90; 20, 30, 40, each ± 1
    assert words["wanda-output-group"] == "holds partly (1 of 2)"  # 20 ± 1 against 25 ± 1 and 21 ± 3
    assert words["wanda-accuracy"].startswith("undecided")  # no difference of accuracy
    assert words["wanda-calibration"] == "holds"  # 21 ± 0.1 with most, 24 and 25 with one
    assert tables.claims_table(measured).count("published: ") == 5


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
    assert wanda_results.agreement(masks) == pytest.approx((92, 3))
    drawn = wanda_results.errors_of_choices(masks)
    assert title(drawn).endswith("is 92 % Wanda's,\nand its error 3.0 times as large (median of 3 layers)")
    assert [text.get_text() for text in drawn.axes[0].get_yticklabels()] == [
        "Wanda, each output",
        "magnitude, each output",
    ]


def test_wilsons_interval_and_coverage_by_hand():
    """0 of n reaches up to z²/(n + z²); one answer at p = ½: the normal interval has no width, Wilson's has ½ in it."""
    assert accuracies.wilson(0, 10) == pytest.approx((0, 0, 3.8416 / 13.8416))
    assert accuracies.wilson(10, 10) == pytest.approx((1, 10 / 13.8416, 1))
    assert accuracies.normal(36, 100) == pytest.approx((0.36, 0.36 - 1.96 * 0.048, 0.36 + 1.96 * 0.048))
    for share in accuracies.wilson(7, 25)[1:]:  # at its ends the observed share is 1.96 errors away
        assert abs(7 / 25 - share) == pytest.approx(1.96 * (share * (1 - share) / 25) ** 0.5)
    assert accuracies.coverage(accuracies.normal, 0.5, 1) == 0
    assert accuracies.coverage(accuracies.wilson, 0.5, 1) == 1
    assert accuracies.coverage(lambda k, n: (k / n, 0, 0.5), 0.5, 3) == 1


def test_the_worked_example_of_the_deck():
    assert "the two masks agree in 8 of 12 places" in deck.worked_example().get_suptitle()
    said = [axes.get_title(loc="left") for axes in deck.n_of_m_drawn().axes]
    assert said == ["Best half of the row: 30 of 41", "Best two of every four neighbours: 25 of 41"]


def test_costs_of_a_removal_by_hand():
    """H = [[2, 1], [1, 2]], its inverse has 2/3 on the diagonal: 2 w² alone, 3/2 w² helped."""
    alone, helped = figures.costs_of_removal(torch.tensor([[1.0, -2.0]]), torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    torch.testing.assert_close(alone, torch.tensor([[2.0, 8.0]]))
    torch.testing.assert_close(helped, torch.tensor([[1.5, 6.0]]))


def test_outlier_title_counts_the_features_that_hold_half():
    norms = torch.tensor([1.0, 1.0, 10.0, 1.0])
    assert title(figures.outliers(norms, "a layer")) == "a layer: half of the squared norm is in 1 of 4 input features"


def test_loudest_title():
    norms = {"blocks.0.q": torch.tensor([1.0, 2.0, 8.0]), "blocks.1.q": torch.tensor([1.0, 1.0, 20.0])}
    assert "the largest feature is 4 to 20 times the median one" in title(figures.loudest_against_median(norms))


def test_columns_title():
    weight = torch.tensor([[1.0, 2.0], [1.0, 2.0]])  # magnitude keeps column 1, Wanda the large column 0
    figure = figures.columns_kept(weight, torch.tensor([10.0, 1.0]))
    assert title(figure) == "Kept on the largest 1 % of inputs: magnitude 0 % of the weights, Wanda 100 %"


def test_obs_scores_meet_wanda_where_inputs_are_uncorrelated(generator):
    weight, gram = torch.randn(5, 6, generator=generator), torch.diag(torch.rand(6, generator=generator) + 0.5)
    obs, score = figures.obs_and_wanda_scores(weight, gram, damping=0.0)
    torch.testing.assert_close(obs, score.square(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("group", [None, 4])
def test_mask_picture_counts(group):
    got, expected = torch.zeros(3, 8, dtype=torch.bool), torch.ones(3, 8)
    figure = masks.compare_masks(got, expected, group)
    assert [a.get_title(loc="left") for a in figure.axes] == ["yours: 0 of 24 stay", "expected: 24 of 24 stay"]


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
        "yours, as good",
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
    found = accuracies.above_chance(measured)
    assert list(found) == ["sciq"]  # boolq has no signal
    assert [perplexity for perplexity, *_ in found["sciq"]] == [20.0, 30.0, 40.0, 80.0, 90.0, 95.0]
    perplexity, share, error = found["sciq"][0]
    of_half, of_dense = (math.sqrt(p * (1 - p) / 104) for p in (52 / 104, 77 / 104))
    assert (perplexity, share) == (20.0, 0.5)
    assert error == pytest.approx(math.hypot(of_half, 0.5 * of_dense) / 0.5)
    drawn = title(accuracies.against_perplexity(measured))
    assert drawn == "Left of the margin above chance at a perplexity of 80 (% of dense):\nsciq 100"


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
        (_, share, error), *_ = accuracies.above_chance(measured)["sciq"]
        assert share == 0.5
        errors.append(error)
    counts = {(1, 1): 50.5, (0, 1): 25.5, (0, 0): 25.5, (1, 0): 0.5}  # of 102 with half a question more of each kind
    mean, square = (sum(n * (a - 0.5 * b) ** power for (a, b), n in counts.items()) / 102 for power in (1, 2))
    assert errors[0] == pytest.approx(((square - mean**2) / 102) ** 0.5 / 0.5)
    assert errors[1] > 1.3 * errors[0]


def test_the_mean_of_the_seven_tasks_is_paired_where_the_answers_are_kept():
    measured = made_up()
    for row in rows(measured, "zero_shot"):
        row["right"] = answers(row["accuracy"])
    said = tables.zero_shot_verdict(measured)
    assert said.startswith("The paper's seven tasks: +0.0 ± 1.0 points")  # boolq alone, 2 half questions of 102
    assert "Tasks with a signal: sciq +0 ± 1" in said


def test_tasks_are_followed_where_perplexity_doubles():
    measured = made_up()
    for row in rows(measured, "zero_shot", method="magnitude", pattern="4:8", task="sciq"):
        row["accuracy"] = 0.65  # 0.75 with half of the weights; boolq has no signal
    for row in rows(measured, "zero_shot", task="sciq"):
        row["right"] = answers(row["accuracy"])
    said = accuracies.where_perplexity_doubles(measured).splitlines()
    assert said == ["Magnitude, from half to 4:8: perplexity 90 to 80; points of accuracy:", "sciq -10 ± 3"]


def test_a_task_of_one_word_is_judged_beside_the_others_model_by_model():
    measured = made_up()
    for row in rows(measured, "zero_shot", task="boolq"):  # from here on a task with a signal, of which nothing is left
        row["accuracy"] = 0.75 if row["method"] == "dense" else 0.25
    assert verdict(accuracies.one_word_gaps(measured, "boolq")) == "holds"
    assert verdict(accuracies.one_word_gaps(measured, "sciq")) == "does not hold"
