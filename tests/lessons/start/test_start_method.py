"""What the notebook shows in plain PyTorch: its block against the model's, and its count of work by the library's."""

import ast
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from course_lib.lessons.start.exercises import CACHE_BYTES
from course_lib.lessons.start.plots import PROMPT
from course_lib.measure.roofline import Transformer, Work
from course_lib.models import blocks, tiny_model
from course_lib.workbook.masters import masters

(MASTER,) = masters(["00"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
BLOCK = ("rms_norm", "rotate", "llama_block")
# Each number of the residual stream is a sum of up to 1,536 products, added up in another order than the model's.
# Rounding then changes it by about n · eps at most: 1,536 · 1.2e-7 = 2e-4 in float32, usually by √n · eps = 5e-6.
FLOAT32 = 5e-6


def functions(*names: str, **known) -> dict:
    """Define the functions as the notebook does, and return the names that result."""
    for node in TREE.body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            exec(ast.get_source_segment(SOURCE, node), known)
    return known


def relative(difference, expected) -> float:
    return ((difference - expected).abs().max() / expected.abs().max()).item()


@torch.no_grad()
def differences(model, token_ids) -> list[float]:
    """The relative difference of the residual stream after each block but the last, and that of the last logits."""
    names = functions(*BLOCK, torch=torch, F=F)
    config = model.config
    base = config.rope_parameters["rope_theta"]
    expected = model(token_ids, output_hidden_states=True)
    x = model.model.embed_tokens.weight[token_ids[0]]
    found = []
    for block, theirs in zip(blocks(model), (*expected.hidden_states[1:-1], None), strict=True):
        x = names["llama_block"](block, x, config.head_dim, base)
        if theirs is not None:
            found.append(relative(x, theirs[0]))
    logits = names["rms_norm"](x, model.model.norm) @ model.lm_head.weight.T
    return [*found, relative(logits, expected.logits[0])]


def test_the_block_equals_the_models_on_a_small_model(generator):
    token_ids = torch.randint(3, 90, (1, 20), generator=generator)
    assert max(differences(tiny_model(), token_ids)) < FLOAT32


@pytest.mark.real
def test_the_block_equals_the_models_on_the_real_model(real_model):
    model, tokenizer = real_model
    found = differences(model, tokenizer(PROMPT, return_tensors="pt").input_ids)
    assert len(found) == 30
    assert max(found) < FLOAT32


@pytest.mark.parametrize(("batch_size", "n_new", "n_cached"), [(1, 1, 0), (3, 1, 32), (1, 20, 0), (2, 5, 7)])
def test_the_work_of_a_pass_is_the_librarys_count(batch_size, n_new, n_cached):
    sizes = Transformer(n_blocks=2, width=8, n_query=4, n_key_value=2, head_size=2, n_neurons=16, vocabulary=10)
    attention = 2 * 8 * 2 * (4 + 2)
    known = {
        "weights_of_part": {"attention matrices": 2 * attention, "MLP matrices": 2 * 3 * 8 * 16, "LM head": 80},
        "n_blocks": 2,
        "n_query": 4,
        "n_key_value": 2,
        "head_size": 2,
        "cache_bytes_of": CACHE_BYTES.reference,
        "Work": Work,
    }
    counted = functions("work", **known)["work"](batch_size, n_new, n_cached)
    if n_new == 1:
        assert counted == sizes.decode_step(n_cached, batch_size, 4)
    elif n_cached == 0:
        assert counted == sizes.prefill(n_new, batch_size, 4)
    else:  # a pass after others: what both together need beyond the first
        first, both = (sizes.prefill(n, batch_size, 4) for n in (n_cached, n_cached + n_new))
        assert counted.flops == both.flops - first.flops + batch_size * 2 * 80
        assert counted.bytes == both.bytes


def test_a_layer_belongs_to_one_part():
    part_of = functions("part_of")["part_of"]
    names = ("model.layers.3.self_attn.q_proj", "layers.0.mlp.down_proj", "model.embed_tokens.weight", "lm_head")
    parts = ["attention matrices", "MLP matrices", "LM head", "LM head"]
    assert [part_of(name) for name in names] == parts
    assert part_of("model.layers.3.input_layernorm.weight") == part_of("model.norm.weight") == "norms"


def test_the_timer_keeps_the_shortest_call_and_leaves_out_the_first(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 12.0, 20.0, 25.0])
    time = SimpleNamespace(perf_counter=lambda: next(clock))
    calls = []
    seconds = functions("shortest_seconds", time=time)["shortest_seconds"](lambda: calls.append(1), n_calls=3)
    assert seconds == 2.0
    assert len(calls) == 4


def test_the_block_is_short_and_the_notebook_imports_little():
    first, *_, last = [node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name in BLOCK]
    assert 15 <= last.end_lineno - first.lineno + 1 <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
