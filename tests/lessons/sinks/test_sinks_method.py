"""The functions that the notebook shows: the same losses, masks and numbers as the library, small and real."""

import ast
from functools import partial

import pytest
import torch
from transformers import DynamicCache

from course_lib.attention.windowed import band, value_lengths
from course_lib.data.corpora import windows
from course_lib.kv.analysis.streaming import streaming_perplexity
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.lessons.sinks import deck
from course_lib.lessons.sinks.exercises import EXERCISES
from course_lib.models import load_model, rotary_frequencies, tiny_model
from course_lib.workbook.masters import masters

(MASTER,) = masters(["08"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
METHOD = "stream_with_sinks"
REFERENCES = {exercise.id: exercise.reference for exercise in EXERCISES}


def shown(name):
    """A function as the notebook defines it."""
    (node,) = (each for each in TREE.body if isinstance(each, ast.FunctionDef) and each.name == name)
    names = {"torch": torch, "DynamicCache": DynamicCache, "rotary_frequencies": rotary_frequencies}
    exec("@torch.no_grad()\n" + ast.get_source_segment(SOURCE, node), names)
    return names[name], node.end_lineno - node.lineno + 1


def losses_of_both(model, ids, sinks, budget):
    stream, _ = shown(METHOD)
    functions = (REFERENCES[name] for name in ("sinks.slots", "sinks.positions", "sinks.rotate"))
    library = streaming_perplexity(model, ids, StreamingLLM(budget, sinks=sinks), positions="rolling", chunk=1)
    return stream(model, ids, sinks, budget, *functions), library.losses.float()


@pytest.mark.parametrize(("sinks", "budget"), [(2, 10), (0, 7), (4, 30)])
def test_the_stream_has_the_losses_of_the_library_on_a_small_model(sinks, budget, generator):
    ids = torch.randint(3, 97, (40,), generator=generator)
    ours, library = losses_of_both(tiny_model(), ids, sinks, budget)
    assert torch.allclose(ours, library, atol=1e-5)  # keys are rotated step by step here, at once there


@pytest.mark.real
def test_the_stream_has_the_losses_of_the_library_on_the_real_model():
    model, tokenizer = load_model(device="cpu")
    ids = windows("wikipedia", 1, 40, tokenizer, split="evaluation", seed=0)[0]
    ours, library = losses_of_both(model, ids, 4, 16)
    assert torch.allclose(ours, library, atol=1e-3)


def test_the_mask_is_that_of_the_library():
    window_and_positions, _ = shown("window_and_positions")
    keep, position = window_and_positions(20, 2, 7, REFERENCES["sinks.slots"])
    assert torch.equal(keep, band(20, window=5, sinks=2))
    assert position[12][keep[12]].tolist() == list(range(7))
    assert position[3][keep[3]].tolist() == list(range(4))


def _with_first(value, layer, arguments, output):
    return torch.cat([value.expand(1, 1, -1), output[:, 1:]], dim=1)


@pytest.mark.real
def test_the_massive_activation_that_the_text_describes():
    """Feature 507 of the first token, from layer 11 on; without it the value of the token is long, the loss high."""
    model, _, text, _ = deck._notebook()
    with torch.no_grad():
        states = model.model(text[None, :256], output_hidden_states=True, use_cache=False).hidden_states
    hidden = torch.stack(states[:-1])[:, 0]
    assert divmod(int(hidden[12].abs().argmax()), hidden.shape[2]) == (0, 507)
    assert hidden[12, 0, 507].item() == pytest.approx(23_614, rel=0.01)
    norms = hidden.norm(dim=-1)
    ratio = norms[:, 0] / norms[:, 1:].median(dim=1).values
    assert (int(ratio.argmax()), round(ratio.max().item())) == (12, 169)
    large = (norms[5] > 3 * norms[5].median()).nonzero().flatten().tolist()
    assert large == [0, 39, 59, 69, 112, 167, 199]
    assert {int(hidden[5, token].abs().argmax()) for token in large} == {507}
    before = value_lengths(model, text[None, :256])[12:, 0].median()
    deep = list(zip(model.model.layers, hidden, strict=True))[12:]
    with torch.no_grad():
        values = [layer.self_attn.v_proj(layer.input_layernorm(state[0])) for layer, state in deep]
    with deck.clamped(model, 507, 0.0):
        after = value_lengths(model, text[None, :256])[12:, 0].median()
        assert deck._perplexity(model, text) > 1e6
        handles = [
            layer.self_attn.v_proj.register_forward_hook(partial(_with_first, value))
            for (layer, _), value in zip(deep, values, strict=True)
        ]
        assert deck._perplexity(model, text) == pytest.approx(57.5, rel=0.05)
        for handle in handles:
            handle.remove()
    assert after > 5 * before
    assert deck._perplexity(model, text) == pytest.approx(14.0, abs=0.1)  # the hook is gone


def test_the_method_is_short_and_the_notebook_imports_little():
    assert 15 <= shown(METHOD)[1] <= 35
    assert shown("window_and_positions")[1] <= 15
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
