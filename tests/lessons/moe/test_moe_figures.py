"""Titles of lesson 06's figures say what their numbers say, and change with them."""

import torch

from course_lib.lessons.moe.figures import classic, measured, routing, training
from course_lib.lessons.moe.live.classic import Climb
from course_lib.lessons.moe.live.training import Run
from course_lib.models import tiny_model
from course_lib.moe.classic.descent import Samples, Trained
from course_lib.moe.classic.learners import Mixture
from course_lib.moe.small_models.training import Reading


def title(axes):
    return axes.get_title(loc="left").replace("\n", " ")


def run(loads):
    """A model whose loads were looked at after 1, 10 and 20 steps."""
    return Run(tiny_model(), (1, 10, 20), loads, Reading(torch.zeros(2), []))


def test_loads_are_those_of_the_busiest_at_last():
    equal, collapsed = torch.full((3, 2, 4), 0.25), torch.full((3, 2, 4), 0.25)
    collapsed[-1, 0] = torch.tensor([0.5, 0.1, 0.4, 0.0])
    fig = training.loads({"left alone": run(collapsed), "balanced": run(equal)}, 2)
    found = fig.get_suptitle().replace("\n", " ")
    assert found == "What the 2 busiest of 4 experts have at last: left alone 50 to 90 %, balanced 50 to 50 %"
    panels = [axes for axes in fig.axes if title(axes)]
    assert [title(axes) for axes in panels] == [f"{n}, block {b}" for n in ("left alone", "balanced") for b in (0, 1)]
    (image,) = panels[0].images
    assert image.get_array().shape == (4, 3)  # experts by looks
    torch.testing.assert_close(torch.as_tensor(image.get_array().data)[:, 2], torch.tensor([50.0, 10.0, 40.0, 0.0]))


def test_overflow_counts_tokens_and_places():
    fig = routing.overflow({0.5: 0.4, 1.0: 0.7, 2.0: 1.0}, 4)
    (axes,) = fig.axes
    assert title(axes) == "At an equal share of places 30 % of the tokens find none"
    tokens, places, _ = axes.lines
    torch.testing.assert_close(torch.tensor(tokens.get_ydata()), torch.tensor([60.0, 30.0, 0.0]).double())
    torch.testing.assert_close(torch.tensor(places.get_ydata()), torch.tensor([20.0, 30.0, 50.0]).double())


def test_favourites_name_common_bytes_first():
    counts = torch.zeros(256, 3, dtype=torch.long)
    counts[ord("e")], counts[32], counts[10] = torch.tensor([8, 0, 0]), torch.tensor([0, 9, 3]), torch.tensor([0, 0, 1])
    fig = training.favourites(counts, 0.5, 0.01)
    axes = fig.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["␣", "e", "↵"]
    assert title(axes) == ("A byte says 50 % of what there is to know of its expert (bytes in random order: 1 %)")


def test_a_smooth_load_is_compared_with_a_count():
    many, counted, expected = torch.tensor([10.0, 10.0]), torch.tensor([12.0, 8.0]), torch.tensor([10.5, 9.5])
    found = title(routing.smooth(counted, expected, many, 50).axes[0])
    assert found == "Off the mean of many draws: one count by 20.0 %, one smooth load by 5.0 %"


def test_regions_compare_all_experts_with_the_likeliest():
    """Two experts that say the opposite, and a gate that prefers the wrong one a little: right only together."""
    inputs = torch.tensor([[-1.0, 0.0, 1.0], [1.0, 0.5, 1.0]])
    samples = Samples(inputs, torch.eye(4)[[0, 1]], torch.tensor([0, 1]))
    experts = torch.zeros(1, 2, 4, 3)
    experts[0, 0, 3, 2], experts[0, 1, 0, 0], experts[0, 1, 1, 0] = 1.0, -9.0, 9.0
    gates = torch.zeros(1, 2, 3)
    gates[0, 0, 2] = 0.1
    fig = classic.regions({"blended": Trained(Mixture(n_experts=2), (experts, gates), torch.zeros(1, 1))}, samples)
    assert title(fig.axes[0]) == "blended: 100 % right by all experts, 0 % by the likeliest one alone"


def test_a_climb_that_falls_is_said_to_fall():
    assert "never falls" in title(classic.climbed(Climb([-3.0, -2.0, -1.5], 0.3, 0.1), 2).axes[0])
    assert "falls 1 times" in title(classic.climbed(Climb([-3.0, -2.0, -2.5], 0.3, 0.1), 2).axes[0])


def test_largest_loads_are_means_over_blocks_and_seeds():
    loads = [
        {"model": name, "seed": seed, "step": step, "block": 0, "load": [share, 1 - share]}
        for name, shares in {"alone": (0.6, 0.9), "balanced": (0.6, 0.5)}.items()
        for seed in (0, 1)
        for step, share in zip((1, 100), shares, strict=True)
    ]
    loads[1] |= {"load": [0.7, 0.3]}  # alone, seed 0, step 100
    fig = measured.largest_loads({"tables": {"loads": loads}}, ("alone", "balanced"))
    assert title(fig.axes[0]) == "The busiest expert of a block has at last: alone 80 %, balanced 50 %"
