"""Titles, tables and verdicts of lesson 05 say what their numbers say, and change with them."""

import math

import pytest
import torch
from table_cells import rows

from course_lib.lessons.minitron import tables
from course_lib.lessons.minitron.figures import computed as figures
from course_lib.lessons.minitron.figures import deck, drawings
from course_lib.lessons.minitron.running import shapes
from course_lib.measure.perplexity import Perplexity
from course_lib.models import tiny_model
from course_lib.pruning.structured.shape import Shape, shape_of

DENSE = Shape(width=576, blocks=30, neurons=1536, heads=9, groups=3)


def read(*losses):
    """A perplexity of windows with these losses."""
    mean = sum(losses) / len(losses)
    return Perplexity(math.exp(mean), 1.0, 100, tuple(losses))


def title(fig):
    return fig.axes[0].get_title(loc="left").replace("\n", " ")


def counted(width, blocks, neurons, heads, groups, head_size, vocabulary):
    return (
        vocabulary * width
        + blocks * (2 * width * head_size * (heads + groups) + 3 * width * neurons + 2 * width)
        + width
    )


def test_sizes_are_counted_by_the_function_that_is_given():
    shown = [row[-2:] for row in rows(tables.sizes_table(counted, DENSE))]
    assert shown[0] == ["134,515,008", "100.0 %"]
    assert [percent for _, percent in shown].count("84.2 %") == 2, "the last two shapes have as many parameters"
    assert rows(tables.sizes_table(lambda *sizes: 7, DENSE))[0][-2] == "7"


def test_published_shapes_give_the_published_parameters():
    assert [row[-2:] for row in rows(tables.published_shapes())] == [
        ["15.63 B", "15.60 B"],
        ["8.54 B", "8.50 B"],
        ["8.27 B", "8.27 B"],
        ["4.19 B", "4.19 B"],
    ]
    assert "in 8 of 9 rows" in tables.published_benchmarks().note


def test_a_cut_is_ahead_only_where_windows_say_so():
    results = {"dense": read(3.0, 3.1), "ours": read(3.4, 3.5), "a": read(4.1, 4.2), "b": read(6.4, 6.5)}
    assert tables.cut_title(results, 1126).endswith("other choices have 2 to 20 times the perplexity")
    results["a"] = read(3.0, 4.2)
    assert tables.cut_title(results, 1126).endswith("other choices have not clearly the perplexity")


def test_which_heads_cost_more_depends_on_the_windows():
    results = {"dense": read(3.0, 3.1), "spread": read(5.0, 5.1), "whole": read(3.5, 3.6)}
    assert tables.heads_title(results) == (
        "By score, one head of every group:\n7.4 times the dense perplexity, a whole group 1.6 times"
    )
    assert tables.heads_line(results).startswith("+1.50 ± 0.00 nats a token, 2 windows.")
    assert tables.heads_line(results).endswith(": holds")
    results["spread"] = read(3.2, 3.3)
    assert tables.heads_line(results).endswith("does not hold")
    results["spread"] = read(2.0, 5.1)
    assert tables.heads_title(results).startswith("No clear difference")


def test_the_factor_and_the_refit_are_judged_window_by_window():
    plain, scaled = torch.tensor([4.0, 5.0, 6.0]), torch.tensor([3.8, 4.8, 5.9])
    assert tables.width_line({"as they were": plain, "scaled": scaled}).endswith(": holds")
    assert tables.width_line({"as they were": scaled, "scaled": plain}).endswith(": does not hold")
    assert "+0.167 ± 0.033 nats" in tables.gain_line("refit", plain, scaled)


def test_what_the_teacher_teaches_is_judged_by_the_last_losses():
    def curve(*losses, before=2.0):
        return [(0, torch.tensor([before, before])), (5, torch.tensor(losses))]

    curves = {
        "by the teacher": curve(1.5, 1.7),
        "by the text": curve(1.6, 1.81),
        "from scratch": curve(4.0, 4.0, before=5.0),
    }
    said = tables.learnt_lines(curves)
    assert "+0.1050 ± 0.0050 nats less" in said
    assert said.endswith("holds")
    fig = figures.learning(curves, torch.tensor([1.4, 1.5]))
    assert title(fig) == "Cut: 0.55 nats above the teacher before any step"
    assert [line.get_label() for line in fig.axes[0].lines] == ["by the teacher", "by the text", "the teacher"]
    assert fig.axes[1].get_title(loc="left") == "From scratch: 4.00 nats after 5 steps"


def test_titles_of_scores_are_computed():
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [10.0, 0.0, 0.0, 0.0]])
    assert (
        title(figures.share_of_the_lowest(scores, 2))
        == "The 50 % of neurons that leave hold 0 to 30 % of a block's scores"
    )
    beside = {"a": scores, "b": scores.flip(1), "c": scores}
    assert "b 0 %" in title(figures.kept_alike({name: v[:1] for name, v in beside.items()}, 2))
    together = title(figures.turned(torch.tensor([0.9, 0.1, 0.02, 0.03, 0.2]), 2))
    assert together.startswith("What turns the stream least: blocks 2 to 3 (dark)")
    assert "2 blocks (dark)" in title(figures.turned(torch.tensor([0.9, 0.01, 0.2, 0.03, 0.2]), 2))
    assert "hold 10 % of the scores" in title(figures.channels(torch.tensor([1.0, 4.0, 5.0]), 1))


def test_a_wide_range_of_perplexities_has_few_ticks():
    wide = figures.cuts({"a": read(3.0, 3.1), "b": read(13.0, 13.1)}, "title")
    near = figures.cuts({"a": read(3.0, 3.1), "b": read(3.4, 3.5)}, "title")
    assert len(wide.axes[0].xaxis.get_major_locator()._subs) == 1 < len(near.axes[0].xaxis.get_major_locator()._subs)


def test_the_worked_example_of_the_deck():
    """Neuron 2 is 6 at one token of six: its means are (2, 0), its norms (6, 0); neuron 1's are (1, 1) and √3 twice."""
    found = deck.aggregated(deck.EXAMPLE)
    assert list(found.values()) == [
        pytest.approx([1.0, 1.0]),
        pytest.approx([2**0.5, 2.0]),
        pytest.approx([3**0.5, 3.0]),
        pytest.approx([6**0.5, 6.0]),
    ]
    assert title(deck.four_aggregations()).startswith("In 3 of 4 ways")


@pytest.mark.parametrize(
    "draw",
    [
        drawings.what_leaves, drawings.before_and_after, drawings.width_and_depth, drawings.teacher_and_student,
        deck.width_and_depth_published, deck.order_published, shapes.compared, figures.speeds,
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
    assert rows(shapes.table(ideas)) == [["one", "10", "12.2", "–"], ["two", "9", "10.5", "+0.150 ± 0.006"]]
    assert rows(shapes.table(ideas, ideas["one"]))[-1][0] == "yours"
    assert title(shapes.compared(ideas)) == "Clearly better than one: two"


def test_width_and_depth_are_compared_by_windows():
    width, depth = torch.tensor([4.0, 5.0, 6.0]), torch.tensor([4.2, 5.2, 6.1])
    assert tables.depth_line(width, depth).endswith("width is better than depth: holds")
    assert tables.depth_line(depth, width).endswith("does not hold")


def test_speeds_are_counted_against_their_prediction():
    def side(contest, name, amount, times):
        row = {"contest": contest, "side": name, "bytes": amount, "flops": amount, "times_anchor": times}
        return row | {"times_anchor_low": times - 0.01, "times_anchor_high": times + 0.02}

    contests = ("8 steps of 1 at 128 tokens", "8 steps of 8 at 128 tokens", "a prompt")
    sides = [
        side(c, n, a, t) for c in contests for n, a, t in (("dense", 12, 1.0), ("cut", 10, 1.15), ("more", 8, 1.2))
    ]
    fig = figures.speeds({"tables": {"sides": sides}})
    assert fig.get_suptitle() == "Within 10 % of what bytes or FLOP predict: 3 of 6"
    assert [axes.get_title(loc="left") for axes in fig.axes] == [
        "decode, 1 sequence",
        "decode, 8 sequences",
        "a prompt",
    ]
