"""What the notebook of lesson 05 runs on a model: statistics, silencing and cuts, against slower ways."""

from dataclasses import replace

import pytest
import torch

from course_lib.lessons.minitron.exercises.norm import NORM
from course_lib.lessons.minitron.running import live
from course_lib.models import blocks, tiny_model, weight_of
from course_lib.pruning.structured.choice import choose, everything
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.llm_pruner import LLMPruner
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take


@pytest.fixture
def ids(generator):
    return torch.randint(3, 90, (2, 12), generator=generator)


def test_the_students_aggregate_sees_what_minitron_scores(ids):
    model = tiny_model()
    evidence = Evidence(model, ids, progress=False)
    found, _ = live.one_pass(lambda x: x.abs().mean(1).norm(dim=0), evidence)
    torch.testing.assert_close(found, Minitron().score(evidence).neurons)
    torch.testing.assert_close(found, Minitron().score(Evidence(model, ids, progress=False)).neurons)
    assert not any(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


def test_one_pass_is_one_pass_and_feeds_all_scores(ids):
    model, n_read = tiny_model(), []
    model.base_model.register_forward_hook(lambda *_: n_read.append(1))
    evidence = Evidence(model, ids, progress=False)
    live.one_pass(lambda x: x.abs_().mean((0, 1)), evidence)  # in place, as a student may write it
    found = Minitron().score(evidence)
    assert len(n_read) == len(ids), "every window is read once, for all scores"
    torch.testing.assert_close(found.width, Minitron().score(Evidence(model, ids, progress=False)).width)
    with pytest.raises(ValueError, match="expected a new Evidence"):
        live.one_pass(lambda x: x.mean((0, 1)), evidence)


def test_the_stream_is_what_blocks_read_and_give(ids):
    model = tiny_model()
    _, states = live.one_pass(lambda x: x.mean((0, 1)), Evidence(model, ids, progress=False))
    assert states.shape == (len(blocks(model)) + 1, ids.numel(), model.config.hidden_size)
    turned = (1 - torch.cosine_similarity(states[:-1], states[1:], dim=-1)).mean(1)
    torch.testing.assert_close(turned, BlockInfluence().score(Evidence(model, ids, progress=False)).blocks)
    embedded = model.get_input_embeddings()(ids).flatten(0, 1)
    torch.testing.assert_close(states[0], embedded.detach())


def test_gradients_of_down_are_those_of_the_whole_backward_pass(ids):
    model = tiny_model().requires_grad_(True)
    pairs = live.down_gradients(model, ids)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    model(ids, labels=ids).loss.backward()
    for block, (weight, gradient) in zip(blocks(model), pairs, strict=True):
        torch.testing.assert_close(weight, block.mlp.down_proj.weight.detach())
        torch.testing.assert_close(gradient, block.mlp.down_proj.weight.grad)
    scored = torch.stack([(weight * gradient).abs().sum(0) for weight, gradient in pairs])
    assert scored.shape == LLMPruner().score(Evidence(model, ids, progress=False)).neurons.shape


def test_silenced_neurons_say_nothing_and_come_back(ids):
    model = tiny_model()
    down = blocks(model)[0].mlp.down_proj.weight
    before, logits = down.detach().clone(), model(ids).logits
    with live.silenced(model, 0, torch.tensor([1, 4])):
        assert not down[:, [1, 4]].any()
        assert down[:, 0].any()
        assert not torch.equal(model(ids).logits, logits)
    assert torch.equal(down, before)


def test_silenced_neurons_come_back_after_an_error():
    model = tiny_model()
    before = blocks(model)[0].mlp.down_proj.weight.detach().clone()

    def fails():
        with live.silenced(model, 0, torch.tensor([1, 4])):
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert torch.equal(blocks(model)[0].mlp.down_proj.weight, before)


def test_cut_matrices_of_an_mlp_say_what_the_module_says(generator):
    model = tiny_model()
    whole = live.matrices(blocks(model)[1])
    assert list(whole) == ["q", "k", "v", "o", "gate", "up", "down"]
    x = torch.randn(3, model.config.hidden_size, generator=generator)
    said = live.mlp(x, whole["gate"], whole["up"], whole["down"])
    torch.testing.assert_close(said, blocks(model)[1].mlp(x).detach())


def test_norms_by_the_exercise_are_those_of_the_library(ids):
    model = tiny_model()
    now = shape_of(model)
    scores = Minitron().score(Evidence(model, ids, progress=False))
    kept = choose(scores, now, replace(now, width=now.width - now.heads))
    mine, library = live.with_norms(model, kept, NORM.library), take(model, kept)
    torch.testing.assert_close(mine(ids).logits, library(ids).logits)
    plain = live.with_norms(model, kept, None)
    assert torch.equal(plain(ids).logits, take(model, kept, rescale=False)(ids).logits)
    assert not torch.allclose(plain(ids).logits, library(ids).logits)


def test_heads_that_a_student_keeps_are_the_ones_of_the_model(ids):
    model = tiny_model()
    now = shape_of(model)
    each = now.heads // now.groups
    heads = torch.arange(0, now.heads, each).repeat(now.blocks, 1)  # the first of every group
    smaller = live.with_heads(model, heads)
    assert shape_of(smaller) == replace(now, heads=now.groups)
    expected = replace(everything(now), heads=heads)
    assert torch.equal(smaller(ids).logits, take(model, expected)(ids).logits)
    size = model.config.head_dim
    first = weight_of(blocks(smaller)[0].self_attn.q_proj)[:size]
    assert torch.equal(first, weight_of(blocks(model)[0].self_attn.q_proj)[:size])


def test_losses_leave_the_mode_of_the_model_as_it_was(ids):
    model = tiny_model().train()
    losses = live.losses_of(model, ids)
    assert losses.shape == (2,)
    assert model.training
