"""A prompt before every text: against embeddings joined by hand, with padding, caches, and all that reads a model."""

import copy
import math

import pytest
import torch
from prompted_by_hand import ids_of, joined, lively, naive_greedy, naive_logits

from course_lib.contextual.apply import contextual
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.kv.cache import evicting
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.models import tiny_model
from course_lib.prompts.initial import from_ids, from_normal
from course_lib.prompts.places import Places, first_pass, scored, seen_prompt
from course_lib.prompts.prompted import prompting

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "opt", "gpt2"]
IDS = ids_of(3, 11)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # float32: the same sums in another order


def prompt_of(model, n=5):
    return from_normal(model, n, torch.Generator().manual_seed(7))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_joined_embeddings(family):
    model = lively(family)
    prompt = prompt_of(model)
    with prompting(model, prompt), torch.no_grad():
        ours = model(IDS).logits
    torch.testing.assert_close(ours, naive_logits(model, prompt.vectors, IDS), **CLOSE)
    assert (ours - model(IDS).logits).abs().max() > 0.1


def test_a_hard_prompt_is_its_ids_before_the_text():
    model, ids = lively(), torch.tensor([5, 60, 7, 7])
    with prompting(model, from_ids(model, ids)), torch.no_grad():
        ours = model(IDS).logits
    together = torch.cat([ids.expand(3, -1), IDS], dim=1)
    torch.testing.assert_close(ours, model(together).logits[:, 4:], **CLOSE)


def test_places_by_hand():
    # Vectors p, q in front of token 0, and of token 2 behind padding at 0 and 1.
    places = Places(torch.tensor([0, 2]), 2, 3)
    vectors, tokens = torch.tensor([[10, 11], [10, 11]]), torch.tensor([[1, 2, 3], [-1, -2, 3]])
    joint = places.insert(vectors, tokens)
    assert joint.tolist() == [[10, 11, 1, 2, 3], [-1, -2, 10, 11, 3]]
    assert torch.equal(places.without(joint), tokens)


def test_masks_by_hand():
    assert seen_prompt(torch.tensor([[1, 1], [0, 1]]), 2).tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
    tree = torch.tensor([[[[True, False], [False, True]]]])  # two tokens that do not see each other
    assert first_pass(tree, 1)[0, 0].tolist() == [[True, False, False], [True, True, False], [True, False, True]]
    added = first_pass(torch.zeros(1, 1, 2, 2).masked_fill(~tree, -math.inf), 1)[0, 0]
    assert (added == 0).tolist() == [[True, False, False], [True, True, False], [True, False, True]]


def test_scored_by_hand():
    keep = torch.tensor([[False, False, True, True, True], [True, True, True, False, False]])
    assert scored(keep).tolist() == [[False, False, True, True], [True, True, False, False]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(family, side):
    model = lively(family)
    prompt, lengths = prompt_of(model), (11, 8, 4)
    ids, mask = torch.full((3, 11), 2), torch.zeros(3, 11, dtype=torch.long)
    for row, length in enumerate(lengths):
        place = slice(11 - length, None) if side == "left" else slice(length)
        ids[row, place], mask[row, place] = IDS[row, :length], 1
    positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
    with prompting(model, prompt), torch.no_grad():
        ours = model(ids, attention_mask=mask, position_ids=positions).logits
        assert model(ids, attention_mask=mask).logits.isfinite().all()
    for row, length in enumerate(lengths):
        alone = naive_logits(model, prompt.vectors, IDS[row : row + 1, :length])[0]
        torch.testing.assert_close(ours[row][mask[row].bool()], alone, **CLOSE)


def test_positions_are_moved_on():
    """A prompt at the positions of the text would go unnoticed in shapes alone."""
    model, prompt = lively(), prompt_of(lively())
    with torch.no_grad():
        where = torch.cat([torch.arange(5), torch.arange(11)])[None]
        unmoved = model(inputs_embeds=joined(model, prompt.vectors, IDS), position_ids=where).logits[:, 5:]
        with prompting(model, prompt):
            moved = model(IDS, position_ids=torch.arange(11)[None]).logits
    torch.testing.assert_close(moved, naive_logits(model, prompt.vectors, IDS), **CLOSE)
    assert (moved - unmoved).abs().max() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("beams", [1, 3])
def test_generate_is_the_naive_loop(family, beams):
    model = lively(family)
    prompt, options = prompt_of(model), {"do_sample": False, "eos_token_id": None, "max_new_tokens": 6}
    padded = torch.cat([torch.full((3, 2), 2), IDS], dim=1)
    mask = torch.cat([torch.zeros(3, 2, dtype=torch.long), torch.ones_like(IDS)], dim=1)
    with prompting(model, prompt):
        ours = model.generate(IDS, attention_mask=torch.ones_like(IDS), num_beams=beams, **options)
        behind_padding = model.generate(padded, attention_mask=mask, num_beams=beams, **options)
    assert torch.equal(ours, behind_padding[:, 2:])
    if beams == 1:
        assert torch.equal(ours, naive_greedy(model, prompt.vectors, IDS, 6))
    else:
        twin = model.generate(inputs_embeds=joined(model, prompt.vectors, IDS), num_beams=beams, **options)
        assert torch.equal(ours[:, 11:], twin)


def test_a_cache_holds_the_prompt_once():
    model, prompt = lively(), prompt_of(lively())
    whole = naive_logits(model, prompt.vectors, IDS)
    with prompting(model, prompt), torch.no_grad():
        first = model(IDS[:, :6], use_cache=True)
        second = model(IDS[:, 6:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat([first.logits, second.logits], dim=1), whole, **CLOSE)
    assert second.past_key_values.get_seq_length() == 16


@pytest.mark.parametrize("positions", ["original", "rolling"])
def test_the_evicting_cache_reads_prompt_and_text_alike(positions):
    model, prompt = lively(), prompt_of(lively())
    policy = StreamingLLM(budget=9, sinks=4)
    with evicting(model, policy, positions) as cache, prompting(model, prompt), torch.no_grad():
        ours = [model(IDS, past_key_values=cache).logits[:, -1:]]
        ours += [model(IDS[:, step : step + 1], past_key_values=cache).logits for step in range(4)]
        assert cache.n_evicted > 0
    with evicting(model, policy, positions) as cache, torch.no_grad():
        naive = [model(inputs_embeds=joined(model, prompt.vectors, IDS), past_key_values=cache).logits[:, -1:]]
        naive += [model(IDS[:, step : step + 1], past_key_values=cache).logits for step in range(4)]
    torch.testing.assert_close(torch.cat(ours, dim=1), torch.cat(naive, dim=1), **CLOSE)


def test_generate_with_the_evicting_cache():
    model, prompt, options = lively(), prompt_of(lively()), {"do_sample": False, "eos_token_id": None}
    mask = torch.cat([torch.zeros(3, 2, dtype=torch.long), torch.ones_like(IDS)], dim=1)
    padded = torch.cat([torch.full((3, 2), 2), IDS], dim=1)
    with evicting(model, StreamingLLM(budget=64)) as cache, prompting(model, prompt):
        ours = model.generate(padded, attention_mask=mask, past_key_values=cache, max_new_tokens=50, **options)
        assert cache.n_evicted > 0
    assert torch.equal(ours[:, 2:50], naive_greedy(model, prompt.vectors, IDS, 37))  # 5 + 48 fit into 64


@pytest.mark.parametrize("order", ["prompt first", "selector first"])
@pytest.mark.parametrize("masked", [False, True])
def test_works_with_contextual_sparsity(order, masked):
    model, prompt = lively(), prompt_of(lively())
    mask = {"attention_mask": torch.ones_like(IDS)} if masked else {}
    contexts = [lambda: prompting(model, prompt), lambda: contextual(model, Oracle(density=1.0))]
    outer, inner = contexts if order == "prompt first" else contexts[::-1]
    with outer(), inner(), torch.no_grad():
        ours = model(IDS, **mask).logits
    torch.testing.assert_close(ours, naive_logits(model, prompt.vectors, IDS), **CLOSE)


def test_hidden_states_and_labels_are_those_of_the_tokens():
    model, prompt = lively(), prompt_of(lively())
    with prompting(model, prompt), torch.no_grad():
        output = model(IDS, labels=IDS, output_hidden_states=True)
    assert {states.shape for states in output.hidden_states} == {(3, 11, 48)}
    logs = naive_logits(model, prompt.vectors, IDS)[:, :-1].flatten(0, 1)
    torch.testing.assert_close(output.loss, torch.nn.functional.cross_entropy(logs, IDS[:, 1:].flatten()), **CLOSE)


def state_of(model):
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    return hooks, copy.deepcopy(model.state_dict()), type(model).forward


@pytest.mark.parametrize("error", [None, KeyError])
def test_the_model_is_as_before(error):
    model, before = lively(), state_of(lively())
    forward = {name: vars(model).get(name) for name in ("forward", "generate")}
    plain = model(IDS).logits
    try:
        with prompting(model, prompt_of(model)):
            model(IDS)
            if error:
                raise error
    except KeyError:
        assert error
    after = state_of(model)
    assert after[0] == before[0]
    assert after[2] is before[2]
    assert {name: vars(model).get(name) for name in ("forward", "generate")} == forward
    assert all(torch.equal(value, before[1][name]) for name, value in after[1].items())
    assert torch.equal(model(IDS).logits, plain)
    with prompting(model, prompt_of(model)):  # and may have a prompt again
        pass


def test_a_pass_that_fails_leaves_the_next_one_whole():
    model, prompt = lively(), prompt_of(lively())
    with prompting(model, prompt), torch.no_grad():
        with pytest.raises(ValueError, match="at least one real token per row"):
            model(IDS, attention_mask=torch.zeros_like(IDS))
        torch.testing.assert_close(model(IDS).logits, naive_logits_outside(model, prompt), **CLOSE)


def naive_logits_outside(model, prompt):
    twin = lively()
    twin.load_state_dict(model.state_dict())
    return naive_logits(twin, prompt.vectors, IDS)


def test_two_at_a_time_are_refused():
    model, other = lively(), lively(seed=4)
    with prompting(model, prompt_of(model)):
        with pytest.raises(ValueError, match="has a prompt already"), prompting(model, prompt_of(model)):
            pass
        with prompting(other, prompt_of(other)):  # another model has one of its own
            assert other(IDS).logits.shape == (3, 11, 97)


def test_a_cache_of_another_text_is_refused():
    model, prompt = lively(), prompt_of(lively())
    begun = model(IDS, use_cache=True).past_key_values
    with prompting(model, prompt), torch.no_grad():
        with pytest.raises(ValueError, match="a cache of 11 positions .* started inside this block"):
            model(IDS[:, :1], past_key_values=begun)
        begun = model(IDS, use_cache=True).past_key_values
        with pytest.raises(ValueError, match="a cache of 16 positions and a text of 18"):
            model.generate(torch.cat([IDS, IDS[:, :7]], dim=1), past_key_values=begun, max_new_tokens=1)


def test_a_text_without_room_is_refused():
    model = tiny_model()  # of 256 positions
    with prompting(model, prompt_of(model, 200)), torch.no_grad():
        assert model(ids_of(1, 56)).logits.shape[1] == 56
        with pytest.raises(ValueError, match="57 tokens after a prompt of 200 vectors in a model with 256"):
            model(ids_of(1, 57))


def test_a_cache_of_fixed_size_is_refused():
    model = lively()
    with prompting(model, prompt_of(model)), pytest.raises(ValueError, match="no room for the prompt"):
        model.generate(IDS, cache_implementation="static", max_new_tokens=2)
