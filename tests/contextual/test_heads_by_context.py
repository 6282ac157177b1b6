"""Heads kept by the length of their part of the output: against slow twins."""

import pytest
import torch

from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.heads import contextual_heads, part_norms, static_heads
from course_lib.contextual.attention.parts import SeenHeads, gram_of_heads, look_through_heads, part_norms_of
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.models import architecture, blocks, tiny_model, weight_of


def text(n=2, length=11, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def output_of(model, index):
    block = blocks(model)[index]
    return block.get_submodule(architecture(block).attention[-1])


def test_the_norm_is_taken_behind_the_output_projection():
    """Two heads of two numbers: the longer output has the shorter part, since its columns are short.

    a = (3, 4) with columns 0.1 · I: 0.5; a = (1, 0) with columns (2, 2) and (0, 0): √8.
    """
    output = torch.tensor([[0.1, 0.0, 2.0, 0.0], [0.0, 0.1, 2.0, 0.0]])
    seen = SeenHeads(
        x=torch.zeros(1, 2),
        earlier={},
        outputs=torch.tensor([[[3.0, 4.0], [1.0, 0.0]]]),
        gram=gram_of_heads(output, 2),
    )
    torch.testing.assert_close(part_norms(seen, 0), torch.tensor([[0.5, 8**0.5]]))


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
def test_norms_are_those_of_each_heads_part(family):
    """The slow twin multiplies the columns of each head by its output. Heads lie one after the other."""
    model, ids, found = tiny_model(0, family), text(), []
    look_through_heads(model, ids[:1], lambda block, seen: found.append((block, seen.outputs, seen.part_norms)))
    for block, outputs, norms in found:
        weight = weight_of(output_of(model, block))
        assert outputs.shape == (11, 6, 8)
        for head in range(6):
            part = outputs[:, head] @ weight[:, 8 * head : 8 * (head + 1)].T
            # the root of a difference of float32 sums: small parts lose half of the digits
            torch.testing.assert_close(norms[:, head], part.norm(dim=1), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(part_norms_of(model, ids[0]), torch.stack([norms for _, _, norms in found]))


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
@pytest.mark.parametrize("keep", [1, 4, 6])
def test_exactly_so_many_heads_stay_and_the_rest_of_the_output_is_gone(family, keep):
    model, ids, read = tiny_model(0, family), text(), []
    with torch.no_grad():
        dense = model(ids).logits
        with contextual_heads(model, part_norms, keep=keep) as watch:
            handle = output_of(model, 0).register_forward_pre_hook(lambda _, args: read.append(args[0]))
            sparse = model(ids).logits
            handle.remove()
    stays = read[0].reshape(22, 6, 8).ne(0).any(2)
    assert (stays.sum(1) == keep).all()
    torch.testing.assert_close(watch.share.sum(1), torch.full((2,), float(keep)))
    torch.testing.assert_close(watch.share[0], stays.float().mean(0))
    assert torch.equal(sparse, dense) == (keep == 6)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_group_is_spared_only_where_none_of_its_heads_stays():
    """Six heads in two groups of three: of heads 0, 1 and 2 nothing is read in the second group."""

    def first_three(seen, block):
        return -torch.arange(6.0).repeat(len(seen.x), 1)

    def every_third(seen, block):
        return torch.tensor([1.0, 0, 0, 1, 0, 0]).repeat(len(seen.x), 1)

    model = tiny_model()
    for score, keep, expected in ((first_three, 3, [1.0, 0.0]), (every_third, 2, [1.0, 1.0])):
        with torch.no_grad(), contextual_heads(model, score, keep=keep) as watch:
            model(text())
        assert watch.group_share.tolist() == [expected, expected]
        assert watch.n_tokens == 22


def test_static_heads_are_the_longest_on_average():
    model, calibration = tiny_model(), text(3)
    score = static_heads(model, calibration)
    norms = torch.cat([part_norms_of(model, ids) for ids in calibration], dim=1).mean(1)  # (L, H)
    with torch.no_grad(), contextual_heads(model, score, keep=2) as watch:
        model(text(seed=1))
    best = norms.topk(2, dim=1).indices
    assert torch.equal(watch.share, torch.zeros(2, 6).scatter_(1, best, 1.0))


def test_a_score_may_read_inputs_of_blocks_below():
    model, found = tiny_model(), []

    def score(seen, block):
        found.append((block, sorted(seen.earlier)))
        return seen.part_norms

    with torch.no_grad(), contextual_heads(model, score, keep=3, lookahead=1):
        model(text())
        model(text(1))
    assert found == 2 * [(0, []), (1, [0])]


def test_heads_and_neurons_are_chosen_together_and_generate():
    model, ids = tiny_model(), text(1)
    settings = {"max_new_tokens": 4, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    with (
        torch.no_grad(),
        contextual_heads(model, part_norms, keep=3) as heads,
        contextual(model, Oracle(density=0.3)) as neurons,
    ):
        found, expected = model.generate(ids, **settings), ids
        for _ in range(found.shape[1] - ids.shape[1]):
            following = model(expected, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            expected = torch.cat([expected, following], dim=1)
    assert torch.equal(found, expected)
    assert neurons.density == (0.3, 0.3)
    assert heads.n_tokens == neurons.n_tokens


def test_hooks_of_heads_leave_after_an_error():
    model = tiny_model()
    with pytest.raises(RuntimeError, match="by the way"), contextual_heads(model, part_norms, keep=3):
        raise RuntimeError("by the way")
    assert not any(module._forward_pre_hooks for module in model.modules())
    with contextual_heads(model, part_norms, keep=3):
        pass
