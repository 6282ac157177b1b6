"""The code that notebook 05 shows, the whole method and the scores, agrees with the library."""

import ast
from dataclasses import replace

import pytest
import torch

from course_lib.data.corpora import windows
from course_lib.lessons.minitron.exercises import EXERCISES
from course_lib.models import blocks, load_model, tiny_model
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.llm_pruner import LLMPruner
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.scorers.weight_norm import WeightNorm
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import cut
from course_lib.workbook.masters import masters

(MASTER,) = masters(["05"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
CODE = [cell.partition("\n")[2] for cell in SOURCE.split("\n# %%") if not cell.startswith(" [markdown]")]
METHOD = "prune_and_distill"
FUNCTIONS = ("record_input", "record_output", "run_with_hooks", "score_each", "norm_of_weights", METHOD)
REFERENCES = {exercise.id: exercise.reference for exercise in EXERCISES}
REFERENCES["minitron.group"] = next(e for e in EXERCISES if e.id == "minitron.group").library


class Recorder(list):
    """Replace the modules `plots` and `tables`: record what they are called with."""

    def __getattr__(self, name):
        return lambda *arguments: self.append((name, *arguments))


def notebook_names(model, ids):
    """The names that the notebook's cells need, with the references as the student's functions."""
    names = {"torch": torch, "recorded": {}, "replace": replace, "plots": Recorder(), "tables": Recorder()}
    names |= {"model": model, "calibration": ids, "dense_shape": shape_of(model), "decoder_blocks": model.model.layers}
    names["mine"] = lambda exercise_id, _: REFERENCES[exercise_id]
    names |= dict.fromkeys(("aggregate", "influence", "taylor"))
    sources = [
        ast.get_source_segment(SOURCE, node)
        for node in TREE.body
        if (isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS) or "PROJECTIONS" in ast.unparse(node)[:11]
    ]
    exec("\n".join(sources), names)
    return names


def run_cell(beginning, until, names):
    """Run the first lines of a cell: those from one that begins a cell, before one that begins with `until`."""
    (cell,) = [code for code in CODE if beginning in code]
    lines = cell[cell.index(beginning) :].splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith(until))
    exec("\n".join(lines[:end]), names)
    return names


@pytest.fixture
def ids(generator):
    return torch.randint(3, 90, (2, 12), generator=generator)


def has_no_hooks(model):
    return not any(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


def test_recorded_activations_and_streams_give_the_librarys_scores(ids):
    model = tiny_model()
    names = run_cell("decoder_blocks = ", "print", notebook_names(model, ids))
    found = names["score_each"](names["neuron_activations"], REFERENCES["minitron.aggregate"])
    evidence = Evidence(model, ids, progress=False)
    torch.testing.assert_close(found, Minitron().score(evidence).neurons)
    run_cell("embeddings = ", "block_scores", names)
    influence = REFERENCES["minitron.influence"](names["stream"])
    torch.testing.assert_close(influence, BlockInfluence().score(evidence).blocks)
    assert has_no_hooks(model)
    assert not names["recorded"]


def test_an_aggregation_in_place_does_not_change_the_activations(ids):
    model = tiny_model()
    names = run_cell("decoder_blocks = ", "print", notebook_names(model, ids))
    before = [x.clone() for x in names["neuron_activations"]]
    names["score_each"](names["neuron_activations"], lambda x: x.abs_().mean((0, 1)))
    assert all(torch.equal(x, y) for x, y in zip(names["neuron_activations"], before, strict=True))


def test_heads_channels_and_weight_norms_give_the_librarys_scores(ids):
    model = tiny_model()
    names, evidence = notebook_names(model, ids), Evidence(model, ids, progress=False)
    run_cell("output_projections = ", "every_group", names)
    run_cell("all_norms = ", "plots", names)
    expected = Minitron().score(evidence)
    torch.testing.assert_close(names["head_scores"], expected.heads)
    torch.testing.assert_close(names["group_scores"], expected.groups)
    torch.testing.assert_close(names["channel_scores"], expected.width)
    norms = torch.stack([names["norm_of_weights"](block.mlp) for block in blocks(model)])
    torch.testing.assert_close(norms, WeightNorm().score(evidence).neurons)
    assert has_no_hooks(model)


def test_gradients_give_the_librarys_scores(ids):
    model = tiny_model()
    names = run_cell("down_weights = ", "by_gradient", notebook_names(model, ids))
    names["decoder_blocks"][0].mlp.down_proj.weight.grad = None
    model.requires_grad_(True)
    model(ids, labels=ids).loss.backward()
    for block, gradient in zip(blocks(model), names["gradients"], strict=True):
        torch.testing.assert_close(gradient, block.mlp.down_proj.weight.grad)
    assert names["gradient_scores"]["param first"].shape == LLMPruner().score(Evidence(model, ids, False)).neurons.shape


def pruned_by_both(model, ids, batches, n_kept, capsys):
    """The notebook's student and printed text, and the library's model with the same shape before training."""
    names = notebook_names(model, ids)
    functions = (REFERENCES[f"minitron.{name}"] for name in ("aggregate", "group", "distil"))
    student = names[METHOD](model, ids, batches, n_kept, *functions)
    scores = Minitron().score(Evidence(model, ids, progress=False)).neurons
    library = cut(model, replace(shape_of(model), neurons=n_kept), Scores(neurons=scores))
    return student, library, capsys.readouterr().out


def test_without_steps_the_method_prunes_like_the_library(ids, capsys):
    model = tiny_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    student, library, text = pruned_by_both(model, ids, [], 5, capsys)
    assert shape_of(student) == shape_of(library)
    for (name, ours), theirs in zip(student.state_dict().items(), library.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
    assert float(text.split()[5]) < 1e-4, "pruning equals zeroing"
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert has_no_hooks(model)


def test_the_steps_are_those_of_the_library(ids, capsys, generator):
    """The first divergence equals the first loss of the library, and training lowers it on the same batch."""
    model = tiny_model()
    batch = torch.randint(3, 90, (2, 8), generator=generator)
    student, library, text = pruned_by_both(model, ids, [batch, batch, batch], 5, capsys)
    divergences = [float(part.split()[0]) for part in text.split("KL ")[1:]]
    losses = first_losses(model, library, batch)
    assert divergences[0] == pytest.approx(losses[0], abs=0.006)
    assert divergences[2] <= divergences[0]
    assert not torch.equal(student(ids).logits, library(ids).logits)


def first_losses(model, library, batch):
    settings = Recipe()
    settings = replace(settings, schedule=replace(settings.schedule, n_steps=1, batch=len(batch)))
    return distil(library, model, batch, settings, progress=False)


def test_a_wrong_mask_is_seen_by_the_check(ids, capsys, monkeypatch):
    """An answer that keeps the wrong columns of the down projection does not equal zeroing."""
    right = REFERENCES["minitron.group"]

    def wrong(*arguments):
        matrices = right(*arguments)
        return matrices | {"down": matrices["down"].flip(1)}

    monkeypatch.setitem(REFERENCES, "minitron.group", wrong)
    *_, text = pruned_by_both(tiny_model(), ids, [], 5, capsys)
    assert float(text.split()[5]) > 1e-3


@pytest.mark.real
def test_the_method_prunes_the_real_model_like_the_library(capsys):
    model, tokenizer = load_model(device="cpu")
    ids = windows("wikipedia", 2, 64, tokenizer, split="calibration", seed=0)
    student, library, text = pruned_by_both(model, ids, [], 1126, capsys)
    ours, theirs = student.state_dict(), library.state_dict()
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())
    assert float(text.split()[5]) < 1e-2


def test_the_method_is_short_and_the_notebook_imports_little():
    (method,) = [node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name == METHOD]
    assert 20 <= method.end_lineno - method.lineno + 1 <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
