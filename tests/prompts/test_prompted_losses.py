"""Losses of prompted models, one token at a time; which tokens are scored; what the public code makes of them."""

import math

import pytest
import torch
from prompted_by_hand import ids_of, lively, naive_losses

from course_lib.measure.perplexity import window_losses
from course_lib.models import tiny_model
from course_lib.prompts.initial import from_normal
from course_lib.prompts.losses import (
    check_windows,
    first_token_losses,
    prompted_losses,
    prompted_window_losses,
    zero_averaged,
)

IDS = ids_of(4, 9)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # float32 against float64 sums


def prompt_of(model, n=5):
    return from_normal(model, n, torch.Generator().manual_seed(7))


@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_losses_one_token_at_a_time(batch_size):
    model = lively()
    prompt = prompt_of(model)
    ours = prompted_losses(model, prompt, IDS, batch_size=batch_size, progress=False)
    torch.testing.assert_close(ours, naive_losses(model, prompt.vectors, IDS), **CLOSE)
    means = prompted_window_losses(model, prompt, IDS, batch_size, progress=False)
    torch.testing.assert_close(means, ours.mean(dim=1))


def test_prompted_and_alone_are_scored_at_the_same_tokens():
    model = lively()
    alone = prompted_losses(model, None, IDS, progress=False)
    prompted = prompted_losses(model, prompt_of(model), IDS, progress=False)
    assert alone.shape == prompted.shape == (4, 8)
    torch.testing.assert_close(alone.mean(dim=1), window_losses(model, IDS, progress=False))


def test_a_prompt_that_changes_nothing_changes_no_number():
    """A model that says the same whatever it reads: any difference would be one of which tokens are scored."""
    model = tiny_model(architecture="qwen2")
    torch.nn.init.zeros_(model.model.norm.weight)
    prompt = prompt_of(model)
    alone = prompted_window_losses(model, None, IDS, progress=False)
    assert alone.tolist() == pytest.approx([math.log(97)] * 4, rel=1e-6)
    assert torch.equal(prompted_window_losses(model, prompt, IDS, progress=False), alone)
    as_published = zero_averaged(prompted_losses(model, prompt, IDS, progress=False), prompt.n)
    assert as_published.tolist() == pytest.approx([math.log(97) * 8 / 13] * 4, rel=1e-6)


def test_the_zeros_that_the_public_code_averages():
    # 1024 tokens of loss log 20 behind 100 vectors: 1023 losses and 100 zeros, as if perplexity were 15.3.
    found = zero_averaged(torch.full((1, 1023), math.log(20), dtype=torch.float64), 100)
    assert found.item() / math.log(20) == pytest.approx(1023 / 1123)
    assert found.item() / math.log(20) == pytest.approx(0.911, abs=5e-4)
    assert found.exp().item() == pytest.approx(15.3, abs=0.05)


def test_the_zeros_appear_in_torch_as_the_public_code_calls_it():
    model, n = lively(), 5
    prompt = prompt_of(model, n)
    ours = prompted_losses(model, prompt, IDS, progress=False)
    labels = torch.cat([torch.full((4, n + 1), -100), IDS[:, 1:]], dim=1)  # the first real token left out
    read = torch.cat([prompt.vectors.expand(4, -1, -1), model.get_input_embeddings()(IDS)], dim=1)
    logits = model(inputs_embeds=read).logits[:, :-1]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")
    torch.testing.assert_close(each.mean(dim=1).double(), zero_averaged(ours, n), **CLOSE)
    assert (each.mean(dim=1) < ours.mean(dim=1) - 0.1).all()


def test_what_a_first_token_more_is_worth():
    """The prompt is the same for all windows, so of the first token it can only know how frequent it is."""
    model = lively()
    prompt = prompt_of(model)
    first = first_token_losses(model, prompt, IDS)
    logits = model(inputs_embeds=prompt.vectors[None]).logits[0, -1].double().log_softmax(-1)
    torch.testing.assert_close(first, -logits[IDS[:, 0]], **CLOSE)
    rest = prompted_losses(model, prompt, IDS, progress=False)
    with_first = (first + rest.sum(dim=1)) / 9  # T targets, as peft counts them, against T − 1
    torch.testing.assert_close(with_first - rest.mean(dim=1), (first - rest.mean(dim=1)) / 9)
    assert (with_first - rest.mean(dim=1)).abs().min() > 1e-3


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("prompted", [False, True])
def test_padding_is_not_scored(side, prompted):
    model, lengths = lively(), (9, 6, 2)
    prompt = prompt_of(model) if prompted else None
    ids, keep = torch.full((3, 9), 2), torch.zeros(3, 9, dtype=torch.bool)
    for row, length in enumerate(lengths):
        place = slice(9 - length, None) if side == "left" else slice(length)
        ids[row, place], keep[row, place] = IDS[row, :length], True
    losses = prompted_losses(model, prompt, ids, keep, progress=False)
    assert losses.isfinite().sum(dim=1).tolist() == [8, 5, 1]
    for row, length in enumerate(lengths):
        alone = prompted_losses(model, prompt, IDS[row : row + 1, :length], progress=False)[0]
        torch.testing.assert_close(losses[row][losses[row].isfinite()], alone, **CLOSE)


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ([[1, 2]], "got windows list"),
        (torch.zeros(2, 3), "float32"),
        (torch.zeros(0, 3, dtype=torch.long), r"\(0, 3\)"),
        (torch.zeros(2, 1, dtype=torch.long), "windows of 1 token"),
        (torch.full((2, 3), 97), "97; expected 0 to 96"),
    ],
)
def test_windows_that_cannot_be_scored(windows, words):
    unchecked = getattr(check_windows, "__wrapped__", check_windows)
    with pytest.raises(ValueError, match=words):
        unchecked(tiny_model(), windows)


@pytest.mark.parametrize("keep", [torch.ones(4, 8, dtype=torch.bool), torch.zeros(4, 9, dtype=torch.bool)])
def test_a_keep_that_does_not_fit(keep):
    unchecked = getattr(check_windows, "__wrapped__", check_windows)
    with pytest.raises(ValueError, match="two real tokens that follow each other"):
        unchecked(tiny_model(), IDS, keep)
