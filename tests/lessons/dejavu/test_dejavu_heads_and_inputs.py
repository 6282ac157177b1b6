"""Claims about heads, slow change and thresholds, on a thin model and an untrained one of bytes."""

from dataclasses import replace

import pytest
import thin_model
import torch

from course_lib.attention.small_models.byte_model import ByteModel
from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.heads import contextual_heads
from course_lib.contextual.inputs.teal import teal as sparse_inputs
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.small_models.relu_model import relu_configuration, untrained_relu_model
from course_lib.lessons.dejavu.experiments import ground, heads, oracle, teal
from course_lib.lessons.dejavu.experiments.ground import GATED, QUICK, RELU, loss_row, subject
from course_lib.models import blocks, tiny_model

N_BLOCKS = 4
CLOSE = 1e-4  # losses are rounded to 1e-5, and batches of other sizes sum in another order


def bytes_model(n_held_out, n_training):
    """Untrained, of four blocks, four heads and 48 neurons, and made-up bytes."""
    model = untrained_relu_model(relu_configuration(16, 4, 4, 48), seed=0).eval()
    ids = torch.randint(256, (n_held_out + n_training, 128), generator=torch.Generator().manual_seed(0))
    return ByteModel(model, ids[:n_held_out], ids[n_held_out:])


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """The sizes of a quick run, of a thin model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ground, "load_relu_model", bytes_model)
        folder = thin_model.write_thin_model(tmp_path_factory.mktemp("thin"), N_BLOCKS)
        ground.forget()
        yield replace(QUICK, model=str(folder))
    ground.forget()


def dense_losses(sizes, name):
    return loss_row(subject(sizes, name, 0))["losses"]


@pytest.mark.real
@pytest.mark.parametrize("chosen_by", heads.CHOICES)
@pytest.mark.parametrize("name", [GATED, RELU])
def test_heads(sizes, name, chosen_by):
    of = heads.heads(subject(sizes, name, 0).model).n_query
    (whole,) = heads.kept(sizes, name, of, chosen_by, 0)["heads"]
    assert whole["losses"] == pytest.approx(dense_losses(sizes, name), abs=CLOSE)
    assert (whole["kept"], whole["of"], whole["groups"]) == (of, of, 1.0)
    (row,) = heads.kept(sizes, name, 1, chosen_by, 0)["heads"]
    assert row["losses"] != whole["losses"]
    assert (row["model"], row["chosen_by"], row["kept"]) == (name, chosen_by, 1)
    # One head keeps one group: one of three in the default model; in the other each head has keys of its own.
    assert row["groups"] == pytest.approx(1 / 3 if name == GATED else 1 / 4, abs=1e-4)


@pytest.mark.real
@pytest.mark.parametrize("name", [GATED, RELU])
def test_heads_and_neurons_together(sizes, name):
    of = heads.heads(subject(sizes, name, 0).model).n_query
    (whole,) = heads.together(sizes, name, of, 1.0, 0)["together"]
    assert whole["losses"] == pytest.approx(dense_losses(sizes, name), abs=CLOSE)
    assert whole["left"] == 1.0
    (row,) = heads.together(sizes, name, 1, 0.5, 0)["together"]
    assert row["losses"] != whole["losses"]
    assert row["left"] < 0.5
    assert (row["kept"], row["of"], row["density"]) == (1, of, 0.5)


def test_weights_read_by_hand():
    """Width 48, six heads of 8 in two groups, 100 neurons. Q and O have 48 · 48 weights, K and V 16 · 48, and gate, up
    and down 100 · 48 each. Of them 3/6, the groups that are read and 50/100 are left.
    """
    model = tiny_model()
    first_three = torch.tensor([3.0, 2.0, 1.0, 0.0, 0.0, 0.0])

    def score(seen, block):
        return first_three.expand(len(seen.x), -1)

    with contextual(model, Oracle(), 0.5) as neurons, contextual_heads(model, score, keep=3) as those:
        model(torch.arange(10)[None])
    read = 2 * 48 * 48 * 3 / 6 + 2 * 16 * 48 * 1 / 2 + 3 * 100 * 48 / 2  # heads 0 to 2 are the first group
    whole = 2 * 48 * 48 + 2 * 16 * 48 + 3 * 100 * 48
    assert heads.weights_read(model, those, neurons) == pytest.approx(read / whole)


@pytest.mark.real
@pytest.mark.parametrize("name", [GATED, RELU])
def test_slow_change(sizes, name):
    rows = oracle.change(sizes, name, 0)["slow_change"]
    assert [row["block"] for row in rows] == list(range(len(blocks(subject(sizes, name, 0).model))))
    assert all(-1 <= row["cosine"] <= 1 and row["size_ratio_attention"] > 0 < row["size_ratio_mlp"] for row in rows)


@pytest.mark.real
@pytest.mark.parametrize("name", [GATED, RELU])
@pytest.mark.parametrize("way", oracle.WAYS)
def test_every_way_changes_the_model_and_leaves_it_as_it_was(sizes, name, way):
    (row,) = oracle.changed(sizes, name, way, 0)["depth"]
    expected = dense_losses(sizes, name)
    assert (row["model"], row["way"]) == (name, way)
    assert row["losses"] != expected
    assert dense_losses(sizes, name) == expected


@pytest.mark.real
def test_the_same_loss_as_in_all_tables_and_that_of_the_second_half(sizes):
    (row,) = teal.dense(sizes, 0)["activations"]
    of = subject(sizes, GATED, 0)
    assert row["losses"] == pytest.approx(dense_losses(sizes, GATED), abs=CLOSE)
    assert row["n_tokens"] == of.evaluation[:, 1:].numel()
    # Of N − 1 predictions those count that are made by tokens of the second half.
    by_token = teal.token_losses(of, of.evaluation[0])
    assert len(by_token) == sizes.tokens.length - 1
    half = sizes.tokens.length // 2
    assert row["losses_second_half"][0] == pytest.approx(by_token[half:].mean().item(), abs=1e-5)
    assert (row["method"], row["density"], row["reached"], row["tokens"]) == ("dense", None, None, None)


@pytest.mark.real
def test_the_first_half_is_dense_as_teal_evaluates(sizes):
    of = subject(sizes, GATED, 0)
    expected = teal.token_losses(of, of.evaluation[0])
    with sparse_inputs(of.model, teal._inputs(sizes, 0), 0.5, teal.TOKENS[teal.SECOND_HALF]):
        half = teal.token_losses(of, of.evaluation[0])
    with sparse_inputs(of.model, teal._inputs(sizes, 0), 0.5):
        every = teal.token_losses(of, of.evaluation[0])
    torch.testing.assert_close(half[:6], expected[:6])
    assert not torch.equal(half[6:], expected[6:])
    assert not torch.equal(every[:6], expected[:6])


@pytest.mark.real
def test_thresholds(sizes):
    rows = [teal.cats(sizes, 0.5, 0)] + [teal.teal(sizes, 0.5, tokens, 0) for tokens in teal.TOKENS]
    rows = [row for table in rows for row in table["activations"]]
    assert [row["method"] for row in rows] == ["CATS", "TEAL", "TEAL"]
    assert [row["tokens"] for row in rows] == ["all", "all", "second half"]
    # Other text, and few words of it; half of the tokens are whole in the last.
    assert [row["reached"] for row in rows] == pytest.approx([0.5, 0.5, 0.75], abs=0.1)
    assert len({row["perplexity"] for row in rows}) == 3
    (row,) = teal.swapped(sizes, 0)["activations"]
    assert (row["method"], row["density"], row["reached"], row["tokens"]) == (teal.SWAPPED, None, None, None)
    assert row["losses"] != dense_losses(sizes, GATED)
