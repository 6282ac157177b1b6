"""Selectors against numbers worked by hand and against slow twins."""

import math

import pytest
import torch
from seen_by_hand import random_neurons, seen_of
from torch import nn

from course_lib.contextual.apply import contextual
from course_lib.contextual.fitting.linear_maps import RegressionSums, cut
from course_lib.contextual.fitting.lists import clustered
from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.seen import importance_of, look_through
from course_lib.contextual.selectors.cats import CATS
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.embedding import FromEmbedding
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.contextual.selectors.neighbours import Neighbours
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.selectors.recorded import Recorded
from course_lib.contextual.selectors.static import Static
from course_lib.contextual.sizes import Sizes
from course_lib.measure.perplexity import perplexity
from course_lib.models import tiny_model
from course_lib.pruning.layerwise.gram import Gram
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import stored_grid

# Three neurons of a plain ReLU MLP on two numbers: h = relu(x_1, x_2, x_1 + x_2), reaching 5, 1 and 2 far.
SMALL = Neurons(
    gate=None,
    up=torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    down=torch.tensor([[3.0, 0.0, 0.0], [4.0, -1.0, 2.0]]),
    activation="relu",
)
X = torch.tensor([[1.0, 3.0], [-2.0, 3.0], [0.5, -4.0]])


def text(n=3, length=9, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def test_a_neurons_importance_is_its_value_times_its_reach():
    """h = (1, 3, 4), (0, 3, 1), (0.5, 0, 0); times 5, 1, 2."""
    seen = seen_of(SMALL, X)
    expected = torch.tensor([[5.0, 3.0, 8.0], [0.0, 3.0, 2.0], [2.5, 0.0, 0.0]])
    assert torch.equal(Oracle().score(seen, 0), expected)
    one = Oracle(density=0.34).keep(seen, 0)  # round(1.02) = 1 of 3
    assert one.int().tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    two = Oracle(density=0.6).keep(seen, 0)  # round(1.8) = 2; of the two zeros of the last token the later one stays
    assert two.int().tolist() == [[1, 0, 1], [0, 1, 1], [1, 0, 1]]


def test_negative_values_matter_as_much_as_positive_ones():
    """silu(−1) · 2 = −0.5379 · 1 against silu(1) · 0.5 = 0.3655 · 1."""
    neurons = Neurons(
        gate=torch.tensor([[-1.0], [1.0]]),
        up=torch.tensor([[2.0], [0.5]]),
        down=torch.tensor([[1.0, -1.0]]),
        activation="silu",
    )
    score = Oracle().score(seen_of(neurons, torch.ones(1, 1)), 0)
    sigmoid = 1 / (1 + math.exp(-1))
    torch.testing.assert_close(score, torch.tensor([[2 * (1 - sigmoid), 0.5 * sigmoid]]))


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
def test_values_of_neurons_are_what_the_model_computes(family):
    """With biases where the family has them, and GPT-2's matrices the other way round."""
    model, found = tiny_model(0, family), []
    look_through(model, text(1), lambda block, seen: found.append((seen.neurons.values(seen.x), seen.hidden)))
    for computed, hidden in found:
        torch.testing.assert_close(computed, hidden)
    down = neurons_of(model)[1].down
    assert down.shape == (48, 100)
    torch.testing.assert_close(neurons_of(model)[1].down_norm[3], down[:, 3].square().sum().sqrt())


def test_static_is_the_mean_over_calibration_tokens():
    model, calibration = tiny_model(), text()
    static = Static().fit(model, calibration)
    expected = torch.cat([importance_of(model, ids) for ids in calibration], dim=1).mean(1)
    torch.testing.assert_close(static.importance, expected)  # other order of sums
    seen = seen_of(neurons_of(model)[1], torch.randn(4, 48))
    assert torch.equal(static.score(seen, 1), static.importance[1].repeat(4, 1))


def test_a_recording_is_of_the_dense_pass_and_found_by_its_ids():
    model, windows = tiny_model(), text()
    recorded = Recorded().fit(model, windows)
    neurons = neurons_of(model)[1]
    seen = seen_of(neurons, torch.randn(9, 48), ids=windows[2])
    assert torch.equal(recorded.score(seen, 1), importance_of(model, windows[2])[1])
    with pytest.raises(ValueError, match="got a sequence of 8 tokens that begins with .*not recorded"):
        recorded.score(seen_of(neurons, torch.randn(8, 48), ids=windows[2, :8]), 1)


def test_perplexity_is_measured_over_a_recording():
    """It tries every model with one token first, which is no window."""
    model, windows = tiny_model(), text()
    recorded = Recorded(density=0.3).fit(model, windows)
    dense = perplexity(model, windows, progress=False).value
    with contextual(model, recorded):
        found = perplexity(model, windows, progress=False).value
    assert found != dense
    assert found == pytest.approx(dense, rel=0.2)  # a random model, which is nearly as surprised by everything


def test_ridge_regression_finds_a_linear_map_and_ignores_the_order_of_batches():
    """y = 2 + M e exactly: what little damping takes is of the size of the damping."""
    generator = torch.Generator().manual_seed(0)
    e, true = torch.randn(500, 4, generator=generator), torch.randn(4, 3, generator=generator)
    sums = RegressionSums(Sizes(1, 4, 3), torch.device("cpu"))
    for part in e.split(200):
        sums.add(0, part, 2 + part @ true)
    centre, mean, slope = sums.solved(damping=1e-6)
    torch.testing.assert_close(slope[0], true, atol=1e-4, rtol=0)  # float32 sums of 500 tokens
    torch.testing.assert_close(mean[0] - centre @ slope[0], torch.full((3,), 2.0), atol=1e-4, rtol=0)


def test_more_damping_forgets_the_embedding():
    model, calibration = tiny_model(), text()
    static, damped = Static().fit(model, calibration), FromEmbedding(damping=1e9).fit(model, calibration)
    neurons = neurons_of(model)[0]
    seen = seen_of(neurons, torch.randn(4, 48), embedding=torch.randn(4, 48))
    torch.testing.assert_close(damped.score(seen, 0), static.score(seen, 0), atol=1e-6, rtol=0)  # what 1/1e9 leaves


def test_a_choice_by_embedding_reads_nothing_else():
    ready = FromEmbedding().fit(tiny_model(), text())
    neurons, embedding = neurons_of(tiny_model())[0], torch.randn(4, 48)
    scores = [ready.score(seen_of(neurons, torch.randn(4, 48), embedding), 0) for _ in range(2)]
    assert torch.equal(*scores)


def test_full_rank_is_the_oracle_and_whitening_beats_the_plain_cut():
    model, calibration = tiny_model(), text(8, 32)
    whole, part = (LowRank(rank=rank).fit(model, calibration) for rank in (48, 5))
    seen = seen_of(neurons_of(model)[1], torch.randn(6, 48))
    torch.testing.assert_close(whole.score(seen, 1), Oracle().score(seen, 1), atol=1e-5, rtol=1e-3)
    assert part.n_bytes == 2 * 2 * (100 + 48) * 5 * 4  # blocks, gate and up, rows of both factors, rank, bytes

    inputs, generator = torch.randn(64, 6, generator=torch.Generator().manual_seed(1)), torch.Generator().manual_seed(2)
    inputs[:, 0] *= 20  # one input far larger than the others, which a plain cut knows nothing of
    weight, gram = torch.randn(9, 6, generator=generator), Gram(6)
    weight[:, 0] /= 10
    gram.add(inputs)
    (outer, inner), (u, s, v) = cut([weight], gram, 2)[0], torch.linalg.svd(weight)
    assert outer.shape == (9, 2)
    plain = u[:, :2] * s[:2] @ v[:2]
    errors = [(inputs @ (weight - other).T).norm() for other in (outer @ inner, plain)]
    best = torch.linalg.svdvals(inputs @ weight.T)[2:].norm()  # Eckart and Young: no matrix of rank 2 is nearer
    torch.testing.assert_close(errors[0], best, rtol=1e-3, atol=0)  # the covariance is damped by a millionth
    assert errors[1] > 1.2 * errors[0]


def test_a_low_bit_copy_rounds_gate_and_up_and_counts_its_bytes():
    model = tiny_model()
    ready, neurons = LowBit(bits=3, group=16).fit(model, text()), neurons_of(model)[0]
    for mine, dense in zip(ready.copies[0].into, neurons.into, strict=True):
        assert torch.equal(mine, stored_grid(Quantization(3, 16).grid(dense)).round(dense))
        assert not torch.equal(mine, dense)
    # 48 codes: 2 bits in 12 bytes, 1 bit in 6; 3 scales of 2 bytes, 3 zeros: 1 byte and 1 byte. 100 rows, 2 x 2 of them
    assert ready.n_bytes == 4 * 100 * (12 + 6 + 6 + 1 + 1)
    x = torch.randn(5, 48)
    expected = ready.copies[0].values(x).abs() * neurons.down.norm(dim=0)
    torch.testing.assert_close(ready.score(seen_of(neurons, x), 0), expected)


def test_cats_reads_the_gate_alone():
    neurons = random_neurons()
    x = torch.randn(4, 5)
    expected = nn.functional.silu(x @ neurons.gate.T).abs()
    torch.testing.assert_close(CATS().score(seen_of(neurons, x), 0), expected)


def test_all_lists_probed_is_an_exact_search():
    neurons = neurons_of(tiny_model(0, "opt"))[0]
    exact = Neighbours(n_lists=4, n_probes=4).fit(tiny_model(0, "opt"), text())
    x = torch.randn(6, 48)
    expected = (x @ neurons.up.T + neurons.up_bias).relu()
    torch.testing.assert_close(exact.score(seen_of(neurons, x), 0), expected, atol=1e-5, rtol=0)


def test_an_exact_search_of_gates_ranks_as_cats_does():
    """SiLU is not zero left of zero: a gate of −1 counts for more than one of 0.1."""
    neurons = Neurons(gate=torch.tensor([[-1.0], [0.1]]), up=torch.ones(2, 1), down=torch.ones(1, 2), activation="silu")
    seen = seen_of(neurons, torch.ones(1, 1))
    lists = clustered(torch.tensor([[-1.0, 0.0], [0.1, 0.0]]), 2)
    found = Neighbours(n_lists=2, n_probes=2, lists=(lists,)).score(seen, 0)
    torch.testing.assert_close(found, CATS().score(seen, 0))
    assert found[0, 0] > found[0, 1]


def test_rows_of_lists_that_are_not_probed_come_last():
    """Two clusters: x points at the first; of the second none comes before any of the first."""
    rows = torch.tensor([[1.0, 0.0], [0.9, 0.0], [0.0, 1.0], [0.0, 0.9]])
    neurons = Neurons(gate=None, up=rows, down=torch.ones(2, 4), activation="relu")
    lists = clustered(torch.cat([rows, torch.zeros(4, 1)], dim=1), 2)
    assert lists.list_of[0] == lists.list_of[1] != lists.list_of[2] == lists.list_of[3]
    score = Neighbours(n_lists=2, n_probes=1, lists=(lists,)).score(seen_of(neurons, torch.tensor([[1.0, 0.1]])), 0)
    assert score[0, :2].tolist() == pytest.approx([1.0, 0.9])
    assert score[0, 2:].max() < score[0, :2].min()


def test_a_predictor_reads_x_of_so_many_blocks_before():
    """Predictors that give back what they read: neuron i's score is entry i of that x."""
    neurons = [random_neurons(width=5, n=5) for _ in range(4)]
    x = [torch.randn(3, 5) for _ in range(4)]
    for lookahead in (0, 1, 2):
        ready = DejaVu(predictors=(nn.Identity(),) * 4, lookahead=lookahead)
        for block in range(4):
            earlier = {b: x[b] for b in range(max(block - lookahead, 0), block)}
            found = ready.score(seen_of(neurons[block], x[block], earlier=earlier), block)
            assert torch.equal(found, x[max(block - lookahead, 0)])


def test_a_predictors_bytes_are_those_of_its_weights():
    two = nn.Sequential(nn.Linear(5, 2, bias=False), nn.Linear(2, 7, bias=False))
    assert DejaVu(predictors=(two, two)).n_bytes == 2 * 4 * (10 + 14)
