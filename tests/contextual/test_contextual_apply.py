"""`contextual`: what a pass computes with the neurons that are kept, and what is told about it."""

import dataclasses
import math

import pytest
import torch
from seen_by_hand import random_neurons, seen_of

from course_lib.contextual.apply import choices, contextual
from course_lib.contextual.seen import looking
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.selectors.recorded import Recorded
from course_lib.contextual.selectors.static import Static
from course_lib.models import architecture, blocks, tiny_model, weight_of


def text(n=2, length=11, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def outputs_of_last_mlp(model, ids):
    """What the last block's MLP gives, and the neurons that it read."""
    block, found = blocks(model)[-1], []
    down = block.get_submodule(architecture(block).mlp[-1])
    handle = down.register_forward_hook(lambda _, args, out: found.append((args[0].flatten(0, -2), out.flatten(0, -2))))
    with torch.no_grad():
        model(ids, use_cache=False)
    handle.remove()
    return found[0], weight_of(down)


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
def test_the_output_changes_by_exactly_what_left(family):
    """y − y' = Σ h_i w_i over the neurons that left, in a block below which nothing changed."""
    model, ids = tiny_model(0, family), text()

    @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
    class LastBlock(Oracle):
        def keep(self, seen, block):
            return super().keep(seen, block) | (block == 0)

    (hidden, dense), weight = outputs_of_last_mlp(model, ids)
    selector = LastBlock(density=0.2)
    with contextual(model, selector) as watch:
        (read, sparse), _ = outputs_of_last_mlp(model, ids)
    left = read != hidden
    assert not read[left].any()
    assert (left.sum(1) >= 80 - (hidden == 0).sum(1)).all()
    torch.testing.assert_close(dense - sparse, (hidden * left) @ weight.T, atol=1e-6, rtol=0)  # sums of 100 in float32
    assert watch.density == (1.0, 0.2)


def test_a_token_at_a_time_is_the_whole_text():
    """With the cache of keys and values, as generate() goes: the choice reads the token alone."""
    model, ids = tiny_model(), text(1)
    with torch.no_grad(), contextual(model, Oracle(density=0.3)) as watch:
        whole = model(ids).logits
        cache, steps = None, []
        for token in ids[0]:
            out = model(token[None, None], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            steps.append(out.logits[:, 0])
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=0)
    assert watch.n_tokens == 22


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_generation_is_greedy_decoding_of_the_sparse_model(family):
    model, ids = tiny_model(0, family), text(1)
    settings = {"max_new_tokens": 5, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad(), contextual(model, Oracle(density=0.1)) as watch:
        found = model.generate(ids, **settings)
        expected = ids
        for _ in range(found.shape[1] - ids.shape[1]):
            following = model(expected, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            expected = torch.cat([expected, following], dim=1)
    assert torch.equal(found, expected)
    assert watch.density == (0.1, 0.1)


def test_padding_is_not_counted():
    """Left padding of three tokens in one of two sequences: 22 − 3 tokens, in generation too."""
    model, ids = tiny_model(), text()
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    with torch.no_grad(), contextual(model, Oracle(density=0.5)) as watch:
        model(ids, attention_mask=mask)
        assert watch.n_tokens == 19
        found = model.generate(ids, attention_mask=mask, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert found.shape == (2, 14)
    assert watch.n_tokens == 19 + 19 + 2 * 2  # the last token that is made is never read
    assert watch.density == (0.5, 0.5)


def test_sequences_of_a_batch_do_not_meet():
    model, ids = tiny_model(), text()
    with torch.no_grad(), contextual(model, Oracle(density=0.3)):
        together, alone = model(ids).logits, torch.cat([model(each[None]).logits for each in ids])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_recorded_and_on_the_fly_differ_from_the_second_block_on():
    """The first block's neurons are those of the dense pass either way; after it, an oracle sees what was lost."""
    model, ids = tiny_model(), text(4, 40)
    with torch.no_grad():
        for block in blocks(model):
            for name in architecture(block).mlp:
                block.get_submodule(name).weight.mul_(8)  # or losing neurons would move no other's value
    kept = {}
    for name, selector in (("fly", Oracle()), ("recorded", Recorded().fit(model, ids))):
        masks = kept[name] = []

        def note(block, seen, selector=selector, masks=masks):
            masks.append(selector.keep(seen, block))
            return seen.hidden * masks[-1]

        with torch.no_grad(), looking(model, note):
            model(ids, use_cache=False)
    assert torch.equal(kept["fly"][0], kept["recorded"][0])
    assert not torch.equal(kept["fly"][1], kept["recorded"][1])


def test_choices_are_made_in_the_dense_model():
    model, ids = tiny_model(), text(1)[0]
    recorded = Recorded().fit(model, ids[None])
    assert torch.equal(choices(model, Oracle(), ids, 0.3), choices(model, recorded, ids, 0.3))


def test_a_density_here_takes_the_place_of_the_selectors_own():
    model, selector = tiny_model(), Static(density=0.5).fit(tiny_model(), text())
    for asked, expected in ((None, 0.5), (0.25, 0.25)):
        with torch.no_grad(), contextual(model, selector, density=asked) as watch:
            model(text())
        assert watch.density == (expected, expected)
        assert watch.mean_density == expected
    assert selector.density == 0.5


def test_before_the_first_token_no_density_is_known():
    with contextual(tiny_model(), Oracle()) as watch:
        assert all(math.isnan(density) for density in watch.density)


def test_gradients_reach_the_neurons_that_stay():
    model, ids = tiny_model(), text(1)
    down = blocks(model)[-1].mlp.down_proj.weight
    with contextual(model, Static(density=0.2).fit(model, ids)):
        model(ids).logits.sum().backward()
    assert (down.grad != 0).any(0).sum() == 20


def test_earlier_inputs_are_held_as_far_as_asked_and_of_this_pass_alone():
    model = tiny_model()
    for lookahead, expected in ((0, [[], []]), (1, [[], [0]]), (5, [[], [0]])):
        found, inputs = [], []

        def note(block, seen, found=found, inputs=inputs):
            found.append(sorted(seen.earlier))
            assert all(torch.equal(x, inputs[-1]) for x in seen.earlier.values())
            inputs.append(seen.x)

        with torch.no_grad(), looking(model, note, lookahead):
            model(text(1))
            model(text(1, seed=1))
        assert found == 2 * expected


def test_values_may_be_of_another_type_than_the_model():
    """A model in half precision gets its own type back."""
    model = tiny_model().to(torch.bfloat16)
    with torch.no_grad(), contextual(model, Oracle(density=0.3)) as watch:
        assert model(text()).logits.dtype == torch.bfloat16
    assert watch.density == (0.3, 0.3)


def test_neurons_know_their_bytes():
    neurons = random_neurons(width=5, n=7)
    assert neurons.n_bytes == 3 * 35 * 4
    assert (neurons.n, neurons.width) == (7, 5)
    assert Oracle(density=1.0).keep(seen_of(neurons, torch.randn(2, 5)), 0).all()
