"""How blocks change the residual, and models with blocks side by side or left out, against loops over their parts."""

from copy import deepcopy

import pytest
import torch
from torch.nn.functional import relu

from course_lib.contextual.residual.altered import (
    activation_replaced,
    attention_beside_mlp,
    blocks_in_pairs,
    blocks_skipped,
)
from course_lib.contextual.residual.changes import changes_of
from course_lib.models import blocks, final_norm, head, tiny_model

FAMILIES = ["llama", "opt", "gpt2"]
IDS = torch.arange(7, 47).view(2, 20)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # sums in another order


def deep(n_blocks=5, seed=0):
    """A tiny Llama with more blocks, of which no two are alike, that change the residual visibly."""
    model = tiny_model(seed)
    for i in range(2, n_blocks):
        blocks(model).append(deepcopy(blocks(model)[i % 2]))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in blocks(model):
            for parameter in block.parameters():
                parameter += 0.15 * torch.randn(parameter.shape, generator=generator)
    model.config.num_hidden_layers = n_blocks
    return model


class Llama:
    """Its parts, called by hand."""

    def __init__(self, model, ids):
        self.model, self.x = model, model.get_input_embeddings()(ids)
        self.turns = model.model.rotary_emb(self.x, torch.arange(ids.shape[1])[None])

    def attention(self, block, x):
        return block.self_attn(block.input_layernorm(x), position_embeddings=self.turns, attention_mask=None)[0]

    def mlp(self, block, x):
        return block.mlp(block.post_attention_layernorm(x))

    def block(self, block, x):
        between = x + self.attention(block, x)
        return between + self.mlp(block, between)

    def logits(self, x):
        return head(self.model)(final_norm(self.model)(x))


@torch.no_grad()
def logits_of(model, ids=IDS):
    return model(ids, use_cache=False).logits


def test_the_parts_by_hand_are_the_model():
    model = deep()
    by_hand, x = Llama(model, IDS), None
    with torch.no_grad():
        x = by_hand.x
        for block in blocks(model):
            x = by_hand.block(block, x)
        torch.testing.assert_close(by_hand.logits(x), logits_of(model), **CLOSE)


@torch.no_grad()
def test_attention_beside_the_mlp():
    model = deep()
    by_hand = Llama(model, IDS)
    x = by_hand.x
    for block in blocks(model):
        x = x + by_hand.attention(block, x) + by_hand.mlp(block, x)
    with attention_beside_mlp(model):
        torch.testing.assert_close(logits_of(model), by_hand.logits(x), **CLOSE)
    assert (logits_of(model) - by_hand.logits(x)).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("n_blocks", [4, 5])
def test_two_blocks_beside_each_other(n_blocks):
    """With an odd number, the last has nothing beside it."""
    model = deep(n_blocks)
    by_hand = Llama(model, IDS)
    x = by_hand.x
    for i in range(0, n_blocks, 2):
        x = x + sum(by_hand.block(block, x) - x for block in blocks(model)[i : i + 2])
    with blocks_in_pairs(model):
        torch.testing.assert_close(logits_of(model), by_hand.logits(x), **CLOSE)
    assert (logits_of(model) - by_hand.logits(x)).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize(("every", "left"), [(1, []), (2, [0, 2, 4]), (4, [0, 1, 2, 4]), (5, [0, 1, 2, 3])])
def test_skipped_blocks(every, left):
    model = deep()
    by_hand = Llama(model, IDS)
    x = by_hand.x
    for i in left:
        x = by_hand.block(blocks(model)[i], x)
    with blocks_skipped(model, every):
        torch.testing.assert_close(logits_of(model), by_hand.logits(x), **CLOSE)


@torch.no_grad()
def test_changes_by_hand():
    """Medians over the 40 tokens of both windows: torch takes the lower of the two in the middle."""
    model = deep()
    by_hand, found = Llama(model, IDS), changes_of(model, IDS)
    x = by_hand.x
    for block, change in zip(blocks(model), found, strict=True):
        attention = by_hand.attention(block, x)
        mlp, behind = by_hand.mlp(block, x + attention), by_hand.block(block, x)
        expected = [
            (x * behind).sum(-1) / x.norm(dim=-1) / behind.norm(dim=-1),
            attention.norm(dim=-1) / x.norm(dim=-1),
            mlp.norm(dim=-1) / (x + attention).norm(dim=-1),
        ]
        got = [change.cosine, change.attention, change.mlp]
        assert got == pytest.approx([each.flatten().median().item() for each in expected], rel=1e-4)  # float32
        x = behind


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_that_adds_nothing_turns_nothing(family):
    model = tiny_model(architecture=family)
    for parameter in blocks(model)[1].parameters():
        parameter.zero_()
    change = changes_of(model, IDS)[1]
    assert change.cosine == pytest.approx(1, abs=1e-6)
    assert (change.attention, change.mlp) == (0, 0)
    expected = logits_of(model)
    with blocks_skipped(model, 2):
        torch.testing.assert_close(logits_of(model), expected, **CLOSE)
    with blocks_in_pairs(model):
        torch.testing.assert_close(logits_of(model), expected, **CLOSE)


@torch.no_grad()
def test_another_activation_with_the_same_weights():
    model = deep()
    by_hand = Llama(model, IDS)
    x = by_hand.x
    for block in blocks(model):
        x = x + by_hand.attention(block, x)
        given, mlp = block.post_attention_layernorm(x), block.mlp
        x = x + mlp.down_proj(relu(mlp.gate_proj(given)) * mlp.up_proj(given))
    with activation_replaced(model, "relu"):
        torch.testing.assert_close(logits_of(model), by_hand.logits(x), **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_activation_that_it_has_changes_nothing(family):
    model = tiny_model(architecture=family)
    expected = logits_of(model)
    own = {"llama": "silu", "opt": "relu", "gpt2": "gelu_new"}[family]
    with activation_replaced(model, own):
        torch.testing.assert_close(logits_of(model), expected, **CLOSE)


CONTEXTS = {
    "attention beside": attention_beside_mlp,
    "pairs": blocks_in_pairs,
    "skipped": lambda model: blocks_skipped(model, 2),
    "activation": lambda model: activation_replaced(model, "tanh"),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", CONTEXTS)
def test_the_model_is_as_before_also_after_an_error(name, family):
    model = tiny_model(architecture=family)
    expected = logits_of(model)
    with CONTEXTS[name](model):
        assert not torch.equal(logits_of(model), expected)
    assert torch.equal(logits_of(model), expected)
    with pytest.raises(IndexError), CONTEXTS[name](model):
        logits_of(model, IDS + 1000)
    assert torch.equal(logits_of(model), expected)


@pytest.mark.parametrize("every", [0, 6, True])
def test_what_cannot_be_skipped_is_refused(every):
    with pytest.raises(ValueError, match="expected a whole number from 1 to 5"), blocks_skipped(deep(), every):
        pass


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="got activation 'rleu'; expected one"), activation_replaced(deep(), "rleu"):
        pass


def test_no_windows_are_refused_and_no_hook_stays():
    model = deep()
    with pytest.raises(ValueError, match="got windows of shape"):
        changes_of(model, IDS[:0])
    assert all(not part._forward_hooks for part in model.modules())
