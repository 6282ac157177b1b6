"""The MoE layer and the training loop that the notebook shows: the same numbers as the library."""

import ast

import pytest
import torch

from course_lib.attention.small_models.byte_model import untrained
from course_lib.lessons.moe.exercises import EXERCISES
from course_lib.models import MIXTRAL
from course_lib.moe.classic.descent import train, vowel_samples
from course_lib.moe.classic.learners import Mixture
from course_lib.moe.experts import Experts
from course_lib.moe.layer import MoE
from course_lib.moe.losses import balance_of_layers
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.small_models.byte_mixture import mixture_configuration
from course_lib.moe.small_models.training import forget, routing
from course_lib.moe.upcycling.mixture import mixture_blocks
from course_lib.workbook.masters import masters

(MASTER,) = masters(["06"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
LAYER, LOOP = "MixtureOfExperts", "train_mixture"


def node(name):
    (found,) = (each for each in TREE.body if getattr(each, "name", None) == name)
    return found


def library(exercise_id):
    (exercise,) = (each for each in EXERCISES if each.id == exercise_id)
    return exercise.library


@pytest.fixture(scope="module")
def notebook():
    """The classes and functions as the notebook defines them."""
    from course_lib.attention.small_models.byte_model import configuration

    names = {"torch": torch, "untrained": untrained, "configuration": configuration}
    names["vowels"], _ = vowel_samples()
    for name in (LAYER, "byte_mixture", LOOP, "train_vowels"):
        exec(ast.get_source_segment(SOURCE, node(name)), names)
    return names


def test_the_layer_computes_what_the_library_computes(notebook, generator):
    layer = notebook[LAYER](12, 10, 5, 2, library("moe.gate"))
    for weight in layer.parameters():
        weight.data = 0.3 * torch.randn(weight.shape, generator=generator)
    copied = (layer.into.detach().clone(), layer.out.detach().clone())
    other = MoE(Experts(*copied), OLMoE(2), layer.router.detach().clone())
    x, slope = (torch.randn(2, 9, 12, generator=generator) for _ in range(2))
    ours, (theirs, _) = layer(x), other(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)  # sums in another order
    (ours * slope).sum().backward()
    (theirs * slope).sum().backward()
    for mine, library_weight in (
        (layer.router, other.gate), (layer.into, other.experts.into), (layer.out, other.experts.out)
    ):  # fmt: skip
        torch.testing.assert_close(mine.grad, library_weight.grad, rtol=1e-4, atol=1e-5)


def test_training_has_the_losses_of_the_librarys_mixture(notebook, generator, capsys):
    """Three steps from the same weights: the loop of the notebook, and a Mixtral with the library's router and loss."""
    ours = notebook["byte_mixture"](library("moe.gate"), n_experts=4)
    mixture = untrained(mixture_configuration(4, 2, width=96, n_blocks=2, n_heads=3, active=192), 0)
    copy_weights(ours, mixture)
    batches = torch.randint(32, 127, (3, 2, 25), generator=generator)
    loads = notebook[LOOP](ours, batches, 0.5, library("moe.balance"), report_every=1)
    reported = [float(line.split()[3].rstrip(",")) for line in capsys.readouterr().out.splitlines()]
    expected, expected_loads = library_losses(mixture, batches, alpha=0.5)
    assert reported == pytest.approx(expected, abs=0.006)  # printed with two digits
    torch.testing.assert_close(loads[0], expected_loads[0])
    torch.testing.assert_close(loads.sum(dim=2), torch.ones(3, 2))
    weights = dict(mixture.named_parameters())
    changed = ours.model.layers[0].mlp.router, mixture_blocks(mixture)[0].get_parameter(MIXTRAL.gate)
    torch.testing.assert_close(*changed, rtol=0, atol=1e-3)
    name = "model.embed_tokens.weight"
    torch.testing.assert_close(dict(ours.named_parameters())[name], weights[name], rtol=0, atol=1e-3)


def copy_weights(ours, mixture):
    """Everything of the notebook's model into the library's."""
    own = dict(ours.named_parameters())
    with torch.no_grad():
        for name, weight in mixture.named_parameters():
            if name in own:
                weight.copy_(own[name])
        for block, theirs in zip(ours.model.layers, mixture_blocks(mixture), strict=True):
            theirs.get_parameter(MIXTRAL.gate).copy_(block.mlp.router)
            theirs.get_parameter(MIXTRAL.into).copy_(block.mlp.into)
            theirs.get_parameter(MIXTRAL.out).copy_(block.mlp.out)


def library_losses(mixture, batches, alpha):
    losses, loads = [], []
    optimizer = torch.optim.Adam(mixture.parameters(), betas=(0.9, 0.95))
    with routing(mixture.train(), OLMoE(2)) as seen:
        for number, ids in enumerate(batches, start=1):
            optimizer.param_groups[0]["lr"] = 2e-3 * number / 10
            forget(seen)
            logits = mixture(ids[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.mT, ids[:, 1:])
            routings = [of_block[-1] for of_block in seen]
            optimizer.zero_grad()
            (loss + balance_of_layers(routings, alpha)).backward()
            torch.nn.utils.clip_grad_norm_(mixture.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            loads.append(torch.stack([each.load for each in routings]))
    return losses, loads


@pytest.mark.parametrize(("error", "exercise"), [("cooperative", None), ("mixture", "moe.jacobs")])
def test_vowels_are_trained_as_with_autograd(notebook, error, exercise):
    experts, router = notebook["train_vowels"](exercise and library(exercise), n_epochs=5)
    theirs = train(Mixture(error), notebook["vowels"], [0], epochs=5).weights
    torch.testing.assert_close(experts, theirs[0][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(router, theirs[1][0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [LAYER, LOOP])
def test_layer_and_loop_are_short(name):
    assert 15 <= node(name).end_lineno - node(name).lineno + 1 <= 35


def test_the_notebook_imports_little():
    assert sum(isinstance(each, ast.Import | ast.ImportFrom) for each in TREE.body) <= 12
