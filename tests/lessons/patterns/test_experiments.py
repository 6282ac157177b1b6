"""The lesson's measurements: by hand on small numbers, restoring what they change, rounds with a known winner."""

import math
import time

import pytest
import torch

from course_lib.lessons.patterns.experiments.patterns import mask_bits, pruned_by_magnitude, six_patterns, squares_kept
from course_lib.lessons.patterns.plots import dynamic_and_static, fractions_by_count, keep_largest
from course_lib.measure.roofline import A100, Device
from course_lib.models import blocks, linears, tiny_model, weight_of
from course_lib.sparsity.patterns import Block, Columns, NofM, Rows, Unstructured, sparsity_of
from course_lib.sparsity.speed import rounds, speed_limits


def test_squares_kept_by_hand():
    weight = torch.tensor([[3.0, -4.0, 0.0, 0.0], [1.0, 1.0, 5.0, 1.0]])
    assert squares_kept(weight, Unstructured(0.5)) == pytest.approx((25 + 26) / 53)
    assert squares_kept(weight, NofM(1, 4)) == pytest.approx((16 + 25) / 53)


def test_the_freer_pattern_keeps_more():
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    kept = [squares_kept(weight, pattern) for pattern in six_patterns(0.5).values()]
    assert kept[:4] == sorted(kept[:4], reverse=True)
    assert min(kept) > 0.5


@pytest.mark.parametrize("sparsity", [0.25, 0.5, 0.75])
def test_six_patterns_have_the_same_sparsity(sparsity, generator):
    score = torch.rand(64, 128, generator=generator)
    for name, pattern in six_patterns(sparsity).items():
        assert sparsity_of(pattern.keep(score)) == sparsity, name


def test_six_patterns_refuse_a_sparsity_that_n_of_4_cannot_have():
    with pytest.raises(ValueError, match=r"sparsity=0.3.*0.25, 0.5 or 0.75"):
        six_patterns(0.3)


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


def test_a_pattern_that_does_not_fit_leaves_the_model_unchanged():
    model = tiny_model()
    before = [weight.clone() for weight in all_weights(model)]
    with pytest.raises(ValueError, match="does not divide"), pruned_by_magnitude(model, Block(16, 16, 0.5)):
        pass  # 100 neurons do not divide into blocks of 16; the first matrices, 48 wide, do
    assert all(torch.equal(weight, dense) for weight, dense in zip(all_weights(model), before, strict=True))


def test_freedom_is_counted_by_hand():
    """Six choices in four weights; C(8, 4) = 70 of eight; C(4, 2) = 6 of four tiles, columns or rows of 16 weights."""
    assert mask_bits(NofM(2, 4), 4, 8) == pytest.approx(math.log2(6) / 4)
    assert mask_bits(Unstructured(0.5), 4, 8) == pytest.approx(math.log2(70) / 8)
    for pattern in (Block(2, 2, 0.5), Columns(0.5), Rows(0.5)):
        assert mask_bits(pattern, 4, 4) == pytest.approx(math.log2(6) / 16)
    with pytest.raises(ValueError, match="expected one of six_patterns"):
        mask_bits(Unstructured(0.5, per="layer"), 4, 4)


def test_groups_are_counted_by_hand():
    keep = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 0, 1, 0]]).bool()
    assert fractions_by_count(keep).tolist() == [0.25, 0, 0.5, 0.25, 0]


def test_dynamic_and_static_choices_by_hand():
    inputs = torch.tensor([[1.0, -3.0, 2.0], [4.0, 1.0, -5.0]])
    assert keep_largest(inputs, 1).tolist() == [[False, True, False], [False, False, True]]
    weight = torch.tensor([[1.0, 2.0, 3.0]])
    # Outputs 1 - 6 + 6 = 1 and 4 + 2 - 15 = -9. Of two inputs for each token -6 + 6 = 0 and 4 - 15 = -11. Averages are
    # 2.5, 2 and 3.5, so inputs 0 and 2 are kept once for all: 1 + 6 = 7 and 4 - 15 = -11.
    errors = dynamic_and_static(weight, inputs, (2 / 3,))
    assert errors["chosen for each token"][2 / 3] == pytest.approx((1 / 1 + 4 / 81) / 2)
    assert errors["chosen once for all"][2 / 3] == pytest.approx((36 / 1 + 4 / 81) / 2)


def test_errors_fall_as_more_is_kept_and_faster_for_each_token(generator):
    weight, inputs = torch.randn(8, 40, generator=generator), torch.randn(20, 40, generator=generator)
    dynamic, static = dynamic_and_static(weight, inputs, (0.25, 0.5, 0.75)).values()
    for points in (dynamic, static):
        assert list(points.values()) == sorted(points.values(), reverse=True)
    assert all(dynamic[share] < static[share] for share in dynamic)


def test_rounds_time_all_in_turns():
    times = rounds({"slow": lambda: time.sleep(0.02), "quick": lambda: None}, seconds=0.01)
    assert len(times["slow"]) == len(times["quick"]) >= 5
    assert min(times["quick"]) < 0.02 <= min(times["slow"])


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
