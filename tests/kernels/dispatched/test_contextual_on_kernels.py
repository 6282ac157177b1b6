"""Contextual sparsity with kernels on and off: the same outputs, the same counts, and a model that is as before."""

import pytest
import torch
from course_lib.kernels.dispatch import kernels
from course_lib.kernels.per_token import gathered_mlp, head_sparse_decode, threshold_matvec, top_indices
from course_lib.kernels.timing.graphs import captured
from kernel_device import DEVICE

from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.heads import contextual_heads, part_norms, static_heads
from course_lib.contextual.execute.choices import predicted
from course_lib.contextual.execute.decode import Decoder
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.kernels import runtime
from course_lib.models import architecture, blocks, tiny_model

pytestmark = pytest.mark.skipif(
    runtime.mode() == "reference", reason="on a CPU, kernels run under the interpreter alone (TRITON_INTERPRET=1)"
)
CLOSE = {"rtol": 1e-3, "atol": 1e-5}  # sums in another order, through two blocks and the head


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that were launched, in order."""
    names = []
    for module in (gathered_mlp, head_sparse_decode, threshold_matvec, top_indices):
        name, launch = module.__name__.rpartition(".")[2], module.launch
        monkeypatch.setattr(module, "launch", lambda *a, name=name, launch=launch: (names.append(name), launch(*a))[1])
    return names


def made(family):
    model = tiny_model(0, family).to(DEVICE)
    with torch.no_grad():
        for weight in model.parameters():  # also biases, which are zero at first
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).to(weight))
    return model


def deja_vu(model, lookahead=0, density=0.3):
    generator = torch.Generator().manual_seed(0)
    width, n_neurons = model.config.hidden_size, 100
    predictors = tuple(Predictor(width, 6, n_neurons, generator).to(DEVICE) for _ in range(2))
    return DejaVu(predictors=predictors, density=density, lookahead=lookahead)


def decoded(model, selector, ids, on):
    """Logits of a prompt and of the next token, the density of each block, and how many tokens were counted."""
    with kernels(on), torch.no_grad(), contextual(model, selector) as watch:
        out = model(ids[:, :-1], use_cache=True)
        logits = [out.logits[:, -1]]
        for token in ids[:, -1:].unbind(1):
            out = model(token[:, None], past_key_values=out.past_key_values, use_cache=True)
            logits.append(out.logits[:, -1])
    return torch.stack(logits), watch.density, watch.n_tokens


@pytest.mark.parametrize(("family", "n_rows"), [("llama", 1), ("llama", 3), ("opt", 1)])
def test_neurons_of_deja_vu(family, n_rows, launched):
    model = made(family)
    ids = torch.randint(3, 97, (n_rows, 6), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    off = decoded(model, deja_vu(model), ids, on=False)
    assert launched == []
    on = decoded(model, deja_vu(model), ids, on=True)
    assert launched == (["top_indices"] + ["gathered_mlp"] * n_rows) * 2  # two blocks; the prompt has too many tokens
    torch.testing.assert_close(on[0], off[0], **CLOSE)
    assert on[1:] == off[1:] == ((0.3, 0.3), 6 * n_rows)


def test_a_predictor_that_reads_a_block_earlier(launched):
    model = made("llama")
    ids = torch.randint(3, 97, (1, 6), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    on, off = (decoded(model, deja_vu(model, lookahead=1), ids, on=on) for on in (True, False))
    assert launched == ["top_indices", "gathered_mlp"] * 2
    torch.testing.assert_close(on[0], off[0], **CLOSE)


def test_padding_is_not_counted_on_kernels():
    model, ids = made("llama"), torch.tensor([[5, 6], [8, 9]]).to(DEVICE)
    mask = torch.tensor([[0, 1], [1, 1]]).to(DEVICE)
    with kernels(True), torch.no_grad(), contextual(model, deja_vu(model, density=0.1)) as watch:
        model(ids, attention_mask=mask)
    assert (watch.n_tokens, watch.density) == (3, (0.1, 0.1))


def test_what_looks_at_all_neurons_computes_them(launched):
    model, ids = made("llama"), torch.tensor([[5]]).to(DEVICE)
    with kernels(True), torch.no_grad(), contextual(model, Oracle(density=0.3)):
        model(ids)
    assert launched == []


def test_the_model_is_as_before(launched):
    model, ids = made("llama"), torch.tensor([[5]]).to(DEVICE)
    mlp = model.model.layers[0].mlp
    before, strides = mlp.down_proj.weight.clone(), mlp.down_proj.weight.stride()
    with kernels(True), torch.no_grad():
        with contextual(model, deja_vu(model)):
            assert mlp.down_proj.weight.stride() == (1, len(before))
            with pytest.raises(RuntimeError, match="Expected tensor"):
                model(torch.ones(1, 1))
        model(ids)
    assert launched == []
    assert "forward" not in vars(mlp)
    assert torch.equal(mlp.down_proj.weight, before)
    assert mlp.down_proj.weight.stride() == strides


def test_another_hook_on_a_linear_is_not_passed_over(launched):
    model, ids, seen = made("llama"), torch.tensor([[5]]).to(DEVICE), []
    with kernels(True), torch.no_grad(), contextual(model, deja_vu(model)):
        handle = model.model.layers[1].mlp.up_proj.register_forward_hook(lambda *given: seen.append(given))
        model(ids)
        handle.remove()
    assert len(seen) == 1
    assert launched == ["top_indices", "gathered_mlp"]  # of the other block


def test_scores_that_are_nan_are_refused_at_the_end():
    model, ids = made("llama"), torch.tensor([[5]]).to(DEVICE)
    selector = deja_vu(model)
    with torch.no_grad():
        selector.predictors[1].out.weight[3] = torch.nan
    with (
        pytest.raises(ValueError, match="got NaN among the scores from DejaVu at block 1"),
        kernels(True),
        torch.no_grad(),
        contextual(model, selector),
    ):
        model(ids)


@pytest.mark.skipif(not runtime.INTERPRETED, reason="a GPU is waited for when a kernel is first compiled")
def test_nothing_of_a_step_is_asked_for_by_the_host(monkeypatch):
    """No number, list or index of a tensor of unknown length: what a CUDA graph could not record."""
    model, ids = made("llama"), torch.tensor([[5]]).to(DEVICE)
    selector = deja_vu(model)
    with kernels(True), torch.no_grad(), contextual(model, selector):
        mlp, x = model.model.layers[1].mlp, torch.randn(1, 1, model.config.hidden_size)
        model(ids)
        with monkeypatch.context() as patch:
            for name in ("item", "tolist", "nonzero", "__bool__", "__int__", "__float__"):
                patch.setattr(torch.Tensor, name, lambda *_, name=name: pytest.fail(f"{name} was asked for"))
            patch.setattr(gathered_mlp, "launch", lambda x, *_: x)
            patch.setattr(top_indices, "launch", lambda score, n, nan: torch.zeros(1, n, dtype=torch.int32))
            assert mlp(x).shape == x.shape


def test_a_decoder_of_chosen_neurons(launched):
    model = made("opt")
    ids = torch.tensor([5, 6]).to(DEVICE)
    choose = predicted(deja_vu(model).predictors, 0.3)
    with kernels(False), torch.no_grad():
        expected = Decoder(model, 2).read(ids, choose)
    assert launched == []
    with kernels(True), torch.no_grad():
        found = Decoder(model, 2).read(ids, choose)
    assert launched == ["top_indices", "gathered_mlp"] * 4
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_inputs_of_teal(family, launched):
    """Seven matrices per block in Llama, four in GPT-2, which stores their transposes; the prompt takes no kernel."""
    model, found = made(family), []
    ids = torch.randint(3, 97, (1, 6), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    with kernels(False):
        thresholds = Teal.fit(model, ids)
    weight = blocks(model)[0].get_submodule(architecture(blocks(model)[0]).mlp[-1]).weight
    before, strides = weight.clone(), weight.stride()
    for on in (False, True):
        with kernels(on), torch.no_grad(), teal(model, thresholds, density=0.5) as watch:
            out = model(ids[:, :-1], use_cache=True)
            found.append(model(ids[:, -1:], past_key_values=out.past_key_values).logits)
        found.append(watch.density)
    torch.testing.assert_close(found[2], found[0], **CLOSE)
    assert found[3] == found[1]
    assert launched == ["threshold_matvec"] * (14 if family == "llama" else 8)
    assert torch.equal(weight, before)
    assert weight.stride() == strides


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_heads_that_are_kept(family, launched):
    model, found = made(family), []
    ids = torch.randint(3, 97, (2, 6), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    score = static_heads(model, ids)
    for on in (False, True):
        with kernels(on), torch.no_grad(), contextual_heads(model, score, keep=4) as watch:
            out = model(ids[:, :-1], use_cache=True)
            found.append(model(ids[:, -1:], past_key_values=out.past_key_values).logits)
        found.append(watch.share)
    torch.testing.assert_close(found[2], found[0], **CLOSE)
    assert torch.equal(found[3], found[1])
    assert launched == ["head_sparse_decode"] * 2
    assert model.config._attn_implementation == "sdpa"


def test_a_score_of_what_heads_give_needs_all_of_them(launched):
    model, ids = made("llama"), torch.tensor([[5]]).to(DEVICE)
    with kernels(True), torch.no_grad(), contextual_heads(model, part_norms, keep=4):
        model(ids)
    assert launched == []


def test_a_step_is_recorded_as_a_cuda_graph(launched):
    """Neurons and heads together; the graph holds for any token. Under the interpreter the step itself runs."""
    model = made("llama")
    ids = torch.randint(3, 97, (1, 6), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    score, token = static_heads(model, ids), ids[:, -1:].clone()
    with kernels(True), torch.no_grad(), contextual(model, deja_vu(model)), contextual_heads(model, score, keep=4):
        cache = model(ids[:, :-1], use_cache=True).past_key_values
        prompt = [(layer.keys, layer.values) for layer in cache.layers]

        def step():
            for layer, (keys, values) in zip(cache.layers, prompt, strict=True):
                layer.keys, layer.values = keys, values
            return model(token, past_key_values=cache, use_cache=True).logits

        launched.clear()
        replay = captured(step, torch.device(DEVICE))
        n_steps = 4 if DEVICE == "cuda" else 3
        assert launched == ["head_sparse_decode", "top_indices", "gathered_mlp"] * 2 * n_steps
        token.fill_(7)
        found = replay().clone()
        expected = step()
    torch.testing.assert_close(found, expected, **CLOSE)


def test_a_predictor_in_half_precision_runs_in_it(launched):
    model, ids = made("llama"), torch.tensor([[5, 6]]).to(DEVICE)
    selector, seen = deja_vu(model), []
    for predictor in selector.predictors:
        predictor.bfloat16().register_forward_hook(lambda _, given, score: seen.append((given[0].dtype, score.dtype)))
    found = [decoded(model, selector, ids, on=on) for on in (False, True)]
    assert seen == [(torch.bfloat16, torch.bfloat16)] * 8
    assert launched == ["top_indices", "gathered_mlp"] * 4
    torch.testing.assert_close(found[1][0], found[0][0], **CLOSE)
