"""The experiments of the capstone, every step of them, on a tiny model."""

import pytest
import torch

from course_lib.compose.recipe import Calibration, from_json
from course_lib.compose.shares import as_values, shapley
from course_lib.lessons.capstone.experiments import capstone, capstone_drafts, capstone_front, ground
from course_lib.lessons.capstone.experiments.capstone import name_of, orders
from course_lib.lessons.capstone.experiments.ground import DOMAINS, Sizes
from course_lib.lessons.capstone.experiments.recipes import FIVE, by_weights, five, grid, text_of
from course_lib.lessons.common import subject
from course_lib.models import tiny_model

TINY = Sizes(
    windows=2, length=64, calibration=(2, 40), held=48, vectors=3, prompt_steps=2, prompt_batch=2, prompt_length=12
)


def ids(corpus, n, length, tokenizer, split, seed):
    return torch.randint(97, (n, length), generator=torch.Generator().manual_seed(len(corpus) + len(split) + seed))


@pytest.fixture
def tiny(monkeypatch, tmp_path, tiny_tokenizer):
    ground.forget()
    monkeypatch.setattr(subject, "load_model", lambda name: (tiny_model(), tiny_tokenizer))
    monkeypatch.setattr(ground, "windows", ids)
    monkeypatch.setattr(ground, "QUICK_RESULTS", tmp_path)
    monkeypatch.setattr(
        Calibration, "text", lambda self, _: ids("wikipedia", self.windows, self.length, None, "calibration", self.seed)
    )
    yield
    ground.forget()


def test_all_subsets_are_measured_and_their_shares_sum_up(tiny):
    plan = [step for step in capstone.steps(TINY) if not step.name.startswith("order")]
    rows = [row for step in plan for row in step.run(0)["subsets"]]
    assert [step.name for step in plan[:3]] == ["nothing", "cache", "neurons"]
    assert len(rows) == len({tuple(row["parts"]) for row in rows}) == 32
    dense, full = rows[0], rows[-1]
    assert full["parts"] == sorted(FIVE)
    assert full["stored"] + full["cache"] < dense["stored"] + dense["cache"]
    assert full["read"] < dense["read"]
    values = as_values({frozenset(row["parts"]): row["wikipedia"] for row in rows})
    shares = shapley(values, FIVE)
    total = torch.tensor(full["wikipedia"], dtype=torch.float64) - torch.tensor(dense["wikipedia"], dtype=torch.float64)
    torch.testing.assert_close(sum(shares.values()), total, rtol=0, atol=1e-9)


def test_weights_are_made_once_for_their_subsets(tiny, monkeypatch):
    built = []
    build = ground.build
    monkeypatch.setattr(ground, "build", lambda recipe, *rest: built.append(recipe.as_json()) or build(recipe, *rest))
    for chosen in by_weights():
        if "prompt" not in chosen and "neurons" not in chosen:
            ground.made(five(chosen), TINY, 0)
    assert len(built) == 4


@pytest.mark.parametrize("name", orders())
def test_orders(tiny, name):
    (row,) = capstone.order(TINY, name, 0)["orders"]
    assert row["sparsity"] >= 0.49
    assert all(len(row[domain]) == 2 for domain in DOMAINS)


def test_the_one_sweep_by_hand_is_the_recipe(tiny):
    """But for scales in half precision."""
    (by_hand,) = capstone.order(TINY, "both in one sweep", 0)["orders"]
    (recipe,) = capstone.subset(TINY, frozenset({"prune", "round"}), 0)["subsets"]
    for domain in DOMAINS:
        assert recipe[domain] == pytest.approx(by_hand[domain], abs=1e-3)


def test_the_grid(tiny):
    plan = capstone_front.steps(TINY)
    assert len(plan) == len({step.name for step in plan}) == 64
    wanted = ("dense", "SparseGPT 2:4", "2 bits, 64 + H2O 20 %", "CATS 30 %", "sparse prefill")
    rows = {step.name: step.run(0)["grid"][0] for step in plan if step.name in wanted}
    assert set(rows) == set(wanted)
    assert rows["2 bits, 64 + H2O 20 %"]["stored"] < rows["SparseGPT 2:4"]["stored"] < rows["dense"]["stored"]
    assert rows["CATS 30 %"]["read"] < rows["dense"]["read"] == rows["sparse prefill"]["read"]


def test_every_recipe_of_the_plan_is_one():
    for _, parts in grid():
        assert from_json(from_json(text_of(parts)).as_json()) == from_json(text_of(parts))
    assert [name_of(chosen) for chosen in by_weights()].count("nothing") == 1


def test_drafts_write_what_the_dense_model_writes(tiny, monkeypatch):
    """Greedily, in fewer passes than tokens or as many, whatever drafts; a lookup reads no weights of its own."""
    monkeypatch.setattr(capstone_drafts, "windows", ids)
    sizes = capstone_drafts.Sizes(texts=2, begin=10, n_new=8, k=3, of_recipes=TINY)
    plan = capstone_drafts.steps(sizes)
    assert len(plan) == 2 * (1 + len(capstone_drafts.DRAFTS))
    rows = [row for step in plan for row in step.run(0)["drafts"]]
    for row in rows:
        assert row["new"] == [8, 8]
        assert all(2 <= passes <= 8 for passes in row["passes"])
        assert row["stayed"] == sum(row["new"]) - sum(row["passes"])
        assert row["read"] == 0 if row["draft"] == "lookup" else 0 < row["read"] < 1
    first, copied = (list(capstone_drafts.texts(sizes, kind, 0)) for kind in ("running text", "copying"))
    assert len(first[0]) == 10
    assert torch.equal(copied[0], torch.cat([ids("wikipedia", 1, 18, None, "evaluation", 0)[0], first[0]]))
