"""Chosen neurons alone: by hand, against the masked dense MLP, no neuron to all of them, poison, refusals."""

import pytest
import torch
from course_lib.kernels.per_token import gathered_mlp
from course_lib.kernels.per_token.gathered_mlp import bytes_moved, example
from kernel_device import COMPILED, on_device
from torch.nn.functional import relu, silu

launch = on_device(gathered_mlp.launch)
SIGMOID_2 = torch.sigmoid(torch.tensor(2.0)).item()


def choice(*indices):
    return torch.tensor(indices, dtype=torch.int32)


def test_two_of_three_neurons_by_hand():
    """Gates 2, 5, 2 and ups 3, 7, 1: h = silu(2) · 3 and silu(2) · 1, back along (1, 0) and (1, 1)."""
    inputs, gate = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 0.0], [1.0, 2.0], [0.0, 1.0]])
    up, down = torch.tensor([[1.0, 1.0], [5.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [9.0, 9.0], [1.0, 1.0]])
    silu_2 = 2 * SIGMOID_2
    expected = torch.tensor([[4 * silu_2, silu_2]])
    torch.testing.assert_close(launch(inputs, gate, up, down, choice(2, 0)), expected)


def test_a_plain_relu_mlp_with_a_bias_by_hand():
    """3 − 1 = 2 counts, 2 − 5 is cut off, and neuron 2 was not chosen."""
    inputs, up = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 0.0], [100.0, 0.0]])
    down, bias = torch.tensor([[1.0, -3.0], [1.0, 1.0], [1.0, 1.0]]), torch.tensor([-1.0, -5.0, 0.0])
    got = launch(inputs, None, up, down, choice(0, 1), "relu", bias)
    assert got.tolist() == [[2.0, -6.0]]


@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("n_chosen", [0, 1, 19, 51])
@pytest.mark.parametrize(("gated", "activation"), [(True, "silu"), (True, "relu"), (False, "relu"), (False, "silu")])
def test_it_is_the_dense_mlp_with_the_other_neurons_at_zero(n_tokens, n_chosen, gated, activation, generator):
    given = example(generator, torch.float32, "cpu", (n_tokens, 40, 51), n_chosen, gated, True, activation)
    inputs, gate, up, down, chosen, _, bias = given
    curve, keep = {"silu": silu, "relu": relu}[activation], torch.zeros(51)
    keep[chosen.long()] = 1
    hidden = inputs @ up.T + bias
    hidden = curve(hidden) if gate is None else curve(inputs @ gate.T) * hidden
    got = launch(*given)
    torch.testing.assert_close(got, (hidden * keep) @ down, rtol=1e-4, atol=1e-5)  # sums in another order


def test_the_order_of_the_neurons_is_free_up_to_rounding(generator):
    given = list(example(generator, torch.float32, "cpu", (1, 70, 90), 45))
    expected = launch(*given)
    given[4] = given[4].sort().values
    torch.testing.assert_close(launch(*given), expected, rtol=1e-4, atol=1e-6)  # sums in another order


@pytest.mark.parametrize("n_tokens", [1, 3])
def test_nothing_is_read_of_the_other_neurons(n_tokens, generator):
    given = example(generator, torch.float32, "cpu", (n_tokens, 40, 30), 7, biased=True)
    expected = launch(*given)
    _, gate, up, down, chosen, _, bias = given
    others = torch.ones(30, dtype=torch.bool)
    others[chosen.long()] = False
    for tensor in (gate, up, down, bias):
        tensor[others] = torch.nan
    assert torch.equal(launch(*given), expected)


@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_infinite_inputs_are_seen_and_stay_with_their_token(n_tokens, number, generator):
    """Rows beyond the last neuron of a tile hold 0, and 0 · ∞ would be NaN: 21 neurons fill no tile."""
    given = example(generator, torch.float32, "cpu", (n_tokens, 24, 30), 21, False, activation="relu")
    expected = launch(*given)
    given[2][:, 3] = given[2][:, 3].abs() + 0.1  # so that +∞ makes +∞ of every neuron
    given[3].abs_().add_(0.1)
    expected[1:] = launch(*given)[1:]
    given[0][0, 3] = number
    got = launch(*given)
    assert got[0].isnan().all() if number != number else (got[0] == number).all()
    assert torch.equal(got[1:], expected[1:])


def test_the_same_every_time(generator):
    """Nothing is added in the order of arrival."""
    given = example(generator, torch.float32, "cpu", (1, 200, 400), 301)
    assert torch.equal(launch(*given), launch(*given))


def test_no_tokens(generator):
    _, *others = example(generator, torch.float32, "cpu", (1, 24, 9), 5)
    assert launch(torch.empty(0, 24), *others).shape == (0, 24)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({0: torch.ones(24)}, r"inputs have shape \(24,\), .*: expected \(tokens, width\).*; one choice is for all"),
        ({0: torch.ones(17, 24)}, "got 17 tokens: expected at most 16; call reference"),
        ({1: torch.ones(8, 24)}, r"gate has shape \(8, 24\): expected \(9, 24\)"),
        ({3: torch.ones(24, 9)}, r"down has shape \(24, 9\): expected \(9, 24\)"),
        ({3: torch.ones(24, 9).T}, r"down has strides .*: expected a contiguous tensor"),
        ({4: torch.zeros(9, dtype=torch.bool)}, r"chosen is torch.bool: expected int32; convert"),
        ({4: choice(0, 9)}, r"chosen goes from 0 to 9: expected 0 to 8, indices of neurons; check which layer"),
        ({4: choice(-1, 3)}, r"chosen goes from -1 to 3: expected 0 to 8"),
        ({5: "gelu"}, "activation='gelu': expected one of silu, relu"),
    ],
    ids=["axes", "many tokens", "gate", "as usual", "a view", "mask", "too high", "too low", "activation"],
)
def test_what_does_not_fit_is_refused(spoil, message, generator):
    given = dict(enumerate(example(generator, torch.float32, "cpu", (2, 24, 9), 5)))
    with pytest.raises(ValueError, match=message):
        gathered_mlp.launch(*(given | spoil).values())  # on the CPU: a GPU is not waited for


def test_bytes_by_hand(generator):
    """5 neurons of 3 × 24 numbers of 2 bytes and an index of 4; 2 tokens of 24 read and written. Without a gate two
    thirds of the rows, and a bias of 2 bytes to each neuron.
    """
    given = example(generator, torch.float16, "cpu", (2, 24, 9), 5)
    assert bytes_moved(*given) == 5 * (3 * 24 * 2 + 4) + 2 * 2 * 24 * 2
    given = example(generator, torch.float16, "cpu", (2, 24, 9), 5, False, True)
    assert bytes_moved(*given) == 5 * (2 * 24 * 2 + 2 + 4) + 2 * 2 * 24 * 2


def test_bytes_fall_with_the_neurons(generator):
    """At a tenth of the neurons of the default model, a tenth of the bytes and a percent for the token itself."""
    inputs, gate, up, down, chosen, *_ = example(generator, torch.float32, "cpu", (1, 576, 1536), 1536)
    dense, sparse = (bytes_moved(inputs, gate, up, down, some) for some in (chosen, chosen[:154]))
    assert 0.1 < sparse / dense < 0.102


@pytest.mark.skipif(not COMPILED, reason="in the interpreter, no load runs ahead")
@pytest.mark.parametrize(("n_tokens", "n_neurons"), [(1, 128 * 264), (8, 2048 * 8)])
def test_loads_that_run_ahead_of_the_last_neuron_stay_inside(n_tokens, n_neurons, generator):
    """Parts that fill the tile of their indices: what runs ahead asks for indices behind it."""
    arguments = example(generator, torch.float32, "cpu", (n_tokens, 128, n_neurons), n_neurons)
    expected = gathered_mlp.reference(*arguments)
    torch.testing.assert_close(launch(*arguments), expected, atol=1e-3, rtol=1e-4)  # sums of thousands of terms
