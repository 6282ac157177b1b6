"""The cells of lesson 09 that show a method in plain PyTorch agree with the library."""

import ast

import pytest
import torch

from course_lib.checking.exercise import Exercise
from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.data.corpora import windows
from course_lib.lessons.dejavu.exercises import EXERCISES
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model, tiny_model
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import Packed
from course_lib.workbook.masters import masters

(MASTER,) = masters(["09"])
SOURCE = MASTER.read_text(encoding="utf-8")
SHOWN = (
    "losses_with_neurons",
    "round_to_2_bits",
    "loss_with_predicted_neurons",
    "losses_with_heads",
    "energy_of_largest",
)


def reference(exercise_id: str):
    (exercise,) = (each for each in EXERCISES if each.id == exercise_id)
    assert isinstance(exercise, Exercise)
    return exercise.reference


@pytest.fixture(scope="module")
def shown():
    """The functions as the notebook defines them."""
    definitions = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.FunctionDef) and node.name in SHOWN]
    names = {"torch": torch, "window_losses": window_losses}
    exec(compile(ast.Module(definitions, []), "the notebook", "exec"), names)
    return names


@pytest.fixture
def ids(generator):
    return torch.randint(3, 90, (2, 12), generator=generator)


def test_the_hook_keeps_the_neurons_of_the_oracle(shown, ids):
    model = tiny_model()
    ours = shown["losses_with_neurons"](model, ids, 0.3, reference("dejavu.importance"))
    with contextual(model, Oracle(), 0.3):
        theirs = window_losses(model, ids, progress=False)
    torch.testing.assert_close(ours, theirs)
    dense = window_losses(model, ids, progress=False)
    assert (dense - ours).abs().min() > 1e-4, "the hooks are removed, and had an effect"


def test_energy_by_hand(shown):
    # Squares 9 1 0 and 16 9 0: the largest has .9 and .64, the two largest all; a token of zeros does not count.
    curve = shown["energy_of_largest"](torch.tensor([[1.0, 3.0, 0.0], [0.0, 4.0, 3.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(curve.float(), torch.tensor([0.77, 1.0, 1.0]))


def test_the_coarse_copy_is_that_of_the_library(shown, generator):
    weight = torch.randn(6, 128, generator=generator)
    stored = Packed.encode(weight, Quantization(2, 64).grid(weight)).decode()
    torch.testing.assert_close(shown["round_to_2_bits"](weight), stored)


@pytest.mark.real
def test_predict_choose_gather_agrees_with_the_library_on_the_real_model(shown):
    model, tokenizer = load_model()
    ids = windows("wikipedia", 1, 24, tokenizer, split="evaluation", seed=0)
    functions = (reference(name) for name in ("dejavu.importance", "dejavu.gathered"))
    ours = shown["loss_with_predicted_neurons"](model, ids, 0.5, *functions)
    with contextual(model, LowBit(bits=2).fit(model, ids), 0.5):
        theirs = window_losses(model, ids, progress=False).item()
    dense = window_losses(model, ids, progress=False).item()
    # Sums in another order: a neuron at the border may change sides, and such differences grow from block to block.
    assert abs(ours - theirs) < 0.2 * abs(theirs - dense)


@pytest.mark.real
def test_the_hook_keeps_the_heads_of_the_library(shown):
    model, tokenizer = load_model()
    shown["model"] = model
    ids = windows("wikipedia", 1, 24, tokenizer, split="evaluation", seed=0)
    ours = shown["losses_with_heads"](ids, 7, reference("dejavu.heads"))
    with contextual_heads(model, part_norms, keep=7):
        theirs = window_losses(model, ids, progress=False)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
