import math

import pytest
import torch
import transformers
from torch import nn

from course_lib.attention.small_models.byte_model import untrained
from course_lib.measure import likelihood
from course_lib.measure.perplexity import perplexity, window_losses
from course_lib.models import blocks, linears, tiny_model, weight_of
from course_lib.sparsity.footprint import sparsity_report, weight_bytes
from course_lib.sparsity.formats import CSR, Bitmap, BlockSparse, NofMPacked
from course_lib.sparsity.patterns import NofM, Unstructured

ARCHITECTURES = ["llama", "qwen2", "qwen3", "mistral", "opt", "gpt2"]


def random_windows(n, length, generator):
    return torch.randint(3, 97, (n, length), generator=generator)


def slow_perplexity(model, windows):
    """One sequence and one token at a time, straight from the definition."""
    losses = []
    for window in windows:
        for i in range(1, len(window)):
            logits = model(window[None, :i]).logits[0, -1].double()
            losses.append((logits.logsumexp(-1) - logits[window[i]]).item())
    return math.exp(sum(losses) / len(losses))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_perplexity_equals_the_definition(architecture, generator):
    model = tiny_model(architecture=architecture)
    windows = random_windows(5, 23, generator)
    found = perplexity(model, windows, batch_size=2, progress=False)
    assert found.value == pytest.approx(slow_perplexity(model, windows), rel=1e-4)
    assert found.n_tokens == 5 * 22


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity(generator):
    model = tiny_model()
    model.get_output_embeddings().weight.data.zero_()
    found = perplexity(model, random_windows(3, 9, generator), progress=False)
    assert found.value == pytest.approx(97, rel=1e-6)
    assert found.standard_error == pytest.approx(0, abs=1e-4)


@torch.no_grad()
def test_standard_error_is_the_spread_of_windows_through_exp(generator):
    model = tiny_model()
    windows = random_windows(4, 11, generator)
    means = torch.tensor([math.log(perplexity(model, w[None], progress=False).value) for w in windows]).double()
    torch.testing.assert_close(window_losses(model, windows, batch_size=2, progress=False), means, rtol=1e-5, atol=0)
    found = perplexity(model, windows, progress=False)
    assert found.standard_error == pytest.approx(means.mean().exp().item() * means.std().item() / 2, rel=1e-3)
    assert math.isnan(perplexity(model, windows[:1], progress=False).standard_error)


@pytest.mark.parametrize("batch_size", [1, 3, 7, None])
def test_batching_and_chunking_do_not_matter(batch_size, generator, monkeypatch):
    model, windows = tiny_model(), random_windows(7, 13, generator)
    whole = perplexity(model, windows, batch_size=7, progress=False)
    monkeypatch.setattr(likelihood, "LOGIT_ROWS", 5)
    found = perplexity(model, windows, batch_size, progress=False)
    assert found.value == pytest.approx(whole.value, rel=1e-5)
    assert found.standard_error == pytest.approx(whole.standard_error, rel=1e-4)


def test_logits_are_never_all_there_at_once(generator, monkeypatch):
    model, most = tiny_model(), 0
    monkeypatch.setattr(likelihood, "LOGIT_ROWS", 4)

    def watch(module, args, output):
        nonlocal most
        most = max(most, output.shape[0] if output.ndim == 2 else output.shape[1])

    model.get_output_embeddings().register_forward_hook(watch)
    perplexity(model, random_windows(3, 30, generator), progress=False)
    assert most == 4


def test_batch_size_follows_free_memory(monkeypatch):
    class Memory:
        available = 1_000_000_000

    monkeypatch.setattr(likelihood.psutil, "virtual_memory", lambda: Memory)
    assert likelihood.tokens_at_once(tiny_model()) == likelihood.MOST_TOKENS["cpu"]
    Memory.available = 4_000_000  # a quarter of it, over (12 · 48 + 4 · 100) values of 4 bytes
    assert likelihood.tokens_at_once(tiny_model()) == 1_000_000 // 3904


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (torch.zeros(0, 5, dtype=torch.int64), "at least one"),
        (torch.zeros(3, 1, dtype=torch.int64), "2 tokens or more"),
        (torch.full((1, 5), 97), "expected 0 to 96"),
        (torch.full((1, 5), -1), "expected 0 to 96"),
    ],
)
def test_bad_windows_are_refused(windows, words):
    with pytest.raises(ValueError, match=words):
        perplexity(tiny_model(), windows, progress=False)


def test_models_that_cannot_be_scored_are_refused(generator):
    windows = random_windows(1, 5, generator)
    with pytest.raises(ValueError, match="meta device"):
        perplexity(tiny_model().to("meta"), windows, progress=False)
    scaled = tiny_model()
    scaled.register_forward_hook(lambda module, args, output: output | {"logits": output.logits * 0.1})
    with pytest.raises(ValueError, match="scaled or soft-capped"):
        perplexity(scaled, windows, progress=False)


SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 97}
CHANGED = {  # family and settings whose logits differ from the head's output, though hardly for one token
    "Gemma2": ({"head_dim": 8, "num_key_value_heads": 1}, "final_logit_softcapping 30"),
    "Granite": ({"logits_scaling": 1.02}, "logits_scaling 1.02"),
    "Cohere": ({"logit_scale": 0.995}, "logit_scale 0.995"),
}


@pytest.mark.parametrize("family", CHANGED)
def test_soft_capped_and_scaled_logits_are_refused_by_the_configuration(family, generator):
    settings, words = CHANGED[family]
    config = getattr(transformers, f"{family}Config")(**SIZES, pad_token_id=0, **settings)
    with pytest.raises(ValueError, match=rf"{words}, whose logits .* \(they are scaled or soft-capped\)"):
        perplexity(untrained(config, 0).eval(), random_windows(2, 9, generator), progress=False)


def test_settings_that_change_no_logits_are_taken(generator):
    model = untrained(transformers.GraniteConfig(**SIZES, pad_token_id=0), 0).eval()
    windows = random_windows(2, 9, generator)
    expected = model(input_ids=windows, labels=windows).loss.exp().item()
    assert perplexity(model, windows, progress=False).value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("batch_size", [-1, 0, True])
def test_a_batch_size_that_is_no_count_is_refused(batch_size, generator):
    with pytest.raises(ValueError, match="got batch_size .*; expected a whole number of windows, 1 or more"):
        perplexity(tiny_model(), random_windows(2, 9, generator), batch_size, progress=False)


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_a_window_longer_than_the_learned_positions_is_refused(family, generator):
    model = tiny_model(architecture=family)
    assert perplexity(model, random_windows(1, 256, generator), progress=False).n_tokens == 255
    with pytest.raises(ValueError, match="got windows of 257 tokens; expected at most 256"):
        perplexity(model, random_windows(1, 257, generator), progress=False)
    assert perplexity(tiny_model(), random_windows(1, 257, generator), progress=False).n_tokens == 256  # RoPE goes on


def prune(model, pattern):
    for block in blocks(model):
        for linear in linears(block).values():
            weight_of(linear).mul_(pattern.keep(weight_of(linear).abs()))
    return model


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("format", "encode"), [("csr", CSR.encode), ("bitmap", Bitmap.encode), ("2:4", NofMPacked.encode)]
)
def test_weight_bytes_are_those_of_the_encoded_tensors(architecture, format, encode):
    model = prune(tiny_model(architecture=architecture), NofM(2, 4))
    modules = [module for block in blocks(model) for module in linears(block).values()]
    others = sum(p.nbytes for p in model.parameters()) - sum(module.weight.nbytes for module in modules)
    assert weight_bytes(model, format) == others + sum(encode(weight_of(module)).n_bytes for module in modules)


def test_dense_bytes_count_a_tied_head_once():
    model = tiny_model()
    assert model.config.tie_word_embeddings
    in_blocks = 2 * (48 * 48 * 2 + 16 * 48 * 2 + 3 * 48 * 100)
    assert weight_bytes(model) == 4 * (97 * 48 + in_blocks + 5 * 48)  # embedding, linears, five norms
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())
    assert weight_bytes(model) == 4 * (2 * 97 * 48 + in_blocks + 5 * 48)


def test_blocks_are_counted_as_stored(monkeypatch):
    model = tiny_model()
    for block in blocks(model):
        for linear in linears(block).values():  # 16 × 16 does not divide 100
            monkeypatch.setattr(linear, "weight", nn.Parameter(torch.zeros(32, 48)))
    expected = 14 * BlockSparse.encode(torch.zeros(32, 48)).n_bytes
    assert weight_bytes(model, "block") == expected + 4 * (97 * 48 + 5 * 48)


def test_unknown_format_and_weights_that_do_not_fit():
    with pytest.raises(ValueError, match="expected one of dense, csr"):
        weight_bytes(tiny_model(), "zip")
    with pytest.raises(ValueError, match="expected 2:4"):
        weight_bytes(tiny_model(), "2:4")


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (NofM(2, 4), ("2:4", "4:8")),
        (NofM(1, 4), ("1:4", "2:4", "4:8")),
        (NofM(4, 8), ("4:8",)),
        (Unstructured(0.5), ()),
    ],
)
def test_sparsity_report_finds_the_pattern(pattern, fits):
    model = tiny_model(architecture="opt")
    linear = linears(blocks(model)[1])["fc1"]
    weight_of(linear).mul_(pattern.keep(torch.rand(linear.weight.shape, generator=torch.Generator().manual_seed(1))))
    report = sparsity_report(model)
    assert next(iter(report.layers)) == "blocks.0.self_attn.q_proj"
    layer = report.layers["blocks.1.fc1"]
    assert layer.fits == fits
    assert layer.n_zero == int((linear.weight == 0).sum())
    total = sum(x.n_weights for x in report.layers.values())
    assert report.sparsity == layer.n_zero / total
    assert report.layers["blocks.0.fc1"].sparsity == 0


@pytest.mark.real
@torch.no_grad()
def test_perplexity_of_the_real_model_is_sensible_and_equals_one_sequence_at_a_time(real_model):
    from course_lib.data.corpora import windows

    model, tokenizer = real_model
    ids = windows("wikipedia", 3, 128, tokenizer, "evaluation")
    losses = [model(input_ids=row[None], labels=row[None]).loss.item() for row in ids]
    found = perplexity(model, ids, progress=False)
    assert found.value == pytest.approx(math.exp(sum(losses) / 3), rel=1e-4)
    assert 10 < found.value < 80
