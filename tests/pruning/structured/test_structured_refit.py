"""Least squares after a cut: by hand, against torch's solver, never worse than the cut alone on its own text."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.models import tiny_model
from course_lib.pruning import input_statistics
from course_lib.pruning.structured import refit as refit_module
from course_lib.pruning.structured.choice import choose, everything
from course_lib.pruning.structured.refit import damping_for, least_squares, refit
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take

WINDOWS = torch.randint(0, 97, (4, 24), generator=torch.Generator().manual_seed(3))


def test_by_hand():
    # Two inputs that are always equal: H = [[1, 1], [1, 1]]. W = [2, 3]; the second leaves.
    # W' = (W H_{:S} + λ W_S) / (H_SS + λ) = (5 + λ 2) / (1 + λ): 3.5 for λ = 1, 5 without damping, 2 with a lot of it.
    weight, gram = torch.tensor([[2.0, 3.0]]), torch.ones(2, 2)
    for damping, expected in ((1.0, 3.5), (1e-9, 5.0), (1e9, 2.0)):
        assert least_squares(weight, gram, torch.tensor([0]), damping).item() == pytest.approx(expected, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n_stay=st.integers(1, 6), n_tokens=st.integers(1, 30), power=st.floats(-3, 2))
def test_against_the_solver_with_damping_as_rows(seed, n_stay, n_tokens, power):
    """min ‖X_S W'ᵀ − X Wᵀ‖² + λ‖W' − W_S‖² is an ordinary problem with √λ I below X_S and √λ W_S below the target."""
    generator, damping = torch.Generator().manual_seed(seed), 10**power
    x = torch.randn(n_tokens, 7, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    stays = torch.randperm(7, generator=generator)[:n_stay].sort().values
    ridge = (damping * (x.T @ x).diagonal().median()).sqrt()
    left = torch.cat([x[:, stays], ridge * torch.eye(n_stay, dtype=torch.float64)])
    right = torch.cat([x @ weight.T, ridge * weight[:, stays].T])
    expected = torch.linalg.lstsq(left, right, driver="gelsd").solution.T
    # Conditioning up to about 1e4 with the least damping, in float64.
    torch.testing.assert_close(least_squares(weight, x.T @ x, stays, damping), expected, rtol=1e-6, atol=1e-6)
    assert torch.allclose(least_squares(weight, x.T @ x, torch.arange(7), damping), weight, rtol=1e-6, atol=1e-6)


def on_other_text(n_tokens, damping, seed):
    """Squared error over that of the cut alone, on 400 other tokens: 28 of 40 inputs stay, of 4 directions and noise
    of the same size."""
    generator = torch.Generator().manual_seed(seed)
    directions, weight = torch.randn(4, 40, generator=generator), torch.randn(6, 40, generator=generator)
    stays = torch.randperm(40, generator=generator)[:28].sort().values
    read, other = (
        torch.randn(n, 4, generator=generator) @ directions + torch.randn(n, 40, generator=generator)
        for n in (n_tokens, 400)
    )
    refitted, target = least_squares(weight, read.T @ read, stays, damping), other @ weight.T
    ours, cut_alone = ((other[:, stays] @ w.T - target).square().sum() for w in (refitted, weight[:, stays]))
    return (ours / cut_alone).item()


@pytest.mark.parametrize("n_tokens", [1, 2, 5, 8, 16, 40])
def test_few_tokens_never_make_it_worse_than_the_cut_alone(n_tokens):
    """With the damping that belongs to so many. With hardly any, 16 tokens are learnt by heart."""
    assert max(on_other_text(n_tokens, damping_for(28, n_tokens), seed) for seed in range(20)) < 1
    assert max(on_other_text(16, 1e-3, seed) for seed in range(20)) > 1.2


def test_the_damping_of_few_tokens_by_hand():
    # One token for each input: 1 + 3; half as many: 1 + 3 · 4; ten times as many: 1.03.
    assert [damping_for(8, n) for n in (8, 4, 80)] == [4.0, 13.0, pytest.approx(1.03)]


def test_by_default_the_damping_is_that_of_the_tokens():
    model = tiny_model()
    shape = shape_of(model)
    kept = choose(Random().score(Evidence(model, WINDOWS, False)), shape, replace(shape, neurons=60))
    default, asked = take(model, kept), take(model, kept)
    refit(model, default, kept, WINDOWS[:1], progress=False)
    refit(model, asked, kept, WINDOWS[:1], damping=damping_for(60, 24), progress=False)
    for one, other in zip(default.parameters(), asked.parameters(), strict=True):
        assert torch.equal(one, other)


def errors(model, smaller, kept):
    """Squared error of what each block's MLP writes, fed with what the whole model reads there."""
    total = []
    for index, block in enumerate(model.model.layers):
        seen = []
        handle = block.mlp.register_forward_hook(lambda _, args, out, seen=seen: seen.append((args[0], out)))
        with torch.no_grad():
            model(WINDOWS, use_cache=False)
        handle.remove()
        with torch.no_grad():
            total.append((smaller.model.layers[index].mlp(seen[0][0]) - seen[0][1]).square().sum().item())
    return total


def test_no_block_is_worse_than_cut_alone_on_the_text_it_saw():
    model = tiny_model()
    shape = shape_of(model)
    kept = choose(Random().score(Evidence(model, WINDOWS, False)), shape, replace(shape, neurons=60, heads=4))
    cut, better = take(model, kept), take(model, kept)
    refit(model, better, kept, WINDOWS, progress=False)
    for before, after in zip(errors(model, cut, kept), errors(model, better, kept), strict=True):
        assert after < 0.9 * before
    for (name, old), new in zip(cut.named_parameters(), better.parameters(), strict=True):
        assert torch.equal(old, new) != name.endswith(("down_proj.weight", "o_proj.weight"))


def test_blocks_that_left_are_passed_over_and_numbers_follow():
    model = tiny_model()
    shape = shape_of(model)
    kept = choose(Random().score(Evidence(model, WINDOWS, False)), shape, replace(shape, neurons=60))
    second = replace(kept, blocks=torch.tensor([1]))
    both, one = take(model, kept), take(model, second)
    refit(model, both, kept, WINDOWS, progress=False)
    refit(model, one, second, WINDOWS, progress=False)
    assert torch.equal(one.model.layers[0].mlp.down_proj.weight, both.model.layers[1].mlp.down_proj.weight)


def test_what_is_whole_is_left_alone():
    model = tiny_model()
    kept = everything(shape_of(model))
    same = take(model, kept)
    refit(model, same, kept, WINDOWS, progress=False)
    for old, new in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(old, new)


def test_refused():
    model = tiny_model()
    kept = choose(Random().score(Evidence(model, WINDOWS, False)), shape_of(model), replace(shape_of(model), width=36))
    with pytest.raises(ValueError, match="with all of the width"):
        refit(model, take(model, kept), kept, WINDOWS)
    for damping in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="expected a positive number"):
            least_squares(torch.ones(1, 2), torch.eye(2), torch.tensor([0]), damping)


@pytest.mark.parametrize(
    ("lost", "parts"), [({"neurons": 60}, {"mlp.down_proj"}), ({"heads": 4}, {"self_attn.o_proj"})]
)
def test_only_the_inputs_that_are_needed_are_looked_at(lost, parts, monkeypatch):
    """The same weights to the last bit as with the inputs of all layers, from fewer products."""
    model, asked = tiny_model(), []
    shape = shape_of(model)
    kept = choose(Random().score(Evidence(model, WINDOWS, False)), shape, replace(shape, **lost))
    few, all_of_them = take(model, kept), take(model, kept)
    refit(model, few, kept, WINDOWS, progress=False)

    def of_everything(whole, windows, needs, wanted):
        for layers, grams in input_statistics.grams_by_block(whole, windows, needs):
            asked.append((set(wanted), len(grams)))
            yield [layer for layer in layers if layer.part in wanted], grams

    monkeypatch.setattr(refit_module, "grams_by_block", of_everything)
    refit(model, all_of_them, kept, WINDOWS, progress=False)
    assert asked == [(parts, 7)] * 2
    for one, other in zip(few.parameters(), all_of_them.parameters(), strict=True):
        assert torch.equal(one, other)
