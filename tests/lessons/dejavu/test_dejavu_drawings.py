"""The drawings of lesson 09: titles by hand, fractions in closed form, and choices by a loop."""

import inspect
import math
from itertools import combinations

import pytest
import torch
from matplotlib.figure import Figure

from course_lib.lessons.dejavu import deck, drawings, examples
from course_lib.models import DEFAULT_MODEL, blocks, head, heads, load_model, n_neurons, weight_of


def title(fig, number=0):
    return fig.axes[number].get_title(loc="left")


def figures(*modules):
    """The public functions of some modules that return a figure and need no arguments."""
    return [
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        if inspect.signature(function).return_annotation is Figure
    ]


@pytest.mark.parametrize("draw", figures(deck, drawings, examples))
def test_a_drawing_has_a_title(draw):
    fig = draw()
    assert (fig.described() == "a figure without a title") == (draw is examples.title_picture)
    assert fig is not draw(), "a notebook may change what it gets"


def test_the_small_mlp_is_a_sum_of_neurons():
    """|h_i| ‖w_i‖ is the length of the i-th term of the sum, and the terms are the output."""
    mlp = examples.small_mlp(5, 3, torch.Generator().manual_seed(1))
    x = torch.tensor([[1.0, -2.0, 0.5]])
    values = [max(0.0, float(mlp.up[i] @ x[0])) for i in range(5)]
    terms = torch.stack([value * mlp.down[:, i] for i, value in enumerate(values)])
    torch.testing.assert_close(terms.sum(0), mlp.values(x)[0] @ mlp.down.T)
    torch.testing.assert_close(examples.importance_of(mlp, x)[0], terms.norm(dim=1))
    assert examples.keep_top(torch.tensor([[3.0, 1.0, 2.0, 0.0]]), 2).tolist() == [[True, False, True, False]]


def test_two_tokens_are_counted_by_hand():
    fig = examples.two_tokens()
    bars = [[bar.get_height() for bar in axes.patches] for axes in fig.axes]
    chosen = [sorted(range(16), key=lambda i, row=row: -row[i])[:4] for row in bars]
    common = len(set(chosen[0]) & set(chosen[1]))
    assert fig.get_suptitle().endswith(f"have {common} in common")
    squares = [sum(row[i] ** 2 for i in best) / sum(h**2 for h in row) for row, best in zip(bars, chosen, strict=True)]
    for number, (row, share) in enumerate(zip(bars, squares, strict=True)):
        fire = sum(height > 0 for height in row)
        expected = f"Token {'ab'[number]}: {fire} of 16 are active; 4 hold {100 * share:.0f} % of"
        assert title(fig, number).startswith(expected)


def test_each_choice_depends_on_more_than_the_one_before():
    choices, importance = examples.choose()
    static, by_word, contextual = (choices[name] for name in ("static", "by embedding", "contextual"))
    assert all((keep.sum(1) == examples.KEPT).all() for keep in choices.values())
    assert (static == static[0]).all()
    assert (by_word[0] == by_word[3]).all(), "one word, one set"
    assert (by_word[1] == by_word[5]).all()
    assert not (contextual[1] == contextual[5]).all(), "the river changes what a bank is"
    held = [float(importance.where(keep, 0).square().sum()) for keep in (static, by_word, contextual)]
    assert held[2] > max(held[:2])


def test_both_tests_agree_where_nothing_was_left_out_before():
    recorded, on_the_fly = examples.chosen_twice()
    assert (recorded[0] == on_the_fly[0]).all()
    assert not (recorded[2] == on_the_fly[2]).all()
    share = float((recorded[2] & on_the_fly[2]).sum() / recorded[2].sum())
    assert title(examples.two_passes()).endswith(f"agree on {100 * share:.0f} %")


def test_the_second_test_goes_on_with_what_was_left():
    """Block 2 chooses from inputs to which block 1 added its chosen neurons alone, and so on; token by token."""
    blocks, dense = examples.random_blocks()
    _, on_the_fly = examples.chosen_twice(k=8)
    for token in range(len(dense)):
        x = dense[token]
        for mlp, keep in zip(blocks, on_the_fly, strict=True):
            terms = (mlp.up @ x).relu()[:, None] * mlp.down.T
            length = terms.norm(dim=1)
            chosen = length.argsort(descending=True)[:8]
            kept = [neuron for neuron in keep[token].nonzero().flatten().tolist() if length[neuron] > 0]
            assert sorted(neuron for neuron in chosen.tolist() if length[neuron] > 0) == kept  # of zeros any will do
            x = x + terms[chosen].sum(0)


def test_the_predictor_is_counted():
    drawn, of_the_code = 64 * (576 + 1536) / (3 * 576 * 1536), 1000 * (12_288 + 49_152) / (2 * 12_288 * 49_152)
    assert drawn == pytest.approx(0.0509, abs=5e-5)  # four digits
    assert title(drawings.predictor()).endswith("has 5.1 % of the MLP's weights")
    assert of_the_code == pytest.approx(0.0509, abs=5e-5)  # OPT-175B, in the deck's note


def test_what_is_read_early():
    """Figure 2: attention k is between; section 4.3: attention k and MLP k, then attention k + 1 too."""
    early = {
        name: [drawings.parts_between(place, part) for place, part in reads]
        for name, reads in drawings.VARIANTS.items()
    }
    assert early == {"Figure 2": [1, 1], "section 4.3": [2, 3], "authors' code": [2, 2]}
    assert "4 of 6 choices are made a whole block or more before" in title(drawings.lookahead())


def test_pieces_of_memory_by_hand():
    assert drawings.pieces([3]) == 1
    assert drawings.pieces([5, 3, 4]) == 1
    assert drawings.pieces([0, 1, 4, 6, 7]) == 3
    assert "3 pieces of memory where neurons are rows, 18 where they are columns" in title(drawings.neuron_major())


def test_missing_keys_by_hand():
    assert [drawings.missing(head) for head in range(3)] == [[3], [1, 4], [0, 2]]
    assert drawings.REQUESTED in drawings.CHOSEN_HEADS[-1], "the newest token uses a head that it chose"
    assert title(drawings.missing_key()).startswith("Token 5 chooses head 2: 2 of 5 keys")


@pytest.mark.real
def test_sizes_are_those_of_the_default_model():
    model, _ = load_model(DEFAULT_MODEL)
    block, sizes = blocks(model)[0], heads(model)
    linears = [block.get_submodule(name) for name in ("self_attn.k_proj", "mlp.down_proj")]
    assert (
        (drawings.WIDTH, drawings.NEURONS) == tuple(weight_of(linears[1]).shape) == (drawings.WIDTH, n_neurons(block))
    )
    assert weight_of(linears[0]).shape[0] == drawings.KEY_VALUE == sizes.n_key_value * drawings.HEAD
    assert (len(blocks(model)), weight_of(head(model)).shape[0]) == (drawings.BLOCKS, drawings.TOKENS)
    assert (sizes.n_query, sizes.group, sizes.size) == (9, 3, drawings.HEAD)


def test_bytes_of_a_token_by_hand():
    attention, mlp, predictor, tied = 26_542_080, 79_626_240, 4_055_040, 28_311_552
    assert drawings.weights_read(1.0) == {"attention": attention, "MLP": mlp, "predictor": 0, "LM head": tied}
    assert drawings.weights_read(0.5) == {
        "attention": attention,
        "MLP": mlp / 2,
        "predictor": predictor,
        "LM head": tied,
    }
    most = (attention + mlp + tied) / (attention + predictor + tied)
    assert "59 %" in title(drawings.token_bytes())
    assert f"at most {most:.2f}" in title(drawings.token_bytes())
    assert tied / (attention + mlp + tied) == pytest.approx(0.21, abs=0.005)  # "a fifth", says the note


def test_exact_keys_by_a_loop():
    read = [[key < 1280 for key in range(position + 1)] for position in range(2048, 2560, 64)]
    rough = sum(sum(keys) / len(keys) for keys in read) / len(read)
    assert drawings.exact_keys() == pytest.approx(
        rough, abs=0.01
    )  # every 64th position, the share falls by 0.12 in all
    assert "56 % of the keys" in title(drawings.half_window())


def test_recall_and_energy_by_hand():
    missed_largest, missed_fourth = deck.GUESSES.values()
    assert deck.recall(missed_largest) == deck.recall(missed_fourth) == 0.75
    total = 16 + 2.25 + 1.44 + 1 + 0.36 + 0.16 + 0.04 + 0.01
    assert deck.energy_kept(missed_largest) == pytest.approx((2.25 + 1.44 + 1 + 0.16) / total)
    assert deck.energy_kept(missed_fourth) == pytest.approx((16 + 2.25 + 1.44 + 0.04) / total)
    assert deck.recall_and_energy().get_suptitle().startswith("The same recall, and an energy of 0.23 or 0.93")


def test_what_predictors_read_by_hand():
    """The gate is a third; a 2-bit copy of two matrices has at least 2 · 2 of 3 · 32 bits, and a bit for its grids."""
    in_full = deck.predictor_fractions(32.0, 32.0)
    assert in_full["exact gate"] == pytest.approx(1 / 3)
    assert 2 * 2 / 96 < in_full["2-bit copy"] < 2 * 3 / 96
    assert in_full["rank 64"] == pytest.approx(64 * 2112 / (3 * 576 * 1536))
    halved = deck.predictor_fractions(16.0, 16.0)
    assert halved["2-bit copy"] == pytest.approx(2 * in_full["2-bit copy"])
    assert deck.predictor_fractions(*deck.STORED["in 4 bits"])["2-bit copy"] > 1 / 3, "more than a third, says the note"
    assert deck.predictor_fractions(*deck.STORED["in 4 bits"])["4-bit copy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("n_heads", "group", "kept"), [(9, 3, 5), (9, 1, 4), (8, 4, 2), (9, 3, 7)])
def test_groups_that_are_read_by_trying_all_sets(n_heads, group, kept):
    sets = list(combinations(range(n_heads), kept))
    read = sum(len({head // group for head in chosen}) for chosen in sets) / len(sets) / (n_heads // group)
    assert deck.read_groups(n_heads, group, kept) == pytest.approx(read)


def test_seven_of_nine_heads_read_all_keys():
    assert deck.read_groups(9, 3, 7) == 1
    assert "95 % of SmolLM2's keys" in title(deck.groups_read())


def test_the_union_of_choices():
    draws = torch.rand(4000, 7, 10, generator=torch.Generator().manual_seed(0)) < 0.1
    found = float(draws.any(1).float().mean())
    assert deck.union(0.1, 7) == pytest.approx(found, abs=0.01)  # 40,000 coins: four standard errors are 0.01
    assert deck.union(0.1, 6) < 0.5 < deck.union(0.1, 7)
    assert "14 at density 0.05, 7 at density 0.1, 4 at density 0.2" in title(deck.batch_union())


def test_cosines_of_vectors():
    x = torch.tensor([2.0, 0.0])
    for ratio, between in ((0.3, 0.0), (1.0, 0.5), (2.0, -0.5)):
        added = 2 * ratio * torch.tensor([between, math.sqrt(1 - between**2)])
        wanted = torch.nn.functional.cosine_similarity(x, x + added, dim=0)
        assert deck.cosine(ratio, between) == pytest.approx(float(wanted), abs=1e-6)
    assert "0.14 ‖X‖, and one of 0.95 is 0.33 ‖X‖" in title(deck.slow_change())
