"""Printed tables and verdicts of lesson 06, against numbers worked by hand."""

import pytest
import torch
from table_cells import rows as cells
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from course_lib.lessons.moe import claims, pairs
from course_lib.lessons.moe.exercises.balance import BALANCE
from course_lib.lessons.moe.live.training import Run
from course_lib.lessons.moe.tables import measured, printed, published
from course_lib.models import tiny_model
from course_lib.moe.routed import Routing
from course_lib.moe.small_models.training import Reading


def routing(*load):
    """Ten choices in these shares."""
    chosen = torch.zeros(10, len(load), dtype=torch.bool)
    at = 0
    for expert, share in enumerate(load):
        chosen[at : at + round(10 * share), expert] = True
        at += round(10 * share)
    return Routing(chosen.float(), chosen.float(), chosen, chosen)


def run(losses, *load):
    """A model of one block after 40 steps."""
    of_block = routing(*load)
    return Run(tiny_model(), (1, 40), of_block.load[None, None], Reading(torch.tensor(losses), [of_block]))


def test_two_layers_that_collapse_differently_hide_from_averages():
    equal, collapsed = cells(printed.per_layer(printed.two_layers(), BALANCE.library, load_balancing_loss_func))
    assert equal[1:] == ["1.00", "1.00"]
    assert collapsed[1:] == ["2.00", "1.00"]


def test_runs_are_compared_window_by_window():
    alone = run([2.0, 3.0, 4.0, 5.0], 0.8, 0.2, 0.0)
    balanced = run([1.9, 2.8, 3.9, 4.8], 0.4, 0.3, 0.3)
    assert cells(printed.runs_table({"alone": alone, "balanced": balanced}, 1))[0] == ["alone", "3.500", "80 %", "1"]
    found = printed.runs_lines({"alone": alone, "balanced": balanced})
    assert "+0.150 ± 0.029 nats less with balancing, 4 windows" in found
    assert "after 40 steps, balancing lowers the loss: holds" in found
    assert printed.runs_lines({"balanced": balanced, "alone": alone}).endswith("does not hold")


def test_estimates_are_off_by_their_distance():
    found = printed.estimates_table({"exact": torch.tensor([3.0, 4.0]), "other": torch.tensor([3.0, 3.0])})
    assert [row[-1] for row in cells(found)] == ["0.0 %", "20.0 %"]
    assert cells(found)[1][:3] == ["other", "3.000", "3.000"]


def test_copies_and_gradients_and_moves_are_printed():
    one = torch.ones(4, 2)
    assert cells(printed.copies_table({"half": one / 2}, one)) == [["half", "5.0e-01", "0.50"]]
    assert cells(printed.gradient_table({"dead": torch.zeros(2, 2)})) == [["dead", "0.0e+00"]]
    assert cells(printed.moved_table({"choice": 3}, 10)) == [["choice", "3 of 9"]]
    assert cells(printed.perplexities({"dense": torch.zeros(2)})) == [["dense", "1.0"]]


def test_eight_tokens_wake_seven_of_eight():
    """8 (1 − (3/4)^8) = 7.199."""
    assert cells(printed.awake(8, 2, (1, 8))) == [["1", "2.0"], ["8", "7.2"]]


@pytest.mark.parametrize("table", [published.losses, published.switch, published.exploration])
def test_published_tables_say_so_and_fit_a_page(table):
    assert table().caption.startswith("Published, not measured here")
    assert max(map(len, str(table()).splitlines())) <= 80


def models():
    """Two kinds of model, three seeds of four windows; the second reads 0.1 better, but for the last seed."""
    rows = []
    for seed, gain in enumerate((0.1, 0.1, -0.1)):
        for name, lower in (("top-2", 0.0), ("top-2, balanced", gain)):
            losses = [2.0 - lower + 0.01 * at * (1 if lower else 1.1) for at in range(4)]
            load = [0.7, 0.2, 0.1] if name == "top-2" else [0.4, 0.3, 0.3]
            block = {"block": 0, "load": load, "known": 0.5, "by_chance": 0.01}
            row = {"model": name, "seed": seed, "losses": losses, "loss": sum(losses) / 4, "blocks": [block]}
            rows.append(row | {"parameters": 1000, "flops_a_byte": 500, "steps": 20})
    looks = [
        {"model": row["model"], "step": step, "processor_seconds": 2.0 * step} for row in rows for step in (10, 20)
    ]
    return {"tables": {"models": rows, "held_out": looks}}


def test_a_claim_has_a_case_a_seed():
    judged = claims.BALANCED_TOP_2.judge(models())
    assert judged.words == "mixed (holds in seed 0, seed 1; fails in seed 2)"
    # 0.1 and the mean of 0, 0.001, 0.002 and 0.003
    assert judged.estimates["seed 0"].value == pytest.approx(0.1015, abs=1e-4)
    assert judged.n == "4"


def test_ends_collapse_and_specialisation_are_counted():
    first = cells(measured.ends(models()))[0]
    assert first[1:] == ["1,000", "500", "40", "2.016 ± 0.000", "70 %"]  # seconds of all 20 steps
    assert pairs.collapsed_blocks(models(), "top-2", 1) == "in 1, 1, 1 of 1 blocks (3 seeds)"
    assert claims.COLLAPSE_TOP_2.judge(models()).words == "holds"
    assert claims.COLLAPSE.judge(renamed(models(), "top-2", "top-1")).words == "holds"
    assert claims.COLLAPSE.judge(renamed(models(), "top-2, balanced", "top-1")).words == "does not hold"


def renamed(result, name, other):
    """The result with a kind of model under another name."""
    for row in result["tables"]["models"]:
        row["model"] = other if row["model"] == name else row["model"]
    return result


def test_half_of_the_blocks_are_not_most_of_them():
    """With one seed of three both blocks collapse, with another one of two, with the last none."""
    found = renamed(models(), "top-2", "top-1")
    for row in found["tables"]["models"]:
        even = {"load": [0.4, 0.3, 0.3], "known": 0.5, "by_chance": 0.0}
        collapsed = even | {"load": [0.9, 0.1, 0.0]}
        row["blocks"] = [collapsed if at < 2 - row["seed"] else even for at in range(2)]
    assert claims.COLLAPSE.judge(found).ours == "in 2, 1, 0 of 2 blocks (3 seeds)"
    assert claims.COLLAPSE.judge(found).words == "mixed (holds in seed 0; fails in seed 1, seed 2)"


def test_specialisation_is_a_mean_over_seeds():
    assert cells(measured.specialisation(models(), "top-2"))[0] == ["block 0", "50 %", "1 %"]


def test_copies_are_listed_and_compared_after_training():
    row = {"router": "dense", "perplexity": 30.7, "largest_difference": 0.0}
    assert cells(measured.copies({"tables": {"copies": [row]}})) == [["dense", "30.7", "0.0e+00"]]
    trained = renamed(renamed(models(), "top-2, balanced", "copies, top-2"), "top-2", "dense, trained on")
    assert claims.UPCYCLED.judge(trained).words == "mixed (holds in seed 0, seed 1; fails in seed 2)"
    early = [row | {"losses": [0.0] * 4, "steps": 10} for row in trained["tables"]["models"]]
    trained["tables"]["models"] += early  # only the last step counts
    assert claims.UPCYCLED.judge(trained).words == "mixed (holds in seed 0, seed 1; fails in seed 2)"
