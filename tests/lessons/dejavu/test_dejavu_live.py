"""What the notebook of lesson 09 runs: a student's choice in a real model, streams, holes in a cache, costs, clocks."""

from dataclasses import replace

import pytest
import torch
from table_cells import headings
from table_cells import rows as cells
from torch.nn.functional import embedding_bag, linear, silu

from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.execute.race import Lap
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.lessons.dejavu.live import clock, cost, heads, neurons, predicting, printed, products, stream, torn
from course_lib.models import blocks, linears, tiny_model


@pytest.fixture
def ids(generator):
    return torch.randint(3, 90, (2, 12), generator=generator)


def longest(hidden, down, k):
    """As a student may write it."""
    length = hidden.abs() * down.norm(dim=0)
    return length >= length.topk(k, dim=1).values[:, -1:]


@pytest.mark.parametrize("architecture", ["llama", "opt"])
def test_seen_at_some_blocks_is_what_the_model_computes(architecture, ids):
    model = tiny_model(architecture=architecture)
    second, first = neurons.seen_at(model, ids, (1, 0))
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
def test_seen_at_refuses_blocks_that_are_not_there(numbers, ids):
    with pytest.raises(ValueError, match="expected numbers from 0 to 1"):
        neurons.seen_at(tiny_model(), ids, numbers)


def test_a_students_choice_is_the_oracles(ids):
    model = tiny_model()
    outputs = []
    for selector in (neurons.ByFunction(function=longest), Oracle()):
        with torch.no_grad(), contextual(model, selector, 0.3) as watch:
            outputs.append(model(ids).logits)
        assert watch.density == (0.3, 0.3)
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


def test_a_students_measure_of_heads_is_the_oracles(ids):
    model = tiny_model()

    def norms(given, weight, n_heads):
        parts = [a @ w.T for a, w in zip(given.chunk(n_heads, 1), weight.chunk(n_heads, 1), strict=True)]
        return torch.stack([part.norm(dim=1) for part in parts], dim=1)

    outputs = []
    for score in (heads.by_function(model, norms), part_norms):
        with torch.no_grad(), contextual_heads(model, score, keep=4):
            outputs.append(model(ids).logits)
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


def test_energy_by_hand():
    # Squares 9 1 0 and 16 9 0: the largest has .9 and .64, the two largest all.
    curve = neurons.energy_curve(torch.tensor([[1.0, 3.0, 0.0], [0.0, 4.0, 3.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(curve, torch.tensor([0.77, 1.0, 1.0]))
    assert neurons.share_for(curve, 0.77 - 1e-6) == pytest.approx(1 / 3)
    assert neurons.share_for(curve, 0.78) == pytest.approx(2 / 3)
    assert neurons.share_for(torch.tensor([0.5, 0.9]), 0.95) == 1


@pytest.mark.parametrize("architecture", ["llama", "opt"])
def test_the_stream_is_what_attention_and_mlp_add_up_to(architecture, ids):
    model = tiny_model(architecture=architecture)
    states = stream.stream_of(model, ids)
    assert states.shape == (5, 24, 48)
    hidden = model(ids, output_hidden_states=True).hidden_states
    torch.testing.assert_close(states[0], hidden[0].flatten(0, 1))
    torch.testing.assert_close(states[2], hidden[1].flatten(0, 1))
    (seen,) = neurons.seen_at(model, ids, (0,))
    bias = 0 if seen.neurons.down_bias is None else seen.neurons.down_bias
    # Sums in another order: 1e-5 of numbers near 1.
    torch.testing.assert_close(states[2] - states[1], seen.hidden @ seen.neurons.down.T + bias, rtol=1e-4, atol=1e-5)


def test_change_by_hand():
    # One block, three tokens: attention adds what is there once more; the MLP turns it by a right angle, or nothing.
    at = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    behind = torch.tensor([[0.0, 2.0], [4.0, 0.0], [0.0, 2.0]])
    found = stream.change(torch.stack([at, 2 * at, behind]))
    assert (found.cosine.tolist(), found.attention.tolist(), found.mlp.tolist()) == ([1.0], [1.0], [0.0])


def test_holes_are_filled_by_what_the_cache_would_hold(ids):
    model = tiny_model()
    (keys, values), holes = torn.head(model, block=1, head=1, ids=ids[0], every=3)
    assert holes.missing.tolist() == [2, 5, 8, 11]
    assert (holes.keys == torn.LEFTOVER).all(dim=1).nonzero().flatten().tolist() == [2, 5, 8, 11]
    then = holes.position[holes.missing]
    made = holes.stored @ holes.key_weight.T
    turned = torch.cat([-made[:, 4:], made[:, :4]], dim=1)  # heads of eight
    torch.testing.assert_close(made * holes.cos[then] + turned * holes.sin[then], keys[holes.missing])
    torch.testing.assert_close(holes.stored @ holes.value_weight.T, values[holes.missing])
    there = torch.tensor([0, 1, 3])
    torch.testing.assert_close(holes.keys[there], keys[there], rtol=0, atol=0)


def test_what_a_token_reads_is_all_but_the_mlps():
    model = tiny_model()
    read = cost.read_by_a_token(model, n_cached=10)
    assert read[:3] == (48, 100, 2)
    attention = 2 * (2 * 48 * 48 + 2 * 16 * 48)
    assert read.others == attention + 2 * 10 * 2 * 8 * 2 + 97 * 48


def test_unions_by_hand():
    disjoint = torch.eye(4, dtype=torch.bool)[None]
    alike = torch.eye(4, dtype=torch.bool)[:1].expand(4, 4)[None]
    found = cost.unions({"disjoint": disjoint, "alike": alike}, (1, 2, 4))
    assert found == {"disjoint": [0.25, 0.5, 1.0], "alike": [0.25, 0.25, 0.25]}
    with pytest.raises(ValueError, match="a batch of 5 and 4 tokens"):
        cost.unions({"alike": alike}, (5,))


def test_scored_keeps_the_best_of_each_token(ids):
    (seen,) = neurons.seen_at(tiny_model(architecture="opt"), ids, (1,))

    def count(hidden, down, active, keep):
        assert (active == (hidden > 0)).all()  # a ReLU
        return keep.sum() / keep.numel(), (keep & active).sum() / active.sum()

    rivals = {"oracle": seen.hidden, "worst": -seen.hidden}
    found = predicting.scored(rivals, seen, (0.1, 1.0), count)
    assert [row.recall for row in found["oracle"]] == pytest.approx([0.1, 1.0])
    assert found["oracle"][0].energy > found["worst"][0].energy
    assert found["worst"][1] == predicting.Found(1.0, 1.0, 1.0)


def test_recall_by_window_by_hand():
    # Two windows of one token, the better half predicted: two of three active ones, and none of one.
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]])
    active = torch.tensor([[True, True, True, False], [False, False, False, True]])
    assert predicting.recall_by_window(logits, active, 0.5, 2).tolist() == pytest.approx([2 / 3, 0])
    with pytest.raises(ValueError, match="2 tokens for 3 windows"):
        predicting.recall_by_window(logits, active, 0.5, 3)


@pytest.mark.parametrize("architecture", ["llama", "opt"])
def test_the_clock_has_a_time_for_each_density(architecture):
    timed = clock.time_over_density(tiny_model(architecture=architecture), (1.0, 0.1), repetitions=2)
    assert timed.dense > 0
    assert set(timed.gathered) == {1.0, 0.1}
    assert timed.n_bytes == 2 * (3 if architecture == "llama" else 2) * 48 * 100 * 4
    assert replace(timed, dense=2 * timed.gathered[0.1]).faster(0.1) == 2


def test_the_clock_refuses_what_is_no_density():
    with pytest.raises(ValueError, match="got density 0.0"):
        clock.time_over_density(tiny_model(), (0.0,))


def test_laps_are_compared_with_the_first():
    laps = [Lap("dense", [2.0, 2.0, 2.0], [1.0, 1.0, 1.0], 1.0), Lap("some", [1.0, 1.0, 0.5], [1.01, 1.02, 1.03], 2.0)]
    assert cells(printed.laps(laps, n_tokens=10)) == [
        ["dense", "5", "1.00", "–", "1.000"],
        ["some", "10", "2.00", "+0.020 ± 0.006", "1.020"],
    ]


def test_a_claim_follows_from_the_windows():
    here = torch.tensor([3.0, 4.0, 5.0])
    curves = {"contextual": {0.5: here}, "fixed": {0.5: here + torch.tensor([1.0, 1.1, 0.9])}}
    assert printed.claim("better", curves, 0.5, "fixed").startswith(
        "Claim: better: holds\n    fixed: +1.000 ± 0.058 nats"
    )
    assert "does not hold" in printed.claim("better", curves, 0.5, "contextual", better="fixed")


def test_tables_have_a_column_a_share():
    curves = {"one": {0.5: torch.zeros(2), 0.3: torch.ones(2)}, "two": {0.5: torch.ones(2)}}
    table = printed.perplexities(curves, torch.zeros(2))
    assert headings(table)[1:] == ["all", "50 %", "30 %"]
    assert cells(table) == [["dense", "1.0", "–", "–"], ["one", "–", "1.0", "2.7"], ["two", "–", "2.7", "–"]]
    assert cells(printed.perplexities(curves, torch.zeros(2), nats=True))[1] == ["one", "–", "0.000", "1.000"]


def test_a_loss_of_recall_is_judged_window_by_window():
    own = torch.tensor([0.9, 0.8, 0.7])
    said = printed.recalls({0: own, 1: own - 0.005, 2: own - torch.tensor([0.1, 0.11, 0.12])})
    assert "1 block earlier: recall 0.795, lower by 0.005 ± 0.000; less than 0.02 lost: holds" in said
    assert "2 blocks earlier: recall 0.690, lower by 0.110 ± 0.006; less than 0.02 lost: does not hold" in said


def test_the_best_constant_answer_by_hand():
    """A quarter is active, w = .255: the best q is .25 / (.25 + .75 · .255), as a search over q finds."""
    parts = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]])
    says = torch.linspace(0.001, 0.999, 9999, dtype=torch.float64)
    losses = -0.25 * says.log() - 0.75 * 0.255 * (1 - says).log()
    assert predicting.constant_loss(parts) == pytest.approx(float(losses.min()), abs=1e-6)  # of steps of 1e-4


def test_lines_of_bytes_and_of_what_is_stored():
    model = tiny_model()
    predictor = torch.nn.Linear(48, 100, bias=False)
    assert printed.bytes_line(predictor, neurons_of(model)[0]).endswith("57,600 of the MLP: 33.3 %")
    assert "one of 2 key-value heads 16.\n" in printed.stored_line(model)
    assert printed.stored_line(model).endswith("a token are 32 numbers: storing x never saves room here.")
    of_all = tiny_model(architecture="opt")  # six of six heads have keys of their own: 6 x 16 numbers, x has 48
    assert printed.stored_line(of_all).endswith("once 3 of them are left out.")


def test_active_lines_count_exact_zeros(ids):
    table = printed.active_table({"OPT": (["block 1"], neurons.seen_at(tiny_model(architecture="opt"), ids, (1,)))})
    (seen,) = neurons.seen_at(tiny_model(architecture="opt"), ids, (1,))
    assert cells(table)[0][:3] == ["OPT", "block 1", f"{100 * (seen.hidden == 0).float().mean():.1f} %"]


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
def test_products_are_counted_whatever_they_are_written_with(way, generator):
    answer, expected = PRODUCTS[way]
    x, g, u = (torch.randn(*size, generator=generator) for size in ((6,), (20, 6), (20, 6)))
    d, keep = torch.randn(6, 20, generator=generator), torch.zeros(20, dtype=torch.bool)
    index = torch.tensor([3, 19, 0, 7, 8])
    keep[index] = True
    with products.counted() as count:
        answer(x, g, u, d, index)
    answer(x, g, u, d, index)  # outside nothing is counted
    assert count.n == expected
    said = products.line(count.n, 360, keep)
    assert said.startswith(f"{expected} products, {100 * expected / 360:.0f} % of the whole MLP's; 5 of 20 neurons")
    assert said.endswith("computed as well") == way.startswith("all")
