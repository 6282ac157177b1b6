"""The model of bytes with ReLU neurons: its sizes by hand, its training in pieces, its experiment."""

import json
from dataclasses import replace

import pytest
import torch

from course_lib.attention.small_models import byte_model
from course_lib.attention.small_models.byte_model import byte_losses, byte_windows, load_half, save_half
from course_lib.attention.small_models.training import Schedule, running, train
from course_lib.contextual.small_models.relu_model import (
    NAME,
    WEIGHTS,
    active_shares,
    load_relu_model,
    relu_configuration,
    untrained_relu_model,
)
from course_lib.contextual.small_models.training import Piece, train_piece
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.dejavu.experiments import relu_model as experiment
from course_lib.measure.result_files import plain
from course_lib.models import architecture, blocks

TEXT = "one two three, two three one. " * 40
TOKENS = running([TEXT] * 3)
SMALL = (16, 2, 2, 24)
SCHEDULE = Schedule(n_steps=6, batch=2, length=20, rate=1e-2, warm_up=2, decay=0.1)


def small(seed=0):
    return untrained_relu_model(relu_configuration(*SMALL), seed)


def test_parameters_by_hand():
    # bytes and 2 + 128 positions of 256 (OPT leaves the first two rows out); a block: 4 · (256² + 256) attention,
    # 4096 · 256 + 4096 into the neurons, as much and 256 out of them, two norms of 512; the last norm; a tied head
    block = 4 * (256**2 + 256) + 2 * 4096 * 256 + 4096 + 256 + 2 * 512
    model = untrained_relu_model(relu_configuration(), seed=0)
    assert sum(weight.numel() for weight in model.parameters()) == (256 + 130) * 256 + 4 * block + 512 == 9_562_112
    assert 4 * 2 * 4096 * 256 / 9_562_112 > 7 / 8
    assert relu_configuration().ffn_dim == 16 * relu_configuration().hidden_size
    assert (model.config.dropout, model.config.eos_token_id) == (0.0, None)


def test_first_weights_follow_the_seed_and_have_the_deviation_that_their_inputs_ask_for():
    one, same, other = (untrained_relu_model(relu_configuration(), seed) for seed in (0, 0, 1))
    for name in ("fc1", "fc2"):
        weight, again, others = (blocks(model)[0].get_submodule(name).weight for model in (one, same, other))
        assert torch.equal(weight, again)
        assert not torch.equal(weight, others)
        # a standard deviation of a million draws is right within 0.1 %: five standard errors
        assert weight.std().item() * weight.shape[1] ** 0.5 == pytest.approx(1, abs=5e-3)


def test_a_training_in_pieces_is_the_training_in_one_go(tmp_path):
    expected, whole = [], small().train()
    train(whole, TOKENS, SCHEDULE, 3, lambda step, loss: expected.append((step, loss)), byte_losses)
    found = []
    for start, stop in ((0, 2), (2, 5), (5, 6)):
        model = small()
        piece = Piece(start, stop, tmp_path / "state")
        train_piece(model, TOKENS, SCHEDULE, 3, piece, lambda step, loss: found.append((step, loss)))
    assert found == expected  # to the last bit
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))


def test_a_piece_that_was_killed_is_done_again_and_one_without_a_state_is_made_up_for(tmp_path):
    losses = {"whole": [], "killed": [], "alone": []}

    def look(name):
        return lambda step, loss: losses[name].append(loss)

    train_piece(small(), TOKENS, SCHEDULE, 0, Piece(0, 6, tmp_path / "a"), look("whole"))
    train_piece(small(), TOKENS, SCHEDULE, 0, Piece(0, 3, tmp_path / "b"), look("killed"))
    with pytest.raises(KeyboardInterrupt):
        train_piece(small(), TOKENS, SCHEDULE, 0, Piece(3, 6, tmp_path / "b"), _stop(4))
    train_piece(small(), TOKENS, SCHEDULE, 0, Piece(3, 6, tmp_path / "b"), look("killed"))
    assert losses["killed"] == losses["whole"]
    train_piece(small(), TOKENS, SCHEDULE, 0, Piece(3, 6, tmp_path / "c"), look("alone"))
    assert losses["alone"] == losses["whole"][3:]  # the first three were done, and not looked at


def _stop(last):
    def look(step, loss):
        if step == last:
            raise KeyboardInterrupt

    return look


def test_a_state_of_another_training_is_refused(tmp_path):
    train_piece(small(), TOKENS, SCHEDULE, 0, Piece(0, 2, tmp_path / "state"))
    with pytest.raises(ValueError, match="another run"):
        train_piece(small(), TOKENS, SCHEDULE, 1, Piece(2, 4, tmp_path / "state"))
    (tmp_path / "state").write_bytes(b"half a file")
    with pytest.raises(ValueError, match="cannot be read"):
        train_piece(small(), TOKENS, SCHEDULE, 0, Piece(2, 4, tmp_path / "state"))


def test_a_loss_that_is_no_number_stops_the_training_and_leaves_the_last_good_state(tmp_path):
    path = tmp_path / "state"
    train_piece(small(), TOKENS, SCHEDULE, 0, Piece(0, 2, path))
    before = path.read_bytes()
    far = replace(SCHEDULE, rate=1e30)
    with pytest.raises(ValueError, match="lower rate"):
        train_piece(small(), TOKENS, far, 0, Piece(0, 6, path))
    assert path.read_bytes() == before


def test_active_shares_by_hand():
    model = small().eval()
    with torch.no_grad():
        for block, n_open in zip(blocks(model), (10, 3), strict=True):
            bias = block.get_submodule(architecture(block).mlp[0]).bias
            bias.fill_(-100.0)
            bias[:n_open] = 100.0
    shares = active_shares(model, TOKENS[:60].view(3, 20))
    torch.testing.assert_close(shares, torch.tensor([10 / 24, 3 / 24]))


def test_the_kept_file_comes_back_and_reads_a_window(tmp_path, monkeypatch):
    monkeypatch.setattr(byte_model, "DOCUMENTS", {"wikipedia": lambda split: [TEXT.upper()]})
    monkeypatch.setattr(byte_model, "training_texts", lambda: [TEXT] * 3)
    with pytest.raises(ValueError, match="course reproduce relu_model"):
        load_half(tmp_path, NAME)
    model = small().eval()
    save_half(model, tmp_path, NAME)
    kept, held_out, read = load_relu_model(2, 3, folder=tmp_path)
    assert (held_out.shape, read.shape) == ((2, 128), (3, 128))
    with torch.no_grad():
        # weights lose at most 2⁻¹¹ of themselves, and losses are about 5.5
        torch.testing.assert_close(byte_losses(kept, held_out), byte_losses(model, held_out), rtol=1e-3, atol=5e-3)


def test_the_experiment_on_tiny_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(byte_model, "DOCUMENTS", {"wikipedia": lambda split: [TEXT.upper()]})
    monkeypatch.setattr(experiment, "training_texts", lambda: [TEXT] * 3)
    monkeypatch.setattr(experiment, "QUICK_RESULTS", tmp_path)
    tables, sizes = {}, experiment.QUICK
    for step in experiment.steps(sizes):
        for name, rows in step.run(0).items():
            tables.setdefault(name, []).extend(rows)
    tables = json.loads(json.dumps(plain(tables)))
    assert [row["step"] for row in tables["training"]] == [2, 4]
    assert [(row["step"], row["block"]) for row in tables["active"]] == [(1, 0), (1, 1), (4, 0), (4, 1)]
    assert all(0.2 < row["share"] < 0.8 for row in tables["active"])  # of first weights, about half
    assert [row["step"] for row in tables["held_out"]] == [2, 4]
    (kept,) = tables["models"]
    assert kept["loss"] == pytest.approx(tables["held_out"][-1]["loss"], abs=5e-3)  # half precision
    model = load_half(tmp_path / NAME, NAME)
    with torch.no_grad():
        assert byte_losses(model, byte_windows(2)).double().mean().item() == pytest.approx(kept["loss"], abs=1e-5)
    assert not list(tmp_path.glob("*.state"))


@pytest.mark.real
def test_committed_weights_are_those_that_were_measured():
    """Weights are the same bits; the sums of another processor move the loss in the sixth digit."""
    tables = load_measured("dejavu", "experiments/relu_model")["tables"]
    (row,) = tables["models"]
    assert (WEIGHTS / f"{NAME}.safetensors").stat().st_size < 20e6
    model, held_out, training = load_relu_model(n_training=5)
    assert (held_out.shape, training.shape) == ((48, 128), (5, 128))
    assert sum(weight.numel() for weight in model.parameters()) == row["parameters"]
    with torch.no_grad():
        losses = byte_losses(model, held_out[:8]).mean(dim=1)
    assert losses.tolist() == pytest.approx(row["losses"][:8], abs=2e-4)  # rounded to 1e-5
    shares = {row["block"]: row["share"] for row in tables["active"] if row["step"] == 600}
    found = active_shares(model, held_out[:8]).tolist()
    assert found == pytest.approx([shares[block] for block in range(4)], abs=0.02)  # 8 of 48 windows
