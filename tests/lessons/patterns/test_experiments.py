"""The lesson's measurements: by hand on small numbers, restoring what they change, races with a known winner."""

import math
import time

import pytest
import torch

from course_lib.lessons.patterns.measure import (
    bits_of_freedom,
    dynamic_and_static,
    inputs_of,
    keep_active_on_average,
    keep_most_active,
    one_of_each,
    output_error,
    pruned_by_magnitude,
    square_kept,
    stored_in_each_group,
)
from course_lib.measure.roofline import A100, Device
from course_lib.models import blocks, linears, tiny_model, weight_of
from course_lib.sparsity.patterns import Block, Columns, NofM, Rows, Unstructured, sparsity_of
from course_lib.sparsity.speed import layer_speed, race, speed_by_round, speed_limits


def test_squares_kept_by_hand():
    weight = torch.tensor([[3.0, -4.0, 0.0, 0.0], [1.0, 1.0, 5.0, 1.0]])
    assert square_kept(weight, Unstructured(0.5)) == pytest.approx((25 + 26) / 53)
    assert square_kept(weight, NofM(1, 4)) == pytest.approx((16 + 25) / 53)


def test_the_freer_pattern_keeps_more():
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    kept = [square_kept(weight, pattern) for pattern in one_of_each(0.5).values()]
    assert kept[:4] == sorted(kept[:4], reverse=True)
    assert min(kept) > 0.5


@pytest.mark.parametrize("sparsity", [0.25, 0.5, 0.75])
def test_one_of_each_has_the_same_sparsity(sparsity, generator):
    score = torch.rand(64, 128, generator=generator)
    for name, pattern in one_of_each(sparsity).items():
        assert sparsity_of(pattern.keep(score)) == sparsity, name


def test_one_of_each_refuses_what_n_of_4_cannot_be():
    with pytest.raises(ValueError, match=r"sparsity=0.3.*0.25, 0.5 or 0.75"):
        one_of_each(0.3)


def all_weights(model):
    return [weight_of(layer) for block in blocks(model) for layer in linears(block).values()]


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_pruning_is_undone_even_after_an_error(architecture):
    model = tiny_model(architecture=architecture)
    before = [weight.clone() for weight in all_weights(model)]
    inside = []

    def interrupted():
        with pruned_by_magnitude(model, Unstructured(0.5)):
            inside.extend(sparsity_of(weight) for weight in all_weights(model))
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        interrupted()
    assert set(inside) == {0.5}
    assert all(torch.equal(weight, dense) for weight, dense in zip(all_weights(model), before, strict=True))


def test_a_pattern_that_does_not_fit_leaves_the_model_whole():
    model = tiny_model()
    before = [weight.clone() for weight in all_weights(model)]
    with pytest.raises(ValueError, match="does not divide"), pruned_by_magnitude(model, Block(16, 16, 0.5)):
        pass  # 100 neurons do not divide into blocks of 16; the first matrices, 48 wide, do
    assert all(torch.equal(weight, dense) for weight, dense in zip(all_weights(model), before, strict=True))


def test_freedom_is_counted_by_hand():
    """Six choices in four weights; C(8, 4) = 70 of eight; C(4, 2) = 6 of four tiles, columns or rows of 16 weights."""
    assert bits_of_freedom(NofM(2, 4), 4, 8) == pytest.approx(math.log2(6) / 4)
    assert bits_of_freedom(Unstructured(0.5), 4, 8) == pytest.approx(math.log2(70) / 8)
    for pattern in (Block(2, 2, 0.5), Columns(0.5), Rows(0.5)):
        assert bits_of_freedom(pattern, 4, 4) == pytest.approx(math.log2(6) / 16)
    with pytest.raises(ValueError, match="expected one of the patterns"):
        bits_of_freedom(Unstructured(0.5, per="layer"), 4, 4)


def test_groups_are_counted_by_hand():
    keep = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 0, 1, 0]]).bool()
    assert stored_in_each_group(keep).tolist() == [0.25, 0, 0.5, 0.25, 0]


def test_dynamic_and_static_choices_by_hand():
    inputs = torch.tensor([[1.0, -3.0, 2.0], [4.0, 1.0, -5.0]])
    assert keep_most_active(inputs, 1).tolist() == [[False, True, False], [False, False, True]]
    assert keep_active_on_average(inputs, 1).tolist() == [[False, False, True]] * 2  # averages 2.5, 2, 3.5
    weight = torch.tensor([[1.0, 2.0, 3.0]])
    # outputs 1 - 6 + 6 = 1 and 4 + 2 - 15 = -9; of two inputs each -6 + 6 = 0 and 4 - 15 = -11
    error = output_error(weight, inputs, keep_most_active(inputs, 2))
    assert error == pytest.approx((1 / 1 + 4 / 81) / 2)


def test_errors_fall_as_more_is_kept_and_faster_for_each_token(generator):
    weight, inputs = torch.randn(8, 40, generator=generator), torch.randn(20, 40, generator=generator)
    dynamic, static = dynamic_and_static(weight, inputs, (0.25, 0.5, 0.75)).values()
    for points in (dynamic, static):
        assert list(points.values()) == sorted(points.values(), reverse=True)
    assert all(dynamic[share] < static[share] for share in dynamic)


def test_inputs_of_a_layer_are_those_the_layer_sees():
    model, tokens = tiny_model(), torch.arange(2 * 9).reshape(2, 9)
    layer = linears(blocks(model)[1])["mlp.down_proj"]
    outputs = []
    hook = layer.register_forward_hook(lambda module, arguments, output: outputs.append(output))
    seen = inputs_of(model, layer, tokens)
    hook.remove()
    torch.testing.assert_close(seen @ layer.weight.T, outputs[0][:, 1:].flatten(0, 1))
    assert not layer._forward_pre_hooks


def test_a_race_gives_the_shortest_time_of_each():
    best = race({"slow": lambda: time.sleep(0.02), "quick": lambda: None}, seconds=0.01)
    assert best["quick"] < 0.02 <= best["slow"]


def test_layer_speed_reports_every_format_and_density():
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    faster = layer_speed(weight, [0.25, 0.5], tokens=(1, 3), seconds=0.01)
    assert list(faster) == [1, 3]
    for formats in faster.values():
        assert set(formats) == {"CSR", "blocks of 16", "columns", "promised"}
        assert all(set(points) == {0.25, 0.5} and min(points.values()) > 0 for points in formats.values())
    # 96 * 64 values of 4 bytes over 8 bytes for each of a quarter and 4 for each of 65 row starts
    assert faster[1]["promised"][0.25] == pytest.approx(24576 / (1536 * 8 + 65 * 4))


def test_limits_of_half_the_weights_by_hand():
    # so slow in arithmetic, or so slow in memory, that one of the two alone decides
    compute, memory = Device("compute", 1.0, 1e12, "made up"), Device("memory", 1e12, 1.0, "made up")
    rows, columns, n = 64, 128, 4
    in_and_out = n * (rows + columns) * 2
    dense = rows * columns * 2 + in_and_out
    assert speed_limits(rows, columns, n, compute) == {"half of the columns": 2, "2:4": 2, "bitmap": 1, "CSR": 1}
    limits = speed_limits(rows, columns, n, memory)
    assert limits["2:4"] == pytest.approx(dense / (in_and_out + rows * (64 * 2 + 16)))
    assert limits["bitmap"] == pytest.approx(dense / (in_and_out + 4096 * 2 + rows * 16 + 65 * 4))
    assert limits["CSR"] < 1
    assert limits["half of the columns"] == pytest.approx(dense / (64 * rows * 2 + n * (rows + 64) * 2))


def test_two_of_four_can_save_arithmetic_and_scattered_zeros_cannot():
    limits = speed_limits(4096, 4096, 8192, A100)
    assert limits["2:4"] == pytest.approx(2.0)
    assert limits["bitmap"] == pytest.approx(1.0)


def test_rounds_compare_formats_with_dense_in_pairs():
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    by_round = speed_by_round(weight, 0.5, n_tokens=3, seconds=0.01)
    assert set(by_round) == {"CSR", "columns"}
    assert len(by_round["CSR"]) == len(by_round["columns"]) >= 5
    assert all(logs.isfinite().all() for logs in by_round.values())
