"""Fisher scores by hand, against autograd one window at a time, and against the Hessian where theory says they meet."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from course_lib.models import blocks, linears, tiny_model, weight_of
from course_lib.pruning.methods.fisher import (
    Gradients,
    collect_gradients,
    element_score,
    prune_by_gradients,
    row_score,
)
from course_lib.sparsity.patterns import NofM, Unstructured

WINDOWS = torch.randint(97, (3, 12), generator=torch.Generator().manual_seed(2))


def test_elements_by_hand():
    """Two windows with gradients (1, 4) and (3, −4): mean (2, 0), mean square (5, 16)."""
    seen = torch.tensor([[1.0, 4.0], [3.0, -4.0]])
    gradients = Gradients(seen.mean(0)[None], seen.square().mean(0)[None])
    weight = torch.tensor([[2.0, -0.5]])
    assert element_score(weight, gradients, "param_first").tolist() == [[4, 0]]
    assert element_score(weight, gradients, "param_second").tolist() == [[20, 4]]
    assert element_score(weight, gradients, "param_mix").tolist() == [[6, 2]]  # |4 − 10|, |0 − 2|
    assert row_score(weight, gradients).tolist() == [4]
    assert row_score(weight, gradients, "param_mix").tolist() == [8]


def test_weights_of_a_row_cancel_in_vectorize_alone():
    gradients = Gradients(torch.tensor([[1.0, 1.0], [1.0, 1.0]]), torch.ones(2, 2))
    weight = torch.tensor([[3.0, -3.0], [1.0, 1.0]])
    assert row_score(weight, gradients, "vectorize").tolist() == [0, 2]
    assert row_score(weight, gradients, "param_first").tolist() == [6, 2]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "opt"])
def test_equals_autograd_one_window_at_a_time(architecture):
    model = tiny_model(3, architecture)
    found = collect_gradients(model, WINDOWS, progress=False)
    assert len(found) == sum(len(linears(block)) for block in blocks(model))
    for index, name in ((0, 0), (1, -1)):
        layer, module = list(linears(blocks(model)[index]).items())[name]
        transposed = architecture == "gpt2"
        each = []
        for ids in WINDOWS:
            loss = cross_entropy(model(ids[None]).logits[0, :-1], ids[1:])
            (gradient,) = torch.autograd.grad(loss, module.weight)
            each.append(gradient.T if transposed else gradient)
        each = torch.stack(each)
        torch.testing.assert_close(found[f"blocks.{index}.{layer}"].mean, each.mean(0), rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(found[f"blocks.{index}.{layer}"].fisher, each.square().mean(0), rtol=1e-4, atol=1e-9)


def test_squared_gradients_become_the_hessian_where_the_model_is_right(generator):
    """Logistic regression on labels that it drew itself: the mean of g² and the diagonal of the Hessian agree."""
    inputs = torch.randn(200_000, 3, generator=generator, dtype=torch.float64)
    weight = torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64)
    chance = torch.sigmoid(inputs @ weight)
    label = (torch.rand(len(inputs), generator=generator, dtype=torch.float64) < chance).double()
    hessian = ((chance * (1 - chance))[:, None] * inputs.square()).mean(0)
    fisher = ((chance - label)[:, None] * inputs).square().mean(0)
    torch.testing.assert_close(fisher, hessian, rtol=0.02, atol=0.0)
    wrong = ((chance - (1 - label))[:, None] * inputs).square().mean(0)
    assert (wrong > 1.5 * hessian).all()  # the equality is about a model that fits


def test_the_model_is_left_as_it_was():
    model = tiny_model()
    parameters = list(model.parameters())
    parameters[0].requires_grad_(False)
    parameters[1].grad = kept = torch.ones_like(parameters[1])
    before = [p.requires_grad for p in parameters]
    collect_gradients(model, WINDOWS, progress=False)
    assert [p.requires_grad for p in parameters] == before
    assert parameters[1].grad is kept
    assert all(p.grad is None for p in parameters if p is not parameters[1])

    def fails(*_):
        raise RuntimeError("no memory")

    model.lm_head.register_forward_pre_hook(fails)
    with pytest.raises(RuntimeError, match="no memory"):
        collect_gradients(model, WINDOWS, progress=False)
    assert [p.requires_grad for p in parameters] == before
    assert not any(p._post_accumulate_grad_hooks for p in parameters)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("element", ["param_first", "param_second", "param_mix"])
def test_a_whole_model_loses_exactly_the_lowest_scores(architecture, element):
    model, dense = (tiny_model(architecture=architecture) for _ in range(2))
    sparsity = prune_by_gradients(model, NofM(2, 4), WINDOWS, element, progress=False)
    assert set(sparsity.values()) == {0.5}
    gradients = collect_gradients(dense, WINDOWS, progress=False)
    for index, block in enumerate(blocks(dense)):
        for name, module in linears(block).items():
            weight, pruned = weight_of(module), weight_of(linears(blocks(model)[index])[name])
            keep = NofM(2, 4).keep(element_score(weight, gradients[f"blocks.{index}.{name}"], element))
            assert torch.equal(pruned, weight * keep)


def test_it_costs_the_loss_less_than_dropping_the_highest_scores():
    """The sign of the score: what it calls unimportant should be that, for the loss that it was measured with."""
    losses = []
    for sign in (1, -1):
        model = tiny_model(1)
        for index, (name, gradients) in enumerate(collect_gradients(model, WINDOWS, progress=False).items()):
            module = dict(linears(blocks(model)[index // 7]))[name.split(".", 2)[2]]
            score = sign * element_score(weight_of(module), gradients, "param_second")
            weight_of(module).masked_fill_(~Unstructured(0.3).keep(score), 0)
        with torch.no_grad():
            dense, pruned = (m(WINDOWS).logits for m in (tiny_model(1), model))
        losses.append((dense - pruned).square().mean().item())
    assert losses[0] < losses[1] / 2


def test_what_is_refused():
    model = tiny_model()
    with pytest.raises(ValueError, match="got element 'taylor'; expected one of param_first"):
        prune_by_gradients(model, NofM(2, 4), WINDOWS, "taylor", progress=False)
    for shape in ((0, 8), (2, 1)):
        with pytest.raises(ValueError, match=rf"shape \({shape[0]}, {shape[1]}\); expected at least one window"):
            collect_gradients(model, torch.zeros(shape, dtype=torch.long), progress=False)
    for p, q in zip(model.parameters(), tiny_model().parameters(), strict=True):
        assert torch.equal(p, q)
