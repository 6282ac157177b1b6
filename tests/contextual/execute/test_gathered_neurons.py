"""Gathered neurons are the masked dense MLP, for none, one, an odd number and all, in every way there is."""

import pytest
import torch

from course_lib.contextual.execute.break_even import SparseMLP, break_even, fastest
from course_lib.contextual.execute.gathered import by_bag, by_bundle, by_rows, by_samples, dense, gate_first
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.room import Room
from course_lib.contextual.execute.union import gathered_union, union_share
from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.models import tiny_model

WAYS = [by_rows, by_bundle, by_bag, by_samples]
# Sums of at most 100 terms of about 1 in float32, in another order than the dense product's.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(params=["llama", "opt"])
def mlp(request, generator):
    """Of the second block; OPT has no gate, but biases, which are zero at first."""
    model = tiny_model(architecture=request.param)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return neurons_of(model)[1]


def masked(x, mlp, keep):
    """All neurons, and then 0 for those that are not kept, and the output's matrix as the model has it."""
    y = (mlp.values(x) * keep) @ mlp.down.T
    return y if mlp.down_bias is None else y + mlp.down_bias


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_kept", [0, 1, 37, 100])
def test_gathered_is_masked_dense(mlp, way, n_kept, generator):
    x, order = torch.randn(1, 48, generator=generator), torch.randperm(100, generator=generator)[:n_kept]
    keep = torch.zeros(1, 100, dtype=torch.bool)
    keep[0, order] = True
    torch.testing.assert_close(way(x[0], NeuronMajor.of(mlp), order), masked(x, mlp, keep)[0], **CLOSE)


def test_rows_are_copied_into_the_same_memory_again(generator):
    """It grows, is never given back, serves other matrices and types, and what was asked for last stands in it."""
    room, wide, narrow = Room(), torch.randn(9, 6, generator=generator), torch.randn(5, 2, 3, generator=generator)
    large = room.rows(wide, torch.tensor([8, 0, 3]))
    assert torch.equal(large, wide[[8, 0, 3]])
    small = room.rows(narrow, torch.tensor([4]))
    assert torch.equal(small, narrow[[4]])
    assert small.data_ptr() == large.data_ptr()
    assert torch.equal(large[0], narrow[4].flatten())
    assert room.rows(wide, torch.tensor([], dtype=torch.long)).shape == (0, 6)
    assert torch.equal(room.rows(wide.double(), torch.tensor([1])), wide.double()[[1]])
    with torch.inference_mode():
        room.rows(wide, torch.arange(9))  # larger than before
    assert torch.equal(room.rows(wide, torch.arange(9)), wide)


def test_blocks_that_share_a_room_give_what_they_give_alone(mlp, generator):
    room = Room()
    weights, alone = [NeuronMajor.of(mlp, room) for _ in range(2)], NeuronMajor.of(mlp)
    for way in WAYS:
        for n_kept, mine in ((37, weights[0]), (50, weights[1]), (3, weights[0])):
            x, index = torch.randn(48, generator=generator), torch.randperm(100, generator=generator)[:n_kept]
            first = way(x, mine, index)
            kept = first.clone()
            way(-x, weights[1], index.flip(0))
            assert torch.equal(first, kept), "an output is no part of the room"
            torch.testing.assert_close(kept, way(x, alone, index))


def test_no_warning_is_shown_and_no_row_is_copied_by_sampling(mlp, generator, recwarn):
    weights, index = NeuronMajor.of(mlp), torch.tensor([7, 3])
    by_samples(torch.randn(48, generator=generator), weights, index)
    assert not recwarn.list
    assert weights.room._memory is None


def test_dense_is_the_model_s(mlp, generator):
    x = torch.randn(1, 48, generator=generator)
    everything = torch.ones(1, 100, dtype=torch.bool)
    torch.testing.assert_close(dense(x[0], NeuronMajor.of(mlp)), masked(x, mlp, everything)[0], **CLOSE)


@pytest.mark.parametrize("way", WAYS)
def test_by_hand_and_what_was_not_chosen_is_not_read(way):
    # relu(1·2 + 1) · (1, 0) + relu(−2) · … = (3, 0), and (0.5, 0) of the last bias; neuron 1 is no number at all
    nan = torch.nan
    mlp = Neurons(
        gate=None,
        up=torch.tensor([[2.0, 0.0], [nan, nan], [-2.0, 0.0]]),
        down=torch.tensor([[1.0, nan, 7.0], [0.0, nan, 7.0]]),
        activation="relu",
        up_bias=torch.tensor([1.0, nan, 0.0]),
        down_bias=torch.tensor([0.5, 0.0]),
    )
    y = way(torch.tensor([1.0, 5.0]), NeuronMajor.of(mlp), torch.tensor([2, 0]))
    assert y.tolist() == [3.5, 0.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "opt"])
def test_half_precision_is_measured_without_the_way_that_torch_lacks_there(dtype, family, generator):
    mlp = neurons_of(tiny_model(architecture=family).to(dtype))[0]
    weights, index = NeuronMajor.of(mlp), torch.randperm(100, generator=generator)[:37]
    x = torch.randn(1, 48, generator=generator).to(dtype)
    keep = torch.zeros(1, 100, dtype=torch.bool)
    keep[0, index] = True
    made = SparseMLP.measured(weights, repetitions=1)
    assert made.gather is not by_samples
    close = {"rtol": 0.05, "atol": 0.02}  # bfloat16 has 8 bits
    torch.testing.assert_close(fastest(weights, repetitions=1)(x[0], weights, index), masked(x, mlp, keep)[0], **close)
    with pytest.raises(ValueError, match=f"got weights of {dtype} for a sampled product"):
        by_samples(x[0], weights, index)


def test_the_gate_first_keeps_the_largest_of_the_gate(generator):
    (mlp, _), x = neurons_of(tiny_model()), torch.randn(1, 48, generator=generator)
    keep = torch.zeros(1, 100, dtype=torch.bool)
    keep[0, mlp.activated(x)[0].abs().argsort(descending=True)[:13]] = True
    torch.testing.assert_close(gate_first(x[0], NeuronMajor.of(mlp), 13), masked(x, mlp, keep)[0], **CLOSE)
    without = neurons_of(tiny_model(architecture="opt"))[0]
    with pytest.raises(ValueError, match="without a gate"):
        gate_first(x[0], NeuronMajor.of(without), 13)


def test_the_layout_by_hand(mlp):
    weights = NeuronMajor.of(mlp)
    assert weights.n_bytes == mlp.n_bytes == weights.bundle.nbytes
    parts = [part for part in (mlp.gate, mlp.up, mlp.down.T) if part is not None]
    assert torch.equal(weights.bundle[7], torch.stack([part[7] for part in parts]))
    assert weights.down.is_contiguous()


def test_above_the_break_even_all_neurons_count(mlp, generator):
    x, weights = torch.randn(1, 1, 48, generator=generator), NeuronMajor.of(mlp)
    few, many = torch.arange(30), torch.arange(31)
    sparse = SparseMLP(weights, break_even=0.3)
    torch.testing.assert_close(sparse(x, few)[0, 0], by_bag(x[0, 0], weights, few))
    torch.testing.assert_close(sparse(x, many)[0, 0], dense(x[0, 0], weights))
    torch.testing.assert_close(sparse(x[0, 0], None), dense(x[0, 0], weights))
    assert not torch.allclose(sparse(x, many)[0, 0], by_bag(x[0, 0], weights, many))
    with pytest.raises(ValueError, match=r"a batch of 3; expected one token"):
        sparse(x.expand(3, 1, 48), few)


def test_the_break_even_is_what_the_clock_says(mlp):
    """A clock by which dense takes 10 and gathering 30 times the share of neurons: even at a third."""
    weights, seen = NeuronMajor.of(mlp), []

    def seconds(run):
        run()
        seen.append(1)
        density = (0.1, 0.2, 0.3, 0.4, 0.5)[(len(seen) - 1) // 8]  # four pairs each: one warms up
        return 10.0 if len(seen) % 2 else 30 * density

    assert break_even(weights, (0.5, 0.1, 0.3, 0.2, 0.4), repetitions=3, seconds=seconds) == 0.3
    assert len(seen) == 4 * 8  # what is above the first that does not pay is not tried
    assert break_even(weights, (0.5,), repetitions=1, seconds=lambda run: 1.0) == 0.5
    assert 0 <= SparseMLP.measured(weights, repetitions=1).break_even <= 1
    with pytest.raises(ValueError, match="repetitions"):
        break_even(weights, repetitions=0)
    with pytest.raises(ValueError, match="density"):
        break_even(weights, (1.5,))


def test_the_fastest_way_is_what_the_clock_says(mlp):
    """The second way takes least from the second turn on; the first turn warms up."""
    weights, turns = NeuronMajor.of(mlp), iter([9.0, 9.0, 1.0, 1.0, *2 * [5.0, 4.0, 6.0, 7.0]])

    def seconds(run):
        run()
        return next(turns)

    assert fastest(weights, 0.2, repetitions=2, seconds=seconds) is by_rows
    assert SparseMLP.measured(weights, repetitions=1).gather in WAYS
    with pytest.raises(ValueError, match="repetitions"):
        fastest(weights, repetitions=0)
    with pytest.raises(ValueError, match="density"):
        fastest(weights, 0.0)


def test_the_way_of_gathering_is_taken(mlp, generator):
    x, index, seen = torch.randn(48, generator=generator), torch.arange(9), []

    def way(row, weights, chosen):
        seen.append(len(chosen))
        return by_rows(row, weights, chosen)

    weights = NeuronMajor.of(mlp)
    torch.testing.assert_close(SparseMLP(weights, 1.0, way)(x, index), by_bag(x, weights, index), **CLOSE)
    assert seen == [9]
    assert break_even(weights, (0.2,), repetitions=1, seconds=lambda run: len(run()) and 1.0, gather=way) == 0.2
    assert seen == [9, 20, 20]


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_union_is_each_token_by_itself(mlp, batch, generator):
    x = torch.randn(batch, 48, generator=generator)
    keep = torch.rand(batch, 100, generator=generator) < 0.2
    weights = NeuronMajor.of(mlp)
    torch.testing.assert_close(gathered_union(x, weights, keep), masked(x, mlp, keep), **CLOSE)
    alone = torch.stack([by_bag(token, weights, own.nonzero()[:, 0]) for token, own in zip(x, keep, strict=True)])
    torch.testing.assert_close(gathered_union(x, weights, keep), alone, **CLOSE)


def test_the_union_by_hand():
    keep = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    # alone (1 + 1 + 1 + 2 + 4) / 5 of 4; in pairs 2 and 2 of 4, and the fifth token has no partner
    assert union_share(keep, 1) == pytest.approx(9 / 20)
    assert union_share(keep, 2) == pytest.approx(1 / 2)
    assert union_share(keep, 5) == 1
    for batch in (0, 6):
        with pytest.raises(ValueError, match="expected 1 to 5"):
            union_share(keep, batch)


def test_a_union_that_does_not_fit(mlp):
    with pytest.raises(ValueError, match="tokens, neurons"):
        gathered_union(torch.zeros(2, 48), NeuronMajor.of(mlp), torch.ones(2, 99, dtype=torch.bool))
