"""Conformance: every Scorer placed in course_lib/pruning/structured/scorers. Discovered, no list."""

import copy
import inspect
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_lib import discover
from course_lib.models import tiny_model
from course_lib.pruning.structured import scorers
from course_lib.pruning.structured.activations import PAIRS
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.llm_pruner import REDUCE, LLMPruner
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.scorers.output_energy import OutputEnergy
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.scorers.weight_norm import WeightNorm
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import cut

METHODS = discover.subclasses(scorers, Scorer)
KINDS = ("neurons", "heads", "groups", "width", "blocks")
WINDOWS = torch.randint(0, 97, (3, 12), generator=torch.Generator().manual_seed(3))


@pytest.fixture(params=METHODS, ids=lambda c: c.__name__)
def method(request):
    return request.param


@pytest.fixture(params=["llama", "qwen3", "opt", "gpt2"])
def evidence(request):
    return Evidence(tiny_model(architecture=request.param), WINDOWS, progress=False)


def given(scores):
    return {kind: scores.of(kind) for kind in KINDS if scores.of(kind) is not None}


def test_scores_have_the_model_s_shape_and_are_finite(method, evidence):
    shape, scores = evidence.shape, given(method().score(evidence))
    assert scores
    sizes = {kind: (shape.blocks, getattr(shape, kind)) for kind in KINDS[:3]} | {"width": (48,), "blocks": (2,)}
    for kind, values in scores.items():
        assert tuple(values.shape) == sizes[kind]
        assert values.isfinite().all()
        assert values.unique().numel() > 1


def test_the_model_is_left_as_it_was_and_the_answer_is_the_same_again(method, evidence):
    state = copy.deepcopy(evidence.model.state_dict())
    first = given(method().score(evidence))
    again = given(method().score(Evidence(evidence.model, WINDOWS, progress=False)))
    for kind, values in first.items():
        assert torch.equal(values, again[kind])
    for name, value in evidence.model.state_dict().items():
        assert torch.equal(value, state[name])
    for module in evidence.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert all(parameter.grad is None and parameter.requires_grad for parameter in evidence.model.parameters())


def test_every_kind_that_is_scored_can_be_cut_by_it(method):
    model = tiny_model()
    scores, shape = method().score(Evidence(model, WINDOWS, progress=False)), shape_of(model)
    changes = {"neurons": 60, "heads": 4, "groups": 1, "width": 36, "blocks": 1}
    for kind in given(scores):
        target = replace(shape, **({"groups": 1, "heads": 3} if kind == "groups" else {kind: changes[kind]}))
        assert shape_of(cut(model, target, scores)) == target


def test_what_does_nothing_is_the_first_to_go(method):
    if method is Random:
        pytest.skip("chance does not look")
    model = tiny_model()
    block = model.model.layers[1]
    with torch.no_grad():
        for matrix in (block.mlp.gate_proj, block.mlp.up_proj):
            matrix.weight[13] = 0
        block.mlp.down_proj.weight[:, 13] = 0
        for matrix in (block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj):
            matrix.weight[: matrix.out_features // 2] = 0  # heads 0 to 2, group 0
        block.self_attn.o_proj.weight[:, :24] = 0
    scores = given(method().score(Evidence(model, WINDOWS, progress=False)))
    if "neurons" in scores:
        assert scores["neurons"][1].argmin() == 13
    if "heads" in scores:
        assert set(scores["heads"][1].argsort()[:3].tolist()) == {0, 1, 2}
        assert scores["groups"][1].argmin() == 0


def test_a_file_is_short_and_cites_its_paper(method):
    text = Path(inspect.getfile(method)).read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert "https://arxiv.org/abs/" in text.partition("\n")[0]


def test_no_windows():
    with pytest.raises(ValueError, match="expected"):
        Minitron().score(Evidence(tiny_model(), torch.zeros(0, 5, dtype=torch.long), progress=False))


def test_all_scores_of_activations_and_gradients_come_from_one_pass_each():
    """Windows go through the model once for all that reads activations, and once for all that reads gradients."""
    model, n_read = tiny_model(), []
    model.base_model.register_forward_hook(lambda *_: n_read.append(1))
    evidence = Evidence(model, WINDOWS, progress=False)
    for batch, sequence in PAIRS:
        Minitron(batch, sequence).score(evidence)
    BlockInfluence().score(evidence)
    OutputEnergy().score(evidence)
    assert len(n_read) == len(WINDOWS)
    for element in ("param_first", "param_second", "param_mix", "vectorize"):
        for reduction in REDUCE:
            LLMPruner(element, reduction).score(evidence)
    assert len(n_read) == 2 * len(WINDOWS)
    WeightNorm().score(evidence)
    Random().score(evidence)
    assert len(n_read) == 2 * len(WINDOWS)


def test_a_joined_score_cuts_width_and_depth():
    model = tiny_model()
    evidence = Evidence(model, WINDOWS, progress=False)
    joined = Scores()
    for kind in METHODS:
        joined = joined | kind().score(evidence)
    assert set(given(joined)) == set(KINDS)
