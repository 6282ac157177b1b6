"""The functions that notebook 10 shows, compared with plain autograd and with the library."""

import ast

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from course_lib.checking.exercise import Case
from course_lib.data.corpora import windows
from course_lib.lessons.compress.exercises import EXERCISES
from course_lib.lessons.compress.steps import NOT_SCORED, prompt_step, targets, with_prompt
from course_lib.models import load_model
from course_lib.prompts.losses import prompted_losses
from course_lib.prompts.recipe import PromptRecipe, rows_of
from course_lib.prompts.small_llama import as_model, weights_of
from course_lib.prompts.soft import SoftPrompt, fingerprint, table_of
from course_lib.prompts.training import train_prompt as library_training
from course_lib.workbook.masters import masters

(MASTER,) = masters(["10"])
SOURCE = MASTER.read_text(encoding="utf-8")
FUNCTIONS = {node.name: node for node in ast.parse(SOURCE).body if isinstance(node, ast.FunctionDef)}
LOOP, LOSSES = "train_prompt", "losses_by_position"
REFERENCES = [
    next(each for each in EXERCISES if each.id == f"compress.{name}").reference for name in ("before", "labels")
]


def defined(name):
    """A function as the notebook defines it."""
    names = {"torch": torch, "cross_entropy": cross_entropy}
    exec(ast.get_source_segment(SOURCE, FUNCTIONS[name]), names)
    return names[name]


@pytest.fixture
def model():
    """A Llama with groups of heads, of awkward sizes."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 41, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=True)).eval()


@pytest.fixture
def texts():
    return torch.randint(0, 41, (6, 7), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def initial():
    return 0.1 * torch.randn(3, 24, generator=torch.Generator().manual_seed(2))


def in_the_librarys_order(texts, recipe):
    return torch.cat([texts[rows_of(len(texts), recipe, step)] for step in range(recipe.n_steps)])


def without_the_first(ids, real, n_prompt):
    """The labels of the library, which does not score the first token."""
    labels = targets(ids, real, n_prompt)
    labels[:, n_prompt - 1] = NOT_SCORED
    return labels


def assert_same_training(model, texts, initial, rate, rtol):
    """The loop of the notebook and the library's training: the same losses and prompts."""
    recipe = PromptRecipe(n_steps=len(texts) // 2, batch=2, warm_up=0, rate=rate)
    ordered = in_the_librarys_order(texts, recipe)
    history, losses = defined(LOOP)(model, initial, ordered, REFERENCES[0], without_the_first, learning_rate=rate)
    soft = SoftPrompt(vectors=initial, table=fingerprint(model))
    expected = library_training(model, soft, texts, recipe, progress=False)
    assert losses == pytest.approx(expected.losses, rel=rtol)
    # Adam divides by the size of the gradient: where that is near nothing, rounding decides a part of a step.
    torch.testing.assert_close(history[-1], expected.prompt.vectors, atol=20 * rtol * rate * 100, rtol=0)


def test_the_loop_trains_the_same_prompt_as_the_library_on_a_small_model(model, texts, initial):
    assert_same_training(model, texts, initial, rate=0.01, rtol=1e-5)


@pytest.mark.real
def test_the_loop_trains_the_same_prompt_as_the_library_on_the_real_model():
    model, tokenizer = load_model(device="cpu")
    texts = windows("wikipedia", 4, 32, tokenizer, split="calibration", seed=1)
    assert_same_training(model, texts, table_of(model)[1000:1005].clone(), rate=0.05, rtol=1e-4)


def test_the_loop_is_adamw_on_the_prompt_by_plain_autograd(model, texts, initial):
    """The learning rate falls linearly to zero, and the first token is scored."""
    history, losses = defined(LOOP)(model, initial, texts, *REFERENCES, learning_rate=0.01)
    prompt = initial.clone().requires_grad_()
    optimiser = torch.optim.Adam([prompt], lr=0.01)
    for step, batch in enumerate(texts.split(2)):
        inputs = torch.cat([prompt.expand(2, -1, -1), model.get_input_embeddings()(batch).detach()], dim=1)
        loss = cross_entropy(model(inputs_embeds=inputs).logits[:, 2:-1].flatten(0, 1), batch.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([prompt], 1.0)
        optimiser.param_groups[0]["lr"] = 0.01 * (3 - step) / 3
        optimiser.step()
        assert losses[step] == pytest.approx(loss.item(), rel=1e-5)
        torch.testing.assert_close(history[step + 1], prompt.detach(), atol=2e-4, rtol=0)


def test_the_loop_moves_no_weight_and_leaves_the_initial_prompt(model, texts, initial):
    before, kept = {name: weight.clone() for name, weight in model.state_dict().items()}, initial.clone()
    history, losses = defined(LOOP)(model, initial, texts, *REFERENCES)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert torch.equal(initial, kept)
    assert torch.equal(history[0], kept)
    assert not torch.equal(history[-1], kept)
    assert len(history) == len(losses) + 1 == 4
    assert all(parameter.grad is None for parameter in model.parameters())


def test_functions_without_a_gradient_train_the_same_prompt(model, texts, initial):
    """`mine` calls a student's function on copies, so no gradient passes through it."""

    def by_hand(prompt, text, real):
        vectors, mask, positions = with_prompt(prompt, text, real)
        return torch.tensor(vectors.tolist()), mask, positions

    one, other = (defined(LOOP)(model, initial, texts, each, targets)[0] for each in (with_prompt, by_hand))
    torch.testing.assert_close(one, other)


def test_losses_by_position_are_those_of_the_library(model, texts, initial):
    losses = torch.no_grad()(defined(LOSSES))(model, initial, texts, *REFERENCES)
    assert losses.shape == (6, 3 + 7 - 1)
    assert not losses[:, :2].any()
    expected = prompted_losses(model, SoftPrompt(vectors=initial, table=fingerprint(model)), texts, progress=False)
    torch.testing.assert_close(losses[:, 3:].double(), expected, atol=1e-5, rtol=1e-4)


def test_the_loop_is_short_and_the_notebook_imports_little():
    loop = FUNCTIONS[LOOP]
    assert 15 <= loop.end_lineno - loop.lineno + 1 <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.parse(SOURCE).body) <= 12


def test_a_step_of_the_real_model_moves_the_prompt_alone(model, texts, initial):
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    prompt, weights = prompt_step(model, initial, texts, 0.5)
    assert weights.keys() == before.keys()
    assert all(torch.equal(weights[name], weight) for name, weight in before.items())
    assert (prompt - initial).norm() > 0
    assert all(parameter.requires_grad for parameter in model.parameters()), "frozen for the step alone"


def test_a_small_llama_has_the_weights_it_was_given(generator):
    from course_lib.prompts.small_llama import random_weights

    weights = random_weights(generator, 11, 4, n_blocks=2)
    model = as_model(weights)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert all(parameter.requires_grad for parameter in model.parameters())
    again = weights_of(model)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    assert as_model(model) is model


def test_a_right_step_on_a_real_model_may_round_differently(model, texts, initial):
    """Forms of the same loss differ by 0.4 % of the largest move on the real model; a first token left out by 40 %."""
    (exercise,) = (each for each in EXERCISES if each.id == "compress.frozen")
    arguments = (model, initial, texts, 1.0)
    prompt, weights = exercise.library(*arguments)
    move = (prompt - initial).abs().max()
    case = Case("real data", arguments)
    assert exercise.agree((prompt + 0.005 * move, weights), (prompt, weights), case) is None
    assert "prompt" in exercise.agree((prompt + 0.1 * move, weights), (prompt, weights), case)
