"""The course's own functions of the exercises of lesson 10: numbers by hand, and a model that uses them."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from course_lib.lessons.compress.steps import (
    NOT_SCORED,
    initial_prompt,
    paired_ratio,
    stored_bytes,
    targets,
    transferred_fraction,
    with_prompt,
)


def randn(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def logits_of(model, prompt, ids, real) -> Tensor:
    text = model.get_input_embeddings()(ids)
    vectors, seen, positions = with_prompt(prompt, text, real)
    with torch.inference_mode():
        return model(inputs_embeds=vectors, attention_mask=seen.long(), position_ids=positions).logits


@pytest.fixture
def model():
    """A Llama with groups of heads, of awkward sizes."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 41, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=True)).eval()


@pytest.fixture
def prompt(model):
    return 0.1 * randn(3, model.config.hidden_size)


@pytest.mark.parametrize("n_left", [0, 2])
def test_padding_on_either_side_changes_nothing_for_the_text(model, prompt, n_left):
    ids = torch.randint(0, model.config.vocab_size, (1, 6), generator=torch.Generator().manual_seed(1))
    whole = logits_of(model, prompt, ids, torch.ones(1, 6, dtype=torch.bool))
    filled = torch.cat([ids.new_full((1, n_left), 5), ids, ids.new_full((1, 2 - n_left), 5)], dim=1)
    real = (torch.arange(8) >= n_left) & (torch.arange(8) < n_left + 6)
    padded = logits_of(model, prompt, filled, real[None])
    at = 3 + n_left
    # The same sums with zero weights for the padding: a few roundings of float32.
    torch.testing.assert_close(padded[:, at : at + 6], whole[:, 3:], atol=2e-5, rtol=1e-4)


def test_a_prompt_of_the_texts_own_first_tokens_is_the_text(model):
    ids = torch.randint(0, model.config.vocab_size, (1, 9), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        expected = model(ids).logits
    embedded = model.get_input_embeddings()(ids)[0, :4].detach()
    got = logits_of(model, embedded, ids[:, 4:], torch.ones(1, 5, dtype=torch.bool))
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)  # the same sums, in batches of another kind


def test_positions_by_hand():
    real = torch.tensor([[False, True, True], [True, True, False]])
    _, seen, positions = with_prompt(randn(2, 4), randn(2, 3, 4), real)
    assert seen.tolist() == [[True, True, False, True, True], [True, True, True, True, False]]
    assert positions.tolist() == [[0, 1, 0, 2, 3], [0, 1, 2, 3, 0]]


def test_the_gradient_of_a_prompt_is_summed_over_the_texts():
    """So that vectors which came back from a function without their history still teach the prompt."""
    prompt, text = randn(2, 3).requires_grad_(), randn(4, 5, 3)
    vectors, *_ = with_prompt(prompt, text, torch.ones(4, 5, dtype=torch.bool))
    vectors.sin().square().sum().backward()
    apart = vectors.detach().requires_grad_()
    apart.sin().square().sum().backward()
    torch.testing.assert_close(prompt.grad, apart.grad[:, :2].sum(dim=0))


def test_targets_by_hand_and_without_a_prompt():
    ids, real = torch.tensor([[7, 8, 0], [5, 0, 0]]), torch.tensor([[True, True, True], [True, False, False]])
    no = NOT_SCORED
    assert targets(ids, real, 2).tolist() == [[no, 7, 8, 0, no], [no, 5, no, no, no]]
    assert targets(ids, real, 0).tolist() == [[8, 0, no], [no, no, no]]


def test_cross_entropy_ignores_positions_without_a_target():
    ids, real, logits = torch.tensor([[3, 1, 4]]), torch.tensor([[True, True, False]]), randn(1, 5, 6)
    by_hand = -logits.log_softmax(dim=2)[0, [1, 2], [3, 1]].mean()
    torch.testing.assert_close(cross_entropy(logits.flatten(0, 1), targets(ids, real, 2).flatten()), by_hand)


def test_a_prompt_shares_no_memory_with_the_table():
    table, lots = randn(9, 4), torch.tensor([0.1, 0.9, 0.2, 0.8, 0.3, 0.4, 0.5, 0.6, 0.7])
    before = table.clone()
    prompt, same = initial_prompt(table, lots, 2, torch.ones(2, 4))
    assert torch.equal(prompt, before[[1, 3]] - 1)
    prompt += 100
    assert same is table
    assert torch.equal(table, before)


def test_ratio_by_hand():
    log2 = math.log(2)
    prompted = torch.tensor([[0, 9, 1, 3], [0, 9, 2, 7.0]])
    plain = torch.tensor([[1 + log2, 3 + log2], [2 + 3 * log2, 5]])
    ratio, error = paired_ratio(prompted, plain, torch.tensor([[True, True, True], [True, True, False]]))
    assert ratio.item() == pytest.approx(0.25)
    assert error.item() == pytest.approx(0.25 * log2)  # differences of one and three times log 2


def test_a_prompt_that_does_nothing_looks_like_a_gain_where_zeros_are_averaged():
    """100 vectors before 1,024 tokens: a perplexity of 20 becomes one of 15, and no loss has changed."""
    n, length, loss = 100, 1024, math.log(20)
    plain = torch.full((3, length - 1), loss)
    prompted = torch.cat([torch.zeros(3, n), plain], dim=1)  # places of the prompt, and the first token left out
    real = torch.ones(3, length, dtype=torch.bool)
    assert paired_ratio(prompted, plain, real)[0].item() == pytest.approx(1)
    averaged = prompted.mean(dim=1).exp()
    assert averaged[0].item() == pytest.approx(20 ** ((length - 1) / (length + n - 1)), rel=1e-4)
    assert averaged[0].item() == pytest.approx(15.3, abs=0.05)


def test_bytes_by_hand():
    # Codes 16 · 4 / 8, bitmap 2 · 2, starts 4 · 3, scales 2 · 2 · 2, zero points 2 · 1, others 40, prompt 6.
    assert stored_bytes(((2, 16, 16),), 20, 3, 4, 8) == (8 + 4 + 12 + 8 + 2 + 40 + 6, 104 / 80)


def test_transferred_fraction_by_hand_and_its_extremes():
    plain, own = torch.tensor([5.0, 6]), torch.tensor([4.0, 5])
    dense, dense_own = torch.tensor([3.0, 4]), torch.tensor([2.75, 3.75])
    share, error = transferred_fraction(plain, own, torch.tensor([4.25, 5.5]), dense, dense_own)
    assert share.item() == pytest.approx(0.5)
    assert error.item() == pytest.approx(1 / 6)  # 0.125 and −0.125 spread by 0.177, / √2, / 0.75
    assert [x.item() for x in transferred_fraction(plain, own, own, dense, dense_own)] == pytest.approx([1, 0])
    assert transferred_fraction(plain, own, plain - 0.25, dense, dense_own)[0].item() == pytest.approx(0)


def test_the_error_of_the_fraction_is_that_of_the_jackknife():
    """The jackknife, which knows no formula; both are right up to terms of 1 / N."""
    hard, noise = 3 + randn(200), [0.03 * randn(200, seed=seed) for seed in (11, 12, 13)]
    losses = [hard + 1, hard + 0.6 + noise[0], hard + 0.7 + noise[0] + noise[1], hard, hard - 0.1 + noise[2]]
    left_out = [
        transferred_fraction(*(torch.cat([x[:at], x[at + 1 :]]).double() for x in losses))[0].item()
        for at in range(200)
    ]
    jackknife = torch.tensor(left_out).std(correction=0).item() * 199**0.5
    assert transferred_fraction(*losses)[1].item() == pytest.approx(jackknife, rel=0.02)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: with_prompt(randn(2, 4), randn(1, 3, 5), torch.ones(1, 3, dtype=torch.bool)), "width 4 and a text of"),
        (lambda: targets(torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.bool), -1), "-1 vectors"),
        (lambda: initial_prompt(randn(3, 2), randn(3), 4, randn(4, 2)), "from 1 to all tokens"),
        (lambda: initial_prompt(randn(3, 2), randn(3), 2, randn(1, 2)), "a step of 1 vectors"),
        (lambda: paired_ratio(randn(2, 3), randn(2, 3), torch.ones(2, 4, dtype=torch.bool)), "with P of at least 1"),
        (lambda: paired_ratio(randn(2, 9), randn(2, 3), torch.ones(2, 3, dtype=torch.bool)), "3 without for 3 tokens"),
        (lambda: stored_bytes((), 1, 1, 4, 8), "0 layers"),
        (lambda: stored_bytes(((2, 4, 3),), 1, 1, 5, 8), "bits=5"),
        (lambda: transferred_fraction(*[randn(1)] * 5), "got 1 windows"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
