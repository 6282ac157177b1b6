"""Titles of figures and cells of tables of lesson 05 follow from their numbers."""

import pytest
import torch
from table_cells import rows

from course_lib.lessons.minitron import deck, plots, tables
from course_lib.lessons.minitron.experiments import shapes
from course_lib.models import tiny_model
from course_lib.pruning.structured.shape import Shape, shape_of

DENSE = Shape(width=576, blocks=30, neurons=1536, heads=9, groups=3)


def title(fig):
    return fig.axes[0].get_title(loc="left").replace("\n", " ")


def counted(width, blocks, neurons, heads, groups, head_size, vocabulary):
    return (
        vocabulary * width
        + blocks * (2 * width * head_size * (heads + groups) + 3 * width * neurons + 2 * width)
        + width
    )


def test_sizes_are_counted_by_the_function_that_is_given():
    shown = [row[-2:] for row in rows(tables.sizes(counted, DENSE))]
    assert shown[0] == ["134,515,008", "100.0 %"]
    assert [percent for _, percent in shown].count("84.2 %") == 2, "the last two shapes have as many parameters"
    assert rows(tables.sizes(lambda *sizes: 7, DENSE))[0][-2] == "7"


def test_published_shapes_give_the_published_parameters():
    assert [row[-2:] for row in rows(tables.published_shapes())] == [
        ["15.63 B", "15.60 B"],
        ["8.54 B", "8.50 B"],
        ["8.27 B", "8.27 B"],
        ["4.19 B", "4.19 B"],
    ]
    assert "in 8 of 9 rows" in tables.published_benchmarks().note


def test_losses_are_compared_with_the_first_model_window_by_window():
    losses = {"dense": torch.tensor([4.0, 5.0, 6.0]), "pruned": torch.tensor([4.2, 5.2, 6.1])}
    table = tables.losses(losses, "two models")
    assert rows(table) == [["dense", "148.4", "–"], ["pruned", "175.3", "+0.17 ± 0.03"]]
    assert "3 windows" in table.note


def test_titles_of_scores_follow_from_the_scores():
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [10.0, 0.0, 0.0, 0.0]])
    assert title(plots.pruned_scores(scores, 2)) == "The lowest 50 % of neurons hold 0 to 30 % of a block's scores"
    neighbours = title(plots.block_influence(torch.tensor([0.9, 0.1, 0.02, 0.03, 0.2]), 2))
    assert neighbours == "Lowest influence: blocks 2 to 3 (dark); highest: block 0"
    assert "2 blocks (dark)" in title(plots.block_influence(torch.tensor([0.9, 0.01, 0.2, 0.03, 0.2]), 2))
    assert "hold 10 % of the scores" in title(plots.channels(torch.tensor([1.0, 4.0, 5.0]), 1))


def test_the_worked_example_of_the_deck():
    """Neuron 2 is 6 at one token of six: its means are (2, 0), its norms (6, 0); neuron 1's are (1, 1) and √3 twice."""
    found = deck.aggregated(deck.EXAMPLE)
    assert list(found.values()) == [
        pytest.approx([1.0, 1.0]),
        pytest.approx([2**0.5, 2.0]),
        pytest.approx([3**0.5, 3.0]),
        pytest.approx([6**0.5, 6.0]),
    ]
    assert title(deck.four_aggregations()).endswith("in 3 of 4 ways")


@pytest.mark.parametrize(
    "draw",
    [
        plots.pruned_together, plots.teacher_and_student, plots.shapes, plots.speeds, deck.before_and_after,
        deck.width_and_depth, deck.width_and_depth_published, deck.order_published,
    ],
)  # fmt: skip
def test_drawings_can_be_drawn(draw, tmp_path):
    draw().savefig(tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 4000


def test_shapes_above_the_budget_and_unknown_sizes_are_refused():
    model = tiny_model()
    assert shapes.shape_within({}, model) == shape_of(model), "a tiny model is below the budget"
    with pytest.raises(ValueError, match=r"expected a dictionary of sizes by name, of width, blocks, neurons"):
        shapes.shape_within({"layers": 2}, model)
    with pytest.raises(ValueError, match="expected a dictionary"):
        shapes.shape_within([24], model)


def test_ideas_fit_the_budget_and_no_neuron_more_does():
    for name, sizes in shapes.IDEAS.items():
        shape = Shape(**(vars(DENSE) | dict(sizes)))
        n = counted(*(getattr(shape, k) for k in ("width", "blocks", "neurons", "heads", "groups")), 64, 49_152)
        assert n <= shapes.BUDGET, name
        assert n > 0.98 * shapes.BUDGET, name


def test_the_table_of_ideas_compares_by_windows():
    ideas = {
        "one": shapes.Attempt({}, 10, torch.tensor([2.0, 3.0, 2.5])),
        "two": shapes.Attempt({}, 9, torch.tensor([1.84, 2.86, 2.35])),
    }
    assert rows(tables.shapes(ideas=ideas)) == [["one", "10", "12.2", "–"], ["two", "9", "10.5", "+0.150 ± 0.006"]]
    assert rows(tables.shapes(ideas["one"], ideas))[-1][0] == "yours"
    assert title(plots.shapes(ideas)) == "Clearly better than one: two"


def test_speeds_are_counted_against_their_prediction():
    def side(contest, name, amount, times):
        row = {"contest": contest, "side": name, "bytes": amount, "flops": amount, "times_anchor": times}
        return row | {"times_anchor_low": times - 0.01, "times_anchor_high": times + 0.02}

    contests = ("8 steps of 1 at 128 tokens", "8 steps of 8 at 128 tokens", "a prompt")
    sides = [
        side(c, n, a, t) for c in contests for n, a, t in (("dense", 12, 1.0), ("cut", 10, 1.15), ("more", 8, 1.2))
    ]
    fig = plots.speeds({"tables": {"sides": sides}})
    assert fig.get_suptitle() == "Within 10 % of what bytes or FLOP predict: 3 of 6"
    assert [axes.get_title(loc="left") for axes in fig.axes] == [
        "decode, 1 sequence",
        "decode, 8 sequences",
        "a prompt",
    ]
