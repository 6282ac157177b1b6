"""Activations, residual streams, caches with gaps, and costs in the notebook of lesson 09."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import embedding_bag, linear, silu

from course_lib.lessons.dejavu import activations, costs
from course_lib.models import blocks, linears, tiny_model
from course_lib.workbook import masters, mine


@pytest.fixture
def ids(generator):
    return torch.randint(3, 90, (2, 12), generator=generator)


@pytest.mark.parametrize("architecture", ["llama", "opt"])
def test_what_is_recorded_is_what_the_model_computes(architecture, ids):
    model = tiny_model(architecture=architecture)
    second, first = activations.record_mlps(model, ids, (1, 0))
    assert second.x.shape == (24, 48)
    assert first.hidden.shape == (24, 100)
    answers = []
    last = list(linears(blocks(model)[1]).values())[-1]
    handle = last.register_forward_hook(lambda _, args, out: answers.append(args[0].reshape(-1, 100)))
    with torch.no_grad():
        model(ids)
    handle.remove()
    torch.testing.assert_close(second.hidden, answers[0])
    torch.testing.assert_close(second.neurons.values(second.x), second.hidden)
    torch.testing.assert_close(second.ids, ids.flatten())


@pytest.mark.parametrize("numbers", [(2,), (-1, 0)])
def test_record_mlps_refuses_blocks_out_of_range(numbers, ids):
    with pytest.raises(ValueError, match="expected numbers from 0 to 1"):
        activations.record_mlps(tiny_model(), ids, numbers)


def test_the_fraction_of_neurons_for_an_energy_by_hand():
    curve = torch.tensor([0.77, 1.0, 1.0])
    assert activations.fraction_for(curve, 0.77 - 1e-6) == pytest.approx(1 / 3)
    assert activations.fraction_for(curve, 0.78) == pytest.approx(2 / 3)
    assert activations.fraction_for(torch.tensor([0.5, 0.9]), 0.95) == 1


@pytest.mark.parametrize("architecture", ["llama", "opt"])
def test_the_stream_is_what_attention_and_mlp_add_up_to(architecture, ids):
    model = tiny_model(architecture=architecture)
    states = activations.residual_stream(model, ids)
    assert states.shape == (5, 24, 48)
    hidden = model(ids, output_hidden_states=True).hidden_states
    torch.testing.assert_close(states[0], hidden[0].flatten(0, 1))
    torch.testing.assert_close(states[2], hidden[1].flatten(0, 1))
    (seen,) = activations.record_mlps(model, ids, (0,))
    bias = 0 if seen.neurons.down_bias is None else seen.neurons.down_bias
    # Sums in another order: 1e-5 of numbers near 1.
    torch.testing.assert_close(states[2] - states[1], seen.hidden @ seen.neurons.down.T + bias, rtol=1e-4, atol=1e-5)


def test_missing_keys_can_be_computed_from_what_is_stored(ids):
    model = tiny_model()
    (keys, values), holes = activations.head_with_missing_keys(model, block=1, head=1, ids=ids[0], every=3)
    assert holes.missing.tolist() == [2, 5, 8, 11]
    assert (holes.keys == activations.LEFTOVER).all(dim=1).nonzero().flatten().tolist() == [2, 5, 8, 11]
    then = holes.position[holes.missing]
    made = holes.stored @ holes.key_weight.T
    turned = torch.cat([-made[:, 4:], made[:, :4]], dim=1)  # heads of eight
    torch.testing.assert_close(made * holes.cos[then] + turned * holes.sin[then], keys[holes.missing])
    torch.testing.assert_close(holes.stored @ holes.value_weight.T, values[holes.missing])
    there = torch.tensor([0, 1, 3])
    torch.testing.assert_close(holes.keys[there], keys[there], rtol=0, atol=0)


def test_weights_per_token_are_all_but_the_mlps():
    model = tiny_model()
    read = costs.weights_per_token(model, n_cached=10)
    assert read[:3] == (48, 100, 2)
    attention = 2 * (2 * 48 * 48 + 2 * 16 * 48)
    assert read.others == attention + 2 * 10 * 2 * 8 * 2 + 97 * 48


def test_unions_by_hand():
    disjoint = torch.eye(4, dtype=torch.bool)[None]
    alike = torch.eye(4, dtype=torch.bool)[:1].expand(4, 4)[None]
    found = costs.measure_unions({"disjoint": disjoint, "alike": alike}, (1, 2, 4))
    assert found == {"disjoint": [0.25, 0.5, 1.0], "alike": [0.25, 0.25, 0.25]}
    with pytest.raises(ValueError, match="a batch of 5 and 4 tokens"):
        costs.measure_unions({"alike": alike}, (5,))


def test_predictions_keep_the_highest_scores_of_each_token(ids):
    (seen,) = activations.record_mlps(tiny_model(architecture="opt"), ids, (1,))

    def count(hidden, down, active, keep):
        assert (active == (hidden > 0)).all()  # a ReLU
        return keep.sum() / keep.numel(), (keep & active).sum() / active.sum()

    rivals = {"oracle": seen.hidden, "worst": -seen.hidden}
    found = activations.score_predictions(rivals, seen, (0.1, 1.0), count)
    assert [row.recall for row in found["oracle"]] == pytest.approx([0.1, 1.0])
    assert found["oracle"][0].energy > found["worst"][0].energy
    assert found["worst"][1] == activations.Quality(1.0, 1.0, 1.0)


def test_recall_by_window_by_hand():
    # Two windows of one token, the better half predicted: two of three active ones, and none of one.
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]])
    active = torch.tensor([[True, True, True, False], [False, False, False, True]])
    assert activations.recall_by_window(logits, active, 0.5, 2).tolist() == pytest.approx([2 / 3, 0])
    with pytest.raises(ValueError, match="2 tokens for 3 windows"):
        activations.recall_by_window(logits, active, 0.5, 3)


@pytest.mark.parametrize("architecture", ["llama", "opt"])
def test_there_is_a_time_for_each_density(architecture):
    timed = costs.time_gathered_mlps(tiny_model(architecture=architecture), (1.0, 0.1), repetitions=2)
    assert timed.dense > 0
    assert set(timed.gathered) == {1.0, 0.1}
    assert timed.n_bytes == 2 * (3 if architecture == "llama" else 2) * 48 * 100 * 4
    assert replace(timed, dense=2 * timed.gathered[0.1]).speedup(0.1) == 2


def test_a_density_of_zero_is_refused():
    with pytest.raises(ValueError, match="got density 0.0"):
        costs.time_gathered_mlps(tiny_model(), (0.0,))


# 5 neurons of 20, width 6. The right answer: 2 · 5 · 6 into the neurons, 5 of gate and up, 6 · 5 out of them.
PRODUCTS = {
    "matrices and a vector": (lambda x, g, u, d, i: d[:, i] @ (silu(g[i] @ x) * (u[i] @ x)), 95),
    "linear": (lambda x, g, u, d, i: linear(silu(linear(x, g[i])) * linear(x, u[i]), d[:, i]), 95),
    "a row of a matrix": (lambda x, g, u, d, i: (silu(x[None] @ g[i].T) * (x[None] @ u[i].T)) @ d[:, i].T, 95),
    "one by one": (lambda x, g, u, d, i: (d[:, i] * (silu((g[i] * x).sum(1)) * (u[i] * x).sum(1))).sum(1), 95),
    "a loop": (lambda x, g, u, d, i: sum(d[:, n] * (silu(g[n] @ x) * (u[n] @ x)) for n in i.tolist()), 95),
    "a bag": (
        lambda x, g, u, d, i: embedding_bag(
            i[None], d.T.contiguous(), per_sample_weights=(silu(g[i] @ x) * (u[i] @ x))[None], mode="sum"
        ),
        95,
    ),
    "einsum": (
        lambda x, g, u, d, i: torch.einsum(
            "dk,k->d", d[:, i], silu(torch.einsum("kd,d->k", g[i], x)) * torch.einsum("kd,d->k", u[i], x)
        ),
        95,
    ),
    "all, then the chosen ones": (lambda x, g, u, d, i: d[:, i] @ (silu(g @ x) * (u @ x))[i], 2 * 120 + 20 + 30),
    "all": (lambda x, g, u, d, i: d @ (silu(g @ x) * (u @ x)), 3 * 120 + 20),
}


@pytest.mark.parametrize("way", PRODUCTS)
def test_products_are_counted_however_they_are_written(way, generator):
    answer, expected = PRODUCTS[way]
    x, g, u = (torch.randn(*size, generator=generator) for size in ((6,), (20, 6), (20, 6)))
    d, index = torch.randn(6, 20, generator=generator), torch.tensor([3, 19, 0, 7, 8])
    with costs.count_products() as count:
        answer(x, g, u, d, index)
    answer(x, g, u, d, index)  # nothing is counted outside
    assert count.n == expected


def test_the_notebook_counts_the_products_of_the_student_alone(generator, capsys):
    """The first call of what `mine` returns also runs the course's function: the cell must not count that."""

    def which_neurons(hidden, down, k):
        best = (hidden.abs() * down.norm(dim=0)).topk(k, dim=1).indices
        return torch.zeros_like(hidden, dtype=torch.bool).scatter(1, best, True)

    def gathered_mlp(x, gate, up, down, index):
        return down[:, index] @ (silu(gate[index] @ x) * (up[index] @ x))

    (path,) = masters.masters(["09"])
    (cell,) = (each.source for each in masters.for_students(path).cells if "count_products()" in each.source)
    gate, up, x = (torch.randn(*size, generator=generator) for size in ((1536, 8), (1536, 8), (61, 8)))
    down, hidden = torch.randn(8, 1536, generator=generator), silu(x @ gate.T) * (x @ up.T)
    names = {"gate_weight": gate, "up_weight": up, "down_weight": down, "mlp_input": x, "hidden_values": hidden}
    names |= {"which_neurons": which_neurons, "gathered_mlp": gathered_mlp, "mlp_output": hidden @ down.T}
    exec(cell, {"torch": torch, "costs": costs, "mine": mine} | names)
    assert "307 of 1536 neurons: 21 % of the products" in capsys.readouterr().out  # 20 %, and 307 of gate times up
