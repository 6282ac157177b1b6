"""The titles of the figures of lesson 02, its tables and its verdicts follow from the data."""

import copy
import math

import pytest
import torch
from figure_titles import drawn_title as title
from table_cells import rows

from course_lib.lessons.classic import claims, deck, plots, tables
from course_lib.lessons.common.claim import Claim
from course_lib.pruning.classic.deletion import delete, whole
from course_lib.pruning.classic.network import DTYPE, Network
from course_lib.pruning.classic.quadratic import quadratic
from course_lib.pruning.classic.surfaces import Diagonal

METHODS = ("magnitude", "OBD", "OBS")


def made_up():
    """Made-up results, in the shape of lessons/classic/experiments/classic.json."""
    left = {("magnitude", False): 28, ("OBD", False): 26, ("OBS", False): 12}
    left |= {("magnitude", True): 11, ("OBD", True): 14, ("OBS", True): 12}
    left |= {("OBS, alpha 1e-8", False): 20, ("OBS, alpha 1e-8", True): 17}
    lost = {"magnitude": 0.3, "OBD": 0.2, "OBS": 0.0}
    return {
        "command": "course reproduce classic",
        "seed": 0,
        "started": "2026-01-02T03:04:05",
        "machine": {"cpu": "a processor", "cores": 2, "torch": "2.13"},
        "sizes": {"xor_starts": 20, "monks_seeds": 2, "digits_seeds": 1},
        "tables": {
            "xor": [
                {
                    "method": m,
                    "decay": decay,
                    "n_starts": 20,
                    "n_nets": n,
                    "right": right * n // 16,
                    "right_with_update": updated * n // 16,
                    "right_without": plain,
                }
                for decay, n, obd in ((1e-5, 16, 0), (1e-3, 20, 3))
                for m, right, updated, plain in (("magnitude", 2, 16, 2), ("OBD", obd, obd, obd), ("OBS", 16, 16, 2))
            ],
            "monks": [
                {
                    "problem": problem,
                    "seed": seed,
                    "method": m,
                    "refit": refit,
                    "n_left": n + 2 * seed - (10 if problem == 3 else 0),
                    "dense_test": 1.0,
                    "test": 1.0 - 0.1 * (problem == 2 and seed == 1),
                }
                for problem in (1, 2, 3)
                for seed in (0, 1)
                for (m, refit), n in left.items()
            ],
            "monks_curves": [
                {
                    "problem": 1,
                    "method": m,
                    "refit": False,
                    "n_left": [4, 3, 2, 1],
                    "train": [1.0] * 4,
                    "test": [1.0] * (4 - i) + [0.5] * i,
                }
                for i, m in zip((3, 2, 1), METHODS, strict=True)
            ],
            "digits": [
                {
                    "method": m,
                    "seed": seed,
                    "sparsity": s,
                    "n_left": int(100 - 100 * s),
                    "pruned": 0.9 - lost[m] * (s > 0.4),
                    "retrained": 0.9,
                    "retrained_each_round": 0.9 - lost[m] * (s > 0.8) / 2,
                }
                for m in METHODS
                for s in (0.0, 0.4, 0.8, 0.9)
                for seed in (0, 1)
            ],
            "rows": [
                {"layer": layer, "row": r, "method": m, "calibration": e, "held_out": e * (1 + r)}
                for layer, share in (("q_proj", 0.5), ("gate_proj", 0.6))
                for r in (0, 1, 2)
                for m, e in (("magnitude", 0.2), ("OBD", 0.1), ("OBS", 0.1 * share))
            ],
        },
    }


def test_quadratics_name_the_methods_with_the_lowest_cost():
    figure = plots.quadratics({"given": quadratic((0.1, -0.3)), "turned": quadratic((0.2, -0.3), 30.0)})
    assert title(figure) == "given:\nall three delete weight 1"
    assert title(figure, 1) == "turned:\nOBS has 70 % of the highest cost"


def test_correlations_count_correlated_weights():
    hessian = torch.tensor([[4.0, 1.9, 0.0], [1.9, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=DTYPE)
    assert title(plots.correlations(hessian, ["a", "b", "c"])).startswith("2 of 3 weights have a correlation")


def test_diagonals_names_the_exact_layers():
    exact = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=DTYPE)
    found = exact + torch.tensor([0.0, 0.0, 3.0, 4.0], dtype=DTYPE)
    layers = {"layer 1": slice(2, 4), "layer 2": slice(0, 2)}
    assert title(plots.diagonals(exact, found, layers)) == "Exact in layer 2;\n100 % off in layer 1"
    assert title(plots.diagonals(exact, exact, layers)) == "Exact in layer 1 and layer 2"


def test_surviving_names_the_connected_inputs():
    network = Network((17, 2, 1))
    dense = whole(network, torch.ones(39, dtype=DTYPE))
    state, surface = dense, Diagonal(torch.ones(39, dtype=DTYPE))
    for q in range(39):
        if q not in (5, 18 + 14, 36):  # body=3 into the first unit, jacket=4 into the second, the first output weight
            state = delete(state, surface, q)
    figure = plots.surviving(state, dense)
    assert title(figure) == "trained: 39 weights"
    assert title(figure, 1) == "pruned: 3 weights,\ninputs body=3, jacket=4"


def test_bytes_of_inverses_names_the_largest_that_fits():
    sizes = {"small": 10, "middle": 1000, "large": 10**6}
    assert title(deck.bytes_of_inverses(sizes, 10**8)) == "The largest inverse Hessian that fits into 0 GB: middle"
    assert title(deck.bytes_of_inverses(sizes, 1)).endswith("none of these")
    assert not deck.bytes_of_inverses(sizes, 1).axes[0].patches  # no lengths on a log scale
    assert [tables.in_words(x) for x in (5, 1.3e6, 4.5e16)] == ["5 bytes", "1.3 MB", "45 PB"]


def test_titles_of_stored_results():
    measured = made_up()
    assert title(deck.xor_bars(measured)) == "Of 16 networks still right: magnitude 2, OBD 0, OBS 16"
    assert title(plots.monks_counts(measured)) == ("Problem 1: of 58 weights OBS\nleaves 13, retrained 13 (median)")
    assert title(deck.monks_curve(measured)).endswith("unchanged down to: magnitude 4, OBD 3, OBS 2")
    curves = plots.digits_curves(measured)
    assert title(curves).endswith("magnitude 40 %, OBD 40 %, OBS 90 %")
    assert title(curves, 1).endswith("magnitude 90 %, OBD 90 %, OBS 90 %")
    assert title(deck.weights_and_published(measured)) == "OBS alone, median minus published:\n-1, -2, -1 weights"
    assert title(plots.row_errors(measured)) == "Half of a row pruned: OBS's error is 50 to 60 % of OBD's (median)"


def test_tables():
    measured = made_up()
    assert rows(tables.xor(measured)) == [["magnitude", "4", "36"], ["OBD", "3", "3"], ["OBS", "4", "36"]]
    assert tables.xor(measured).caption.startswith("Of 36 XOR networks")
    assert "decay of 1e-05 or 1e-03" in tables.xor(measured).note
    assert "seed 0, 2026-01-02, a processor" in tables.provenance(measured)


def words(measured):
    """The verdict on each claim of the lesson that reads this result, by the claim's constant."""
    return {
        name: claim.judge(measured).words
        for name, claim in vars(claims).items()
        if isinstance(claim, Claim) and name in JUDGED
    }


JUDGED = ("XOR_RIGHT", "XOR_CHOICE", "MONKS_1", "MONKS_2", "MONKS_3", "MONKS_FEWER", "DIGITS", "ROWS")


def test_verdicts_follow_the_data():
    measured = made_up()
    assert words(measured) == dict.fromkeys(JUDGED, "holds") | {
        "XOR_CHOICE": "does not hold",  # magnitude chooses a correct weight as often
    }
    assert claims.MONKS_2.judge(measured).ours.startswith("1 of 2 networks; a median of")  # one network is enough
    xor = claims.XOR_RIGHT.judge(measured)
    assert xor.ours == "magnitude 4, OBD 3, OBS 36 of 36 networks"
    assert claims.XOR_CHOICE.judge(measured).ours.startswith("magnitude 36, OBD 3, OBS 36 of 36 networks; right after")
    assert claims.lossless_counts(measured, 1) == (2, 2, 2)
    assert claims.lossless_counts(measured, 2) == (1, 1, 2)
    assert [each.value for each in claims.MONKS_FEWER.judge(measured).effects.values()] == [14, 14, 14]
    assert claims.DIGITS.judge(measured).ours == "+50 percentage points"
    assert plots.row_ratio(measured) == pytest.approx([50, 60])
    ratios = [each.value for each in claims.ROWS.judge(measured).effects.values()]
    assert ratios == pytest.approx([math.log(2), math.log(1 / 0.6)])


def test_other_data_give_other_verdicts():
    measured = copy.deepcopy(made_up())
    tables = measured["tables"]
    tables["xor"][2]["right"] = tables["xor"][2]["right_with_update"] = 1
    for row in tables["monks"]:
        row["n_left"] += 60 * (row["method"] == "magnitude" and row["refit"])
        row["n_left"] += 30 * (row["method"] == "OBS" and not row["refit"])
    for row in tables["digits"]:
        row["pruned"] = 0.9 if row["method"] != "OBS" else 0.9 - row["sparsity"]
    for row in tables["rows"]:
        row["held_out"] *= 3 if row["method"] == "OBS" else 1
    assert set(words(measured).values()) == {"does not hold"}
    assert claims.lossless_counts(measured, 1) == (2, 0, 2)
    assert [each.value for each in claims.MONKS_FEWER.judge(measured).effects.values()] == [-16, -16, -16]
    assert claims.DIGITS.judge(measured).ours == "-90 percentage points"


def test_networks_that_disagree_leave_a_claim_undecided():
    measured = copy.deepcopy(made_up())
    for row in measured["tables"]["monks"]:  # OBS leaves 14 weights less of one network, 12 more of the other
        row["n_left"] += 26 * (row["method"] == "OBS" and not row["refit"] and row["seed"] == 1)
    found = claims.MONKS_FEWER.judge(measured)
    assert found.ours.startswith("+1 ± 13 weights (problem 1)")
    assert found.words == "undecided (n = 2; over 10 times as many samples would be needed)"
