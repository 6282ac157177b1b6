"""The driver against a slow twin, its promises about failure, and its errors."""

import subprocess
import sys

import pytest
import torch

from course_lib.models import blocks, input_groups, linears, tiny_model, weight_of
from course_lib.pruning import sequential
from course_lib.pruning.guard import PruningError
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import NofM, Unstructured

WINDOWS = torch.randint(97, (5, 24), generator=torch.Generator().manual_seed(1))


def slow_wanda(model, windows, sparsity):
    """For every layer, in order: run the whole model, look at the layer's inputs, prune. As slow as it is obvious.

    All layers of a block see the inputs of the dense block, so they are recorded before any of them changes.
    """
    for index, block in enumerate(blocks(model)):
        inputs = {}
        for name, module in linears(block).items():
            module.register_forward_pre_hook(lambda m, args, name=name, inputs=inputs: inputs.update({name: args[0]}))
        with torch.inference_mode():
            model(windows)
        for name, module in linears(block).items():
            module._forward_pre_hooks.clear()
            weight = weight_of(module)
            score = weight.abs() * inputs[name].reshape(-1, weight.shape[1]).square().sum(0).sqrt()
            order = score.sort(dim=1, stable=True).indices[:, : int(weight.shape[1] * sparsity)]
            weight.scatter_(1, order, 0.0)
        assert index < len(blocks(model))


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "opt", "gpt2"])
def test_equals_the_slow_twin_bit_for_bit(architecture):
    fast, slow = tiny_model(7, architecture), tiny_model(7, architecture)
    prune_model(fast, Wanda(Unstructured(0.5)), WINDOWS, progress=False)
    slow_wanda(slow, WINDOWS, 0.5)
    for (name, a), (_, b) in zip(fast.named_parameters(), slow.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_batches_of_any_size_prune_alike(monkeypatch):
    whole, split = tiny_model(2), tiny_model(2)
    prune_model(whole, Wanda(NofM(2, 4)), WINDOWS, progress=False)
    monkeypatch.setattr(sequential, "BATCH_TOKENS", 48)  # two windows a batch, and a last one alone
    prune_model(split, Wanda(NofM(2, 4)), WINDOWS, progress=False)
    zeros = [[weight_of(m).flatten() == 0 for k in blocks(x) for m in linears(k).values()] for x in (whole, split)]
    assert (
        torch.cat(zeros[0]) == torch.cat(zeros[1])
    ).float().mean() > 0.999  # sums in another order may turn a near tie


def test_one_gram_per_shared_input():
    model = tiny_model()
    report = sequential.PruneReport(0)
    batches = sequential.first_inputs(model, WINDOWS)
    block = blocks(model)[0]
    grams = sequential.collect(block, batches, "diagonal", report)
    assert len({id(g) for g in grams.values()}) == len(input_groups(block)) == 4
    assert all(g.n_tokens == WINDOWS.numel() for g in grams.values())


def test_first_inputs_are_the_embeddings_and_leave_no_hook():
    model = tiny_model()
    batches = sequential.first_inputs(model, WINDOWS)
    torch.testing.assert_close(batches[0].hidden, model.model.embed_tokens(WINDOWS))
    assert not blocks(model)[0]._forward_pre_hooks


def test_embeddings_norms_and_head_stay():
    model, before = tiny_model(), tiny_model()
    prune_model(model, Magnitude(Unstructured(0.9)), WINDOWS, progress=False)
    inside = {id(m.weight) for b in blocks(model) for m in linears(b).values()}
    for p, q in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(p, q) is (id(p) not in inside)


class FailsAt(Wanda):
    """Works until the third layer of the second block."""

    calls = 0

    def prune(self, weight, inputs):
        self.calls += 1
        if self.calls == 10:
            raise RuntimeError("the power went out")
        return super().prune(weight, inputs)


def test_failure_in_the_middle_names_the_layer_leaves_no_hook_and_no_half_pruned_block():
    model, before = tiny_model(), tiny_model()
    with pytest.raises(PruningError, match=r"stopped at blocks.1.self_attn.v_proj, after 7 layers.*power went out"):
        prune_model(model, FailsAt(), WINDOWS, progress=False)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    for p, q in zip(blocks(model)[1].parameters(), blocks(before)[1].parameters(), strict=True):
        assert torch.equal(p, q)


def test_failure_in_a_forward_pass_removes_the_hooks():
    model = tiny_model()
    blocks(model)[0].mlp.act_fn.forward = None
    with pytest.raises(PruningError, match="stopped at blocks.0"):
        prune_model(model, Wanda(), WINDOWS, progress=False)
    assert not any(m._forward_pre_hooks for m in model.modules())


BAD = {
    "no windows": ({"calibration": torch.zeros(0, 8, dtype=torch.long)}, r"shape \(0, 8\).*is empty.*corpora.windows"),
    "one axis": ({"calibration": torch.zeros(8, dtype=torch.long)}, "expected token ids, one window a row"),
    "floats": ({"calibration": torch.rand(2, 8)}, "torch.float32; expected token ids"),
    "foreign ids": ({"calibration": torch.full((1, 4), 97)}, "got token ids from 97 to 97; expected 0 to 96"),
    "no fit": ({"pruner": Wanda(NofM(3, 7))}, r"NofM\(n=3, m=7\) does not fit blocks.0.self_attn.q_proj"),
}


def refused(model, message, **changed):
    before = [p.clone() for p in model.parameters()]
    arguments = {"pruner": Wanda(), "calibration": WINDOWS} | changed
    with pytest.raises(ValueError, match=message):
        prune_model(model, **arguments, progress=False)
    for p, q in zip(model.parameters(), before, strict=True):
        assert p.is_meta or torch.equal(p.nan_to_num(), q.nan_to_num())


UNTYPED = """
from course_lib.models import tiny_model
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
import torch
for pruner, calibration in (("wanda", torch.zeros(1, 4).long()), (Wanda, torch.zeros(1, 4).long()),
                            (Wanda(0.5), torch.zeros(1, 4).long()), (Wanda(), None), (Wanda(), [[1, 2]])):
    try:
        prune_model(tiny_model(), pruner, calibration, progress=False)
    except ValueError as error:
        print(str(error).split(";")[0])
"""


def test_arguments_of_the_wrong_kind_are_refused_without_the_tests_type_checks_too():
    said = subprocess.run([sys.executable, "-c", UNTYPED], capture_output=True, text=True, check=True).stdout
    assert [line[:14] for line in said.splitlines()] == [
        "got pruner 'wa",
        "got pruner <cl",
        "got pattern 0.",
        "got calibratio",
        "got calibratio",
    ]


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused_before_any_weight_changes(name):
    refused(tiny_model(), BAD[name][1], **BAD[name][0])


def test_nan_weights_are_refused():
    model = tiny_model()
    weight_of(model.model.layers[1].mlp.up_proj)[0] = torch.nan
    refused(model, "got 48 NaN or infinite weights in blocks.1.mlp.up_proj")


def test_a_model_without_data_is_refused():
    refused(tiny_model().to("meta"), "blocks.0.self_attn.q_proj on the meta device")


def test_report_adds_up():
    report = prune_model(tiny_model(), Wanda(), WINDOWS, progress=False)
    assert report.n_tokens == 120
    assert set(report.seconds) == {"forward", "gram", "prune"}
    assert all(s > 0 for s in report.seconds.values())
    assert next(iter(report.sparsity)) == "blocks.0.self_attn.q_proj"
    assert len(report.sparsity) == 14
