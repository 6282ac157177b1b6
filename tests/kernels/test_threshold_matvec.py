"""Products that leave small inputs out: by hand, ties, no input to all of them, split sums, poison, refusals."""

import pytest
import torch
from course_lib.kernels.per_token import threshold_matvec
from course_lib.kernels.per_token.threshold_matvec import bytes_moved, example
from kernel_device import COMPILED, on_device

launch = on_device(threshold_matvec.launch)


def test_three_inputs_by_hand():
    """|−2| and |3| are above 1, |½| is not: −2 · (1, 10) + 3 · (5, 0)."""
    columns = torch.tensor([[1.0, 10.0], [7.0, 7.0], [5.0, 0.0]])
    assert launch(torch.tensor([-2.0, 0.5, 3.0]), columns, 1.0).tolist() == [13.0, -20.0]


def test_an_input_at_the_threshold_counts_as_zero():
    """s_t(x) = x where |x| > t; 0.3 has no exact float32, and both sides round it alike."""
    columns = torch.eye(3)
    assert launch(torch.tensor([0.3, -0.3, 0.30001]), columns, 0.3).tolist() == [0.0, 0.0, pytest.approx(0.30001)]
    assert launch(torch.tensor([0.0, -0.0, 1e-30]), columns, 0.0).tolist() == [0.0, 0.0, pytest.approx(1e-30)]


@pytest.mark.parametrize("shape", [(1, 1), (130, 33), (64, 600), (257, 1)])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0, 9.0])
def test_it_is_the_dense_product_of_the_thresholded_input(shape, threshold, generator):
    inputs, columns, _ = example(generator, torch.float32, "cpu", shape)
    expected = columns.T @ (inputs * (inputs.abs() > threshold))
    got = launch(inputs, columns, threshold)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)  # sums in another order
    if threshold == 9.0:
        assert not got.any()


def test_columns_below_the_threshold_are_not_read(generator):
    inputs, columns, threshold = example(generator, torch.float32, "cpu", (70, 90))
    expected = launch(inputs, columns, threshold)
    columns[inputs.abs() <= threshold] = torch.nan
    assert torch.equal(launch(inputs, columns, threshold), expected)


def test_an_input_that_is_no_number_is_seen(generator):
    inputs, columns, threshold = example(generator, torch.float32, "cpu", (40, 50))
    inputs[7] = torch.nan
    assert launch(inputs, columns, threshold).isnan().all()
    assert threshold_matvec.reference(inputs, columns, threshold).isnan().all()


def test_the_same_every_time_in_half_precision_too(generator):
    """Parts are summed in float32 in one order: 300 terms of 1 + 2⁻⁶ would lose their fractions in a bfloat16 sum."""
    inputs, columns = torch.full((300,), 1 + 2.0**-6, dtype=torch.bfloat16), torch.ones(300, 40, dtype=torch.bfloat16)
    got = launch(inputs, columns, 0.5)
    assert torch.equal(got, launch(inputs, columns, 0.5))
    exact = 300 * (1 + 2.0**-6)  # 304.6875; a bfloat16 has steps of 2 here, and the interpreter truncates
    assert ((got.float() - exact).abs() <= 2).all()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({2: float("nan")}, "threshold=nan: expected a number from 0 up; 0 leaves out zeros alone"),
        ({2: -0.5}, "threshold=-0.5: expected a number from 0 up"),
        ({0: torch.ones(2, 24)}, r"inputs have shape \(2, 24\) .*: expected \(inputs,\).*; each token leaves out"),
        ({0: torch.ones(9)}, r"inputs has shape \(9,\): expected \(24,\)"),
        ({1: torch.ones(9, 24).T}, r"columns has strides .*: expected a contiguous tensor"),
    ],
    ids=["nan", "negative", "two tokens", "length", "rows"],
)
def test_what_does_not_fit_is_refused(spoil, message, generator):
    given = dict(enumerate(example(generator, torch.float32, "cpu", (9, 24))))
    with pytest.raises(ValueError, match=message):
        launch(*(given | spoil).values())


def test_bytes_by_hand():
    """2 of 3 inputs count: 2 columns of 5 numbers of 2 bytes, 3 inputs, 5 outputs."""
    inputs = torch.tensor([1.0, -0.1, -3.0], dtype=torch.float16)
    assert bytes_moved(inputs, torch.ones(3, 5, dtype=torch.float16), 0.5) == 2 * 5 * 2 + 3 * 2 + 5 * 2


@pytest.mark.parametrize(("threshold", "share"), [(0.6745, 0.5), (1.6449, 0.1)])
def test_of_normal_inputs_quantiles_leave_their_share_of_the_bytes(threshold, share, generator):
    """Half of a normal distribution lies within 0.6745, nine tenths within 1.6449."""
    inputs, columns, _ = example(generator, torch.float32, "cpu", (500, 4000))
    ratio = bytes_moved(inputs, columns, threshold) / bytes_moved(inputs, columns, 0.0)
    assert ratio == pytest.approx(share, abs=0.03)  # four standard deviations of 4000 draws, and the token itself


@pytest.mark.skipif(not COMPILED, reason="in the interpreter, no load runs ahead")
def test_loads_that_run_ahead_of_the_last_input_stay_inside(generator):
    """Every input counts, so a part fills its list: what runs ahead asks for inputs behind it."""
    arguments = example(generator, torch.float32, "cpu", (2048, 8 * threshold_matvec.ROOM), threshold=0.0)
    expected = threshold_matvec.reference(*arguments)
    torch.testing.assert_close(launch(*arguments), expected, atol=1e-3, rtol=1e-4)  # sums of thousands of terms
