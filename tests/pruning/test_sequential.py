"""The driver against a slow twin, its promises about failure, and its errors."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from course_lib.models import blocks, by_block, input_groups, layers_of, linears, tiny_model, weight_of
from course_lib.pruning import block_inputs, sequential
from course_lib.pruning.allocation.base import Uniform
from course_lib.pruning.allocation.one_ranking import OneRanking
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.checks import PruningError
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import NofM, Unstructured

WINDOWS = torch.randint(97, (5, 24), generator=torch.Generator().manual_seed(1))


def slow_wanda(model, windows, sparsity):
    """For every layer, in order: run the whole model, look at the layer's inputs, prune. As slow as it is obvious.

    All layers of a block see the inputs of the dense block, so they are recorded before any of them changes.
    """
    for block in blocks(model):
        inputs = {}
        for name, module in linears(block).items():
            module.register_forward_pre_hook(lambda m, args, name=name, inputs=inputs: inputs.update({name: args[0]}))
        with torch.inference_mode():
            model(windows)
        assert inputs.keys() == linears(block).keys()
        for name, module in linears(block).items():
            module._forward_pre_hooks.clear()
            weight = weight_of(module)
            score = weight.abs() * inputs[name].reshape(-1, weight.shape[1]).square().sum(0).sqrt()
            order = score.sort(dim=1, stable=True).indices[:, : int(weight.shape[1] * sparsity)]
            weight.scatter_(1, order, 0.0)


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
    monkeypatch.setattr(block_inputs, "BATCH_TOKENS", 48)  # two windows a batch, and a last one alone
    prune_model(split, Wanda(NofM(2, 4)), WINDOWS, progress=False)
    zeros = [[weight_of(m).flatten() == 0 for k in blocks(x) for m in linears(k).values()] for x in (whole, split)]
    assert (
        torch.cat(zeros[0]) == torch.cat(zeros[1])
    ).float().mean() > 0.999  # sums in another order may turn a near tie


@pytest.mark.parametrize(
    ("method", "allocation"),
    [(Wanda, Uniform()), (Wanda, OWL()), (Magnitude, OneRanking())],
    ids=["uniform", "owl", "one ranking"],
)
def test_the_blocks_are_looked_up_once_and_handed_on(method, allocation, monkeypatch):
    model, calls = tiny_model(), []

    def counting(model):
        calls.append(model)
        return blocks(model)

    for module in [module for name, module in sys.modules.items() if name.startswith("course_lib.")]:
        if getattr(module, "blocks", None) is blocks:
            monkeypatch.setattr(module, "blocks", counting)
    prune_model(model, method(), WINDOWS, False, allocation)
    assert calls == [model]


def test_no_block_runs_after_the_last_one_that_is_pruned():
    model, ran = tiny_model(3), []
    all_blocks = list(blocks(model))
    for block in all_blocks:
        part = next(iter(linears(block).values()))
        part.register_forward_pre_hook(lambda _, args, block=block: ran.append(block))
    whole = tiny_model(3)
    prune_model(whole, Wanda(Unstructured(0.5)), WINDOWS, progress=False)
    prune_model(model, Wanda(Unstructured(0.5)), WINDOWS, progress=False, ignore=[f"blocks.{len(all_blocks) - 1}.*"])
    assert all_blocks[0] in ran
    assert all_blocks[-1] not in ran
    first, last = ([weight_of(m) for m in linears(block).values()] for block in (all_blocks[0], all_blocks[-1]))
    assert all(torch.equal(a, weight_of(b)) for a, b in zip(first, linears(blocks(whole)[0]).values(), strict=True))
    assert all((weight != 0).all() for weight in last)


def test_one_gram_per_shared_input():
    model = tiny_model()
    report = sequential.PruneReport(0)
    batches = sequential.first_inputs(model, WINDOWS)
    block, layers = next(iter(by_block(layers_of(model)).items()))
    grams = sequential.collect(layers, batches, "diagonal", report)
    assert list(grams) == [f"blocks.0.{name}" for name in linears(block)]
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
    "one axis": ({"calibration": torch.zeros(8, dtype=torch.long)}, "expected token ids, one window per row"),
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
changed = Wanda()
changed.pattern = 0.5
for pruner, calibration in (("wanda", torch.zeros(1, 4).long()), (Wanda, torch.zeros(1, 4).long()),
                            (changed, torch.zeros(1, 4).long()), (Wanda(), None), (Wanda(), [[1, 2]])):
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


@pytest.mark.parametrize("part", ["model.embed_tokens", "model.layers.1.input_layernorm", "model.norm"])
def test_nan_outside_the_linears_is_refused_before_any_work(part):
    model = tiny_model()
    model.get_submodule(part).weight.data[1] = torch.nan
    refused(model, f"NaN or infinite weights in {part}.weight; load a checkpoint without them")


@pytest.mark.parametrize("strange", [nn.Linear(4, 4), nn.Sequential(), tiny_model().model])
def test_what_is_no_language_model_is_refused(strange):
    refused(strange, "expected a causal language model|without a list of blocks")


def test_windows_longer_than_the_model_has_positions_are_refused():
    refused(tiny_model(), "expected windows of at most 256 tokens", calibration=torch.zeros(1, 257, dtype=torch.long))


def test_a_model_without_data_is_refused():
    refused(tiny_model().to("meta"), "blocks.0.self_attn.q_proj on the meta device")


def test_report_adds_up():
    report = prune_model(tiny_model(), Wanda(), WINDOWS, progress=False)
    assert report.n_tokens == 120
    assert list(report.seconds) == ["forward", "gram", "factorise", "solve"]
    assert all(s > 0 for s in report.seconds.values())
    assert next(iter(report.sparsity)) == "blocks.0.self_attn.q_proj"
    assert len(report.sparsity) == 14


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_blocks_get_the_masks_that_the_model_gives_them_however_it_passes_them(architecture, attention):
    """Run block by block, the model gives what it gives as a whole; GPT-2 passes its mask by position."""
    model = tiny_model(3, architecture)
    model.set_attn_implementation(attention)
    last = {}
    blocks(model)[-1].register_forward_hook(lambda m, args, output: last.update(output=output))
    with torch.no_grad():
        model(WINDOWS)
        batches = sequential.first_inputs(model, WINDOWS)
        for block in blocks(model):
            sequential.advance(block, batches)
    output = last["output"][0] if isinstance(last["output"], tuple) else last["output"]
    torch.testing.assert_close(torch.cat([batch.hidden for batch in batches]), output)


def test_blocks_that_differ_in_their_masks_each_get_their_own():
    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, intermediate_size=100,
        vocab_size=97, use_sliding_window=True, sliding_window=4, layer_types=["full_attention", "sliding_attention"],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    batches = sequential.first_inputs(model, WINDOWS)
    full, sliding = (batches[0].arguments[block]["attention_mask"] for block in blocks(model))
    assert (full == 0).sum() > (sliding == 0).sum() > 0


def test_a_mask_is_held_once_and_not_once_a_batch(monkeypatch):
    model = tiny_model()
    model.set_attn_implementation("eager")
    monkeypatch.setattr(block_inputs, "BATCH_TOKENS", 24)
    batches = sequential.first_inputs(model, WINDOWS)
    masks = {id(call["attention_mask"]) for batch in batches for call in batch.arguments.values()}
    assert len(batches) == 5
    assert len(masks) == 1
    states = 5 * 24 * 48 * 4
    shared = 24 * 24 * 4 + 2 * 24 * 8 * 4 + 24 * 8  # the mask, cosines and sines, positions
    assert block_inputs.n_bytes(batches) == states + shared


def test_blocks_are_themselves_again_after_first_inputs():
    model = tiny_model()
    own = model.model.layers[0].forward
    model.model.layers[0].forward = own  # as accelerate does: a forward of the instance's own
    sequential.first_inputs(model, WINDOWS)
    assert model.model.layers[0].forward is own
    assert "forward" not in vars(model.model.layers[1])
    model.model.embed_tokens.forward = None
    with pytest.raises(TypeError):
        sequential.first_inputs(model, WINDOWS)
    assert "forward" not in vars(model.model.layers[1])


def nameless(forward):
    """What a wrapper without functools.wraps makes of a forward: nobody sees what its arguments are called."""
    return lambda *args, **kwargs: forward(*args, **kwargs)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_wrapper_that_hides_the_names_of_a_blocks_arguments(architecture):
    """GPT-2 passes its mask by position: its name is that of the class's own forward."""
    wrapped, plain = tiny_model(3, architecture), tiny_model(3, architecture)
    for block in blocks(wrapped):
        block.forward = nameless(block.forward)
    for model in (wrapped, plain):
        prune_model(model, Wanda(), WINDOWS, progress=False)
    for (name, a), (_, b) in zip(wrapped.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_class_whose_forward_was_wrapped(monkeypatch):
    """Llama passes all but the hidden states by name; where names are missing, it is said before any weight changes."""
    wrapped, plain, gpt2 = tiny_model(3), tiny_model(3), tiny_model(3, "gpt2")
    prune_model(plain, Wanda(), WINDOWS, progress=False)
    for model in (wrapped, gpt2):
        kind = type(blocks(model)[0])
        monkeypatch.setattr(kind, "forward", nameless(kind.forward))
    prune_model(wrapped, Wanda(), WINDOWS, progress=False)
    for (name, a), (_, b) in zip(wrapped.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    refused(gpt2, r"called with \d arguments by position; expected a signature that names them. .*functools.wraps")


def test_nothing_is_half_pruned_before_the_first_block_is():
    model, before = tiny_model(), tiny_model()
    blocks(model)[0].mlp.act_fn.forward = None
    with pytest.raises(PruningError, match=r"after 0 layers were pruned: .* The model is as it was\.$"):
        prune_model(model, Wanda(), WINDOWS, progress=False)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before.parameters(), strict=True))
    with pytest.raises(PruningError, match=r"after 7 layers .* The model is half pruned"):
        prune_model(tiny_model(), FailsAt(), WINDOWS, progress=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_pruned_in_their_own_precision(dtype):
    model = tiny_model(3).to(dtype)
    before = tiny_model(3).to(dtype)
    report = prune_model(model, Wanda(NofM(2, 4)), WINDOWS, progress=False)
    assert report.total_sparsity == 0.5
    for p, q in zip(model.parameters(), before.parameters(), strict=True):
        assert p.dtype == dtype
        assert torch.equal(p[p != 0], q[p != 0])
    assert model(WINDOWS).logits.isfinite().all()


class Quick(Wanda):
    """Prepares each Gram, and leaves a note of some."""

    prepared = 0

    def prepare(self, inputs):
        type(self).prepared += 1
        inputs.__class__ = Noted


class Noted(sequential.Gram):
    notes = ("damped more", "and more")


def test_shared_work_is_done_once_an_input_and_notes_reach_the_report():
    report = prune_model(tiny_model(), Quick(), WINDOWS, progress=False)
    assert Quick.prepared == 8
    assert report.notes["blocks.0.self_attn.k_proj"] == "damped more; and more"
    assert len(report.notes) == 14


def test_the_report_says_what_was_held_and_what_left():
    report = prune_model(tiny_model(), FailsNever(Unstructured(0.5, per="layer")), WINDOWS, progress=False)
    states = WINDOWS.numel() * 48 * 4
    assert states < report.bytes["activations"] < 2 * states
    matrices = (3 * 48**2 + 100**2) * 4  # inputs of q k v, of o, of gate and up, of down
    diagonals = (3 * 48 + 100) * 4
    assert report.bytes["grams"] == matrices + diagonals
    assert report.total_sparsity == report.n_zero / report.n_weights == 0.5


class FailsNever(Wanda):
    """Asks for whole Gram matrices, as second-order methods do."""

    needs = "matrix"
