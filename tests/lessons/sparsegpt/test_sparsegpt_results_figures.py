"""The figures, tables and claims of stored results, from made-up rows: every number in a title is computed."""

import math
from itertools import product

import pytest
from figure_titles import title
from table_cells import headings
from table_cells import rows as cells

from course_lib.lessons.common.results import rows
from course_lib.lessons.sparsegpt import claims, deck, plots
from course_lib.lessons.sparsegpt import tables as lesson_tables

PERPLEXITY = {"magnitude": 90.0, "wanda": 40.0, "sparsegpt": 30.0, "sparsegpt + refit": 28.0}
ERROR = {"standard_error": 1.0, "n_tokens": 100}


def made_up():
    """Tables of made-up numbers, in the shape of those of lessons 03 and 04 joined."""
    patterns, sparsities = ("50%", "4:8", "2:4"), (0.3, 0.5, 0.7)
    dense = {"method": "dense", "pattern": "dense", "corpus": "wikipedia", "perplexity": 20.0} | ERROR
    task = {"chance": 0.25, "standard_error": 0.05, "n": 100, "normalised": 0.3}
    accuracy = {("dense", "dense"): (0.8, 0.26), ("wanda", "50%"): (0.6, 0.3), ("sparsegpt", "50%"): (0.7, 0.2)}
    return {
        "sweep": [{"method": "dense", "sparsity": 0.0, "perplexity": 20.0}]
        + [
            {"method": m, "sparsity": s, "perplexity": 2 * s * p}
            for (m, p), s in product(PERPLEXITY.items(), sparsities)
        ],
        "perplexity": [dense]
        + [
            {"method": m, "pattern": pattern, "corpus": "wikipedia", "perplexity": p * (i + 1)} | ERROR
            for m, p in PERPLEXITY.items()
            for i, pattern in enumerate(patterns)
        ],
        "calibration": [{"n_windows": n, "sample": 0, "perplexity": 60.0 / n} for n in (1, 2, 4)],
        "block_size": [{"block_size": n, "perplexity": p} | ERROR for n, p in ((1, 33.0), (128, 30.0), (1536, 36.0))],
        "thirds": [
            {"third": t, "pattern": p, "first_block": 0, "last_block": 9, "perplexity": value} | ERROR
            for p in ("50%", "2:4")
            for t, value in (("early", 25.0), ("middle", 22.0), ("late", 24.0 if p == "50%" else 27.0))
        ],
        "layer_errors": [
            {"pattern": "50%", "layer": f"blocks.{i}.{x}", "magnitude": 0.4, "wanda": 0.2, "sparsegpt": s, "refit": 0.1}
            for i, (x, s) in product((0, 1), (("q", 0.12), ("k", 0.3)))
        ],
        "rounded": [
            {"name": n, "group": 64, "bits_a_weight": b, "perplexity": p} | ERROR
            for n, b, p in (("3 bits", 3.4, 50.0), ("50% + 4 bits", 3.5, 40.0))
        ],
        "seconds": [
            {"method": m, "pattern": p, "calibration_tokens": 16384, "forward": 40.0, "gram": gram, "factorise": 0.0}
            | {"solve": 2.0, "bytes_activations": 38_000_000, "bytes_grams": 20_000}
            for p in ("50%", "2:4")
            for m, gram in (("wanda", 1.0), ("sparsegpt", 7.0))
        ],
        "zero_shot": [
            {"method": m, "pattern": p, "task": t, "accuracy": a} | task
            for (m, p), both in accuracy.items()
            for t, a in zip(("sciq", "boolq"), both, strict=True)
        ],
    }


def test_the_sweep_gives_the_ratio_at_three_sparsities():
    left, right = (axes.get_title(loc="left") for axes in deck.by_sparsity(made_up()).axes)
    assert left == "Magnitude's perplexity / Wanda's:\n2 at 50 %, 2 at 70 %"
    assert right == "SparseGPT's perplexity / Wanda's:\n0.75 at 30 %, 0.75 at 50 %, 0.75 at 70 %"


def test_the_patterns_give_the_ratio_at_each():
    assert title(plots.by_pattern(made_up())).endswith("0.75 at 50 %, 0.75 at 4:8, 0.75 at 2:4")


def test_the_calibration_curve_compares_little_text_with_much():
    wanda = [{"n_windows": n, "perplexity": 20.0} for n in (1, 2, 4)]
    drawn = plots.calibration_curves(made_up(), wanda)
    assert title(drawn).startswith("With one calibration window, perplexity is higher than with 4:\n")
    assert title(drawn).endswith("1.0 times with Wanda, 4.0 times with SparseGPT")
    assert [len(line.get_xdata()) for line in drawn.axes[0].lines] == [3] * 4  # a curve, and one mark per sample


def test_errors_over_depth_count_the_layers_in_between():
    found = title(deck.errors_over_depth(made_up()))
    assert "in 2 of 4 layers" in found
    assert "110 % above least squares" in found  # median of 1.2, 1.2, 3, 3


@pytest.mark.parametrize(("sparse", "verdict"), [(40.0, "holds"), (60.0, "not at this scale"), (50.5, "undecided")])
def test_the_equal_size_claim_is_computed(sparse, verdict):
    tables = made_up()
    tables["rounded"][1]["perplexity"] = sparse
    assert claims.ROUNDED.judge(tables).words == verdict


def test_seconds_have_bytes_and_the_ratio_and_the_papers():
    """Beyond 40 s of forward passes 7 + 2 = 9 s against 3 s; in all 49 against 43."""
    table = lesson_tables.cost(made_up())
    assert cells(table)[0][-2:] == ["38.0", "0.02"]
    assert "9.0 s with SparseGPT and 3.0 s with Wanda, 3.0 times as long; in total 1.1 times." in table.note
    assert table.note.endswith("203.1 s and 0.54 s, 376 times as long.")
    assert "takes 3.0 times as long as Wanda,\n3.0 times at 2:4" in title(deck.seconds(made_up()))


def test_thirds_get_a_verdict():
    """Logs of 24 and 27 compared with 25: -0.04 and 0.08, errors of about 0.06."""
    found = claims.LATE_BLOCKS.judge(made_up())
    logs = {name: (each.value, each.error) for name, each in found.estimates.items()}
    assert logs["50 %"] == pytest.approx((math.log(24 / 25), math.hypot(1 / 24, 1 / 25)))
    assert logs["2:4"] == pytest.approx((math.log(27 / 25), math.hypot(1 / 27, 1 / 25)))
    assert found.words == "undecided"
    tables = made_up()
    for row in tables["thirds"]:
        row["perplexity"] = {"early": 50.0, "middle": 40.0, "late": 20.0}[row["third"]]
    assert claims.LATE_BLOCKS.judge(tables).words == "not at this scale"


def test_models_of_the_paper_are_compared_with_ours():
    said = title(plots.by_size(made_up()))
    assert "1.33 times the dense perplexity with OPT-125M, 0.98 with OPT-175B" in said
    assert said.splitlines()[1].startswith("1.50 with")  # 30 over 20
    assert plots.size_of("OPT-350M") == 350
    assert plots.size_of("OPT-1.3B") == 1300


def test_the_claims_to_take_home_follow_from_the_tables():
    tables = made_up()
    for group, value in ((None, 40.0), (64, 50.0)):
        for name in ("3 bits", "50% + 4 bits"):
            row = {"name": name, "group": group, "bits_a_weight": 3.1, "perplexity": value} | ERROR
            tables["rounded"].append(row)
    found = {claim.id: claim.judge(tables) for claim in claims.PAPERS_CLAIMS}
    half = found["sparsegpt-than-wanda-half"]
    assert half.claim.published_value == "0.986 times (LLaMA-2-7B)"  # 6.42 over 6.51
    assert half.ours.startswith("1.333 ± ")  # 40 over 30
    assert half.words == "holds"
    assert found["sparsegpt-near-the-best"].ours == "110 %"
    assert found["sparsegpt-near-the-best"].words == "does not hold"
    assert found["sparsegpt-depth-2-4"].words == "undecided"
    (axes,) = deck.take_home().axes
    assert len(axes.texts) == 4 * (len(found) + 1)


def test_only_tasks_with_a_signal_count():
    text = str(claims.MORE_ACCURATE.judge(made_up()))
    assert "+10.0 ± 6.7 percentage points" in text
    assert text.endswith("Verdict: undecided (n = 100; about 173 samples would decide)")
    assert claims.tasks_with_signal(made_up()) == ["sciq"]


def test_accuracies_are_compared_question_by_question_if_they_are_stored():
    tables = made_up()
    for row in tables["zero_shot"]:  # the same sixty are right, and ten more with SparseGPT: 10 ± 3 points
        row["right"] = "".join(str(int(i < round(100 * row["accuracy"]))) for i in range(100))
    text = str(claims.MORE_ACCURATE.judge(tables))
    assert "+10.0 ± 3.1 percentage points" in text  # with half a question more of each kind
    assert text.endswith("Verdict: holds")


def of_windows(tables, method, shifts):
    """The same table with losses of each window for a method: its log-perplexity, shifted."""
    for row in rows(tables, "perplexity", method=method):
        row["losses"] = [math.log(row["perplexity"]) + shift for shift in shifts]
    return tables


def test_perplexities_are_compared_window_by_window_if_both_are_stored():
    """30 against 40 with 20 % of error each do not differ significantly; three windows, all 0.28 to 0.30 apart, do."""
    tables = made_up()
    for row in tables["perplexity"]:
        row["standard_error"] = 0.2 * row["perplexity"]
    assert claims.THAN_WANDA_HALF.judge(tables).words == "undecided"
    of_windows(tables, "wanda", (0.5, -0.5, 0.0))  # one side alone changes nothing
    assert claims.THAN_WANDA_HALF.judge(tables).words == "undecided"
    of_windows(tables, "sparsegpt", (0.51, -0.5, -0.01))
    assert claims.THAN_WANDA_HALF.judge(tables).words == "holds"


def test_error_bars_are_of_pairs_where_there_are_pairs():
    """Two windows, each exactly log 1.5 above the dense one: no bar; from both errors it would reach 15 % up."""
    tables = of_windows(of_windows(made_up(), "dense", (0.5, -0.5)), "sparsegpt", (0.5, -0.5))
    assert _bar(plots.by_size(tables)) == pytest.approx(0.0, abs=1e-12)
    assert _bar(plots.by_size(made_up())) == pytest.approx(1.5 * math.expm1(2 * math.hypot(1 / 20, 1 / 30)))


def _bar(drawn):
    """How far the error bar of the first model measured here reaches up."""
    (_, value), (_, top) = (drawn.axes[0].containers[0][0].get_xydata()[0], _ends(drawn)[1])
    return top - value


def _ends(drawn):
    return drawn.axes[0].containers[0][2][0].get_segments()[0]


def test_the_order_of_patterns_is_judged_by_method():
    assert claims.PATTERNS_COST.judge(made_up()).words == "holds"
    tables = made_up()
    for row in tables["perplexity"]:
        if row["method"] == "wanda" and row["pattern"] == "2:4":
            row["perplexity"] = 1.0
    assert claims.PATTERNS_COST.judge(tables).words == "mixed (holds in 7; fails in 1)"
    for row in tables["perplexity"]:
        row["standard_error"] = row["perplexity"]
    assert claims.PATTERNS_COST.judge(tables).words == "mixed (fails in 1; undecided in 7)"
    noisy = made_up()
    for row in noisy["perplexity"]:
        row["standard_error"] = row["perplexity"]
    assert claims.PATTERNS_COST.judge(noisy).words == "undecided"


def test_successors_are_compared_with_the_sweep_at_half():
    tables = made_up()
    for row in tables["sweep"]:
        row |= ERROR
    tables["successors"] = [{"method": "swaps + refit", "pattern": "2:4", "perplexity": 55.5} | ERROR]
    tables["successors"] += [{"method": "swaps + refit", "pattern": "50%", "perplexity": 25.5} | ERROR]
    table = lesson_tables.successors(tables)
    assert headings(table) == ["method", "unstructured", "2:4"]
    assert cells(table)[1] == ["Wanda", "40.0 ± 1.0", "–"]
    assert cells(table)[-1][1:] == ["25.5 ± 1.0", "55.5 ± 1.0"]


def test_at_4_of_8_the_other_methods_use_the_first_windows_of_the_main_table():
    """Losses ln 20 and ln 80 have the mean ln 40, and an error of ln 4 / 2; the third window is not of the curves."""
    tables = made_up()
    tables["successors"] = [
        {"method": "swaps + refit", "pattern": "4:8", "perplexity": 55.5, "losses": [4.0, 4.0]} | ERROR
    ]
    (wanda,) = rows(tables, "perplexity", method="wanda", pattern="4:8")
    wanda["losses"] = [math.log(20), math.log(80), 9.0]
    table = lesson_tables.successors(tables)
    assert headings(table)[-1] == "4:8"
    assert cells(table)[0] == ["magnitude", "–"]
    assert cells(table)[1] == ["Wanda", f"40.0 ± {40 * math.log(4) / 2:.1f}"]
    assert cells(table)[-1][1] == "55.5 ± 1.0"
