"""Timings are set beside the work they stand for, and hooks leave no trace."""

from types import SimpleNamespace

import pytest
import torch

from course_lib.measure import timing
from course_lib.measure.roofline import Device, Transformer, Work
from course_lib.models import blocks, tiny_model


@pytest.fixture
def model():
    return tiny_model()


def n_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_a_timing_by_hand():
    device = Device("by hand", 100.0, 10.0, "made up")
    slow = timing.Timing("decode", 1, Work(flops=50, bytes=40), seconds=8.0)
    assert slow.flops_per_second == 6.25
    assert slow.of_roofline(device) == 0.5  # memory needs 4 s


def test_decoding_and_prefill_stand_for_their_work(model, monkeypatch):
    sizes = Transformer.of(model)
    monkeypatch.setattr(timing, "decode_times", lambda model, context, batch: [0.75, 0.25, 0.5])
    monkeypatch.setattr(timing, "prefill_seconds", lambda model, n, repeats: 0.25)
    one, three = timing.time_decoding(model, (1, 3))
    assert (one.kind, three.n_tokens, one.seconds) == ("decode", 3, 0.5)  # the median
    assert one.steps == (0.75, 0.25, 0.5)
    assert three.work == sizes.decode_step(timing.CONTEXT, 3, 4)
    (long,) = timing.time_prefill(model, (20,))
    assert (long.kind, long.n_tokens, long.seconds) == ("prefill", 20, 0.25)
    assert long.work == sizes.prefill(20, 1, 4)
    assert timing.value_bytes(model.double()) == 8


def test_the_parts_hold_every_matrix_once(model):
    parts = timing.matrices(model)
    modules = [id(m) for group in parts.values() for m in group]
    assert len(modules) == len(set(modules)) == 2 * 7 + 1
    assert [len(group) for group in parts.values()] == [8, 6, 1]
    sizes = Transformer.of(model)
    assert sum(timing.part_bytes(model).values()) == 4 * sizes.matrix_weights
    assert timing.part_bytes(model)["MLP matrices"] == 4 * 2 * 3 * 48 * 100


def test_the_stopwatch_adds_up_each_part_once(model, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    block = blocks(model)[0]
    gate, query = block.mlp.gate_proj, block.self_attn.q_proj
    x = torch.zeros(1, 48)
    with timing.stopwatch({"mlp": [gate], "attention": [query], "unused": []}) as seconds:
        gate(x)
        gate(x)
        query(x)
    assert seconds == {"mlp": 2.0, "attention": 1.0, "unused": 0.0}
    assert n_hooks(model) == 0


def test_the_hooks_are_gone_after_an_error(model):
    def fail():
        with timing.stopwatch(timing.matrices(model)):
            assert n_hooks(model) == 2 * 15
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert n_hooks(model) == 0


def test_the_seconds_of_a_step_add_up(model):
    seconds = timing.part_seconds(model, steps=3)
    assert set(seconds) == {"attention matrices", "MLP matrices", "LM head", "everything else"}
    assert all(value > 0 for value in seconds.values())
    assert n_hooks(model) == 0
