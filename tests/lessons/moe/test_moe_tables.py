"""Tables and verdicts of lesson 06, against numbers worked out by hand."""

import pytest
import torch
from table_cells import rows as cells

from course_lib.lessons.moe import claims, pairs, tables


def test_estimates_are_off_by_their_distance():
    found = tables.router_estimates({"exact": torch.tensor([3.0, 4.0]), "other": torch.tensor([3.0, 3.0])})
    assert [row[-1] for row in cells(found)] == ["0.0 %", "20.0 %"]
    assert cells(found)[1][:3] == ["other", "3.000", "3.000"]


def test_gradients_and_noisy_copies_are_printed():
    assert cells(tables.router_gradients({"dead": torch.tensor(0.0)})) == [["dead", "0.0e+00"]]
    shown = cells(tables.noisy_copies({0.1: torch.tensor(0.5)}, {0.1: torch.tensor(2.0)}))
    assert shown == [["0.10", "5.0e-01", "2.0e+00"]]


def test_published_table_says_so_and_fits_a_page():
    table = tables.published_capacity()
    assert table.caption.startswith("Published, not measured here")
    assert max(map(len, str(table).splitlines())) <= 80


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


def test_the_seeds_are_the_sample_of_a_claim():
    """Gains of 0.1, 0.1 and -0.1 and the mean of 0, 0.001, 0.002 and 0.003; all windows of a seed agree."""
    judged = claims.BALANCED_TOP_2.judge(models())
    assert (judged.verdict, judged.n) == ("undecided", "3")
    assert judged.estimates[""].value == pytest.approx(0.1 / 3 + 0.0015, abs=1e-4)
    assert judged.estimates[""].error == pytest.approx(0.2 / 3, abs=1e-3)


def test_trained_models_and_collapse_are_counted():
    first = cells(tables.trained_models(models()))[0]
    assert first[1:] == ["1,000", "500", "2.016 ± 0.000", "70 %"]
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
    assert claims.COLLAPSE.judge(found).words == "undecided (n = 3; over 10 times as many samples would be needed)"


def test_copies_are_compared_after_training():
    trained = renamed(renamed(models(), "top-2, balanced", "copies, top-2"), "top-2", "dense, trained on")
    assert claims.UPCYCLED.judge(trained).estimates[""].value == pytest.approx(0.1 / 3 + 0.0015, abs=1e-4)
    early = [row | {"losses": [0.0] * 4, "steps": 10} for row in trained["tables"]["models"]]
    trained["tables"]["models"] += early  # only the last step counts
    assert claims.UPCYCLED.judge(trained).estimates[""].value == pytest.approx(0.1 / 3 + 0.0015, abs=1e-4)
