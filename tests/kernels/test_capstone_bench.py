"""The bench of recipes: what its sides compute is what the recipes say, and its bytes are those of their accounts."""

import pytest
import torch
from course_lib.kernels.bench import capstone
from course_lib.kernels.timing.contest import Place
from course_lib.kernels.timing.rows import relative_errors

from course_lib.compose.counting.account import account
from course_lib.kernels import runtime
from course_lib.models import layers_of, tiny_model, weight_of

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="a bench refuses the interpreter")
IDS = torch.arange(3, 67)[None] % 97


@pytest.fixture
def made():
    return capstone.recipes(tiny_model(), IDS.reshape(2, -1))


def test_every_side_computes_what_it_says():
    place = Place(torch.device("cpu"), torch.float32, True, torch.Generator().manual_seed(0))
    contests = []
    for contest in capstone.contests(place):
        assert max(relative_errors(contest).values()) < 1e-4
        contests.append(contest)
    steps, *written = contests
    assert [side.name for side in steps.sides] == [*capstone.RECIPES, capstone.UNPACKED]
    by_name = {side.name: side.work.bytes for side in steps.sides}
    assert by_name[capstone.SMALLEST] == min(by_name.values())
    assert by_name[capstone.UNPACKED] == by_name[capstone.PRUNED] < by_name[capstone.DENSE]
    assert [len(contest.sides) for contest in written] == [3, 3]
    for contest in written:
        none, lookup, _ = contest.sides
        assert lookup.work.bytes <= none.work.bytes


def test_bytes_are_those_of_the_account(made):
    """Before a side runs inside its parts, so that the account finds the model as it is."""
    with torch.no_grad(), capstone.ExitStack() as stack:
        side = capstone.side(stack, "H2O", made["H2O 20 %, 4 bits"], IDS)
    found = account(made["H2O 20 %, 4 bits"], IDS[0])
    assert side.work.bytes == found.read
    assert side.work.flops == 2 * found.multiply_adds


def test_a_run_is_the_one_step_whose_bytes_are_counted(made):
    """A cache that forgets nothing says how many tokens a run has read."""
    with torch.no_grad(), made[capstone.OWN_CACHE].running() as cache:
        token = IDS[:, :1]
        made[capstone.OWN_CACHE].model(IDS, past_key_values=cache, use_cache=True)
        capstone.decoded(made[capstone.OWN_CACHE].model, token, cache)
        assert cache.get_seq_length() == IDS.shape[1] + 1


def test_weights_come_from_their_bytes_and_stay_themselves(made):
    """What is in memory is spoiled first: only what is unpacked can give the right logits."""
    pruned = made[capstone.PRUNED]
    expected = pruned.model(IDS).logits
    before = {layer.name: weight_of(layer.module).clone() for layer in layers_of(pruned.model)}
    for layer in layers_of(pruned.model):
        layer.module.weight.data = torch.zeros_like(layer.module.weight)
    with capstone.unpacking(pruned):
        torch.testing.assert_close(pruned.model(IDS).logits, expected, rtol=0, atol=1e-5)
    for layer in layers_of(pruned.model):
        assert torch.equal(weight_of(layer.module), before[layer.name])
        assert not layer.module._forward_pre_hooks


def test_what_recipes_run_inside_does_not_reach_their_twins(made):
    expected = made[capstone.DENSE].model(IDS).logits
    with made["CATS 50 %"].running(), made["StreamingLLM 20 %"].running():
        assert torch.equal(made[capstone.DENSE].model(IDS).logits, expected)
        assert not torch.equal(made["CATS 50 %"].model(IDS).logits, expected)


def test_the_summary_names_the_fewest_bytes_and_the_fastest():
    row = {"contest": "1 step of 1", "anchor": "dense", "repetitions": 5}
    rows = [
        row | {"side": "dense", "bytes": 100, "median_seconds": 0.1, "times_anchor": 1.0},
        row | {"side": "small", "bytes": 25, "median_seconds": 0.2, "times_anchor": 0.5},
        row | {"side": "quick", "bytes": 80, "median_seconds": 0.05, "times_anchor": 2.0},
        row | {"contest": "8 tokens", "side": "lookup", "anchor": "no draft", "times_anchor": 1.5},
    ]
    said = capstone.summary(rows)
    assert "Dense: dense, 10.0 tokens per second" in said
    assert "Fewest bytes: small, 5.0 tokens per second, 0.50 times dense; 4.00 times fewer bytes" in said
    assert "Fastest: quick, 20.0 tokens per second" in said
    assert "8 tokens: lookup 1.50 times as fast as no draft." in said
    assert said.count("as fast as no draft") == 1  # a step has no draft
    assert capstone.summary([row | {"repetitions": 0}]) == "No recipe was timed."
