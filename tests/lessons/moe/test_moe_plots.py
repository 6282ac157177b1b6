"""Titles of lesson 06's figures say what their numbers say, and change with them."""

import copy

import pytest
import torch

from course_lib.lessons.common.results import load_bench
from course_lib.lessons.moe import optional_plots, plots
from course_lib.moe.classic.descent import Samples


def title(axes):
    return axes.get_title(loc="left").replace("\n", " ")


def test_loads_are_those_of_the_busiest_at_the_end():
    equal, collapsed = torch.full((3, 2, 4), 0.25), torch.full((3, 2, 4), 0.25)
    collapsed[-1, 0] = torch.tensor([0.5, 0.1, 0.4, 0.0])
    fig = plots.loads({"left alone": collapsed, "balanced": equal}, 2, every=1)
    text = fig.get_suptitle().replace("\n", " ")
    assert text == "The 2 busiest of 4 experts, last 1 steps: left alone 50 to 90 %, balanced 50 to 50 %"
    panels = [axes for axes in fig.axes if title(axes)]
    assert [title(axes) for axes in panels] == [f"{n}, block {b}" for n in ("left alone", "balanced") for b in (0, 1)]
    (image,) = panels[0].images
    assert image.get_array().shape == (4, 3)  # experts by steps
    torch.testing.assert_close(torch.as_tensor(image.get_array().data)[:, 2], torch.tensor([50.0, 10.0, 40.0, 0.0]))


def test_overflow_counts_tokens_and_slots():
    fig = plots.overflow({0.5: 0.4, 1.0: 0.7, 2.0: 1.0}, 4)
    (axes,) = fig.axes
    assert title(axes) == "At a capacity factor of 1, 30 % of the tokens are dropped"
    tokens, slots, _ = axes.lines
    torch.testing.assert_close(torch.tensor(tokens.get_ydata()), torch.tensor([60.0, 30.0, 0.0]).double())
    torch.testing.assert_close(torch.tensor(slots.get_ydata()), torch.tensor([20.0, 30.0, 50.0]).double())


def test_favourites_name_common_bytes_first():
    """Nine spaces, eight e and a line end; each byte has an expert of its own."""
    ids = torch.tensor([32] * 9 + [ord("e")] * 8 + [10])
    chosen = torch.nn.functional.one_hot(torch.tensor([1] * 9 + [0] * 8 + [2]), 3).bool()
    axes = plots.favourites(ids, chosen).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["␣", "e", "↵"]
    assert title(axes).startswith("The byte determines 100 % of the choice of expert (shuffled bytes: ")


def test_a_smooth_load_is_compared_with_a_count():
    many, counted, expected = torch.tensor([10.0, 10.0]), torch.tensor([12.0, 8.0]), torch.tensor([10.5, 9.5])
    text = title(optional_plots.smooth(counted, expected, many, 50).axes[0])
    assert text == "Mean distance from the average load: a count 20.0 %, a smooth load 5.0 %"


def test_regions_compare_all_experts_with_the_likeliest():
    """Two experts with opposite outputs, and a router that prefers the wrong one a little: right only together."""
    inputs = torch.tensor([[-1.0, 0.0, 1.0], [1.0, 0.5, 1.0]])
    samples = Samples(inputs, torch.eye(4)[[0, 1]], torch.tensor([0, 1]))
    experts, router = torch.zeros(2, 4, 3), torch.zeros(2, 3)
    experts[0, 3, 2], experts[1, 0, 0], experts[1, 1, 0] = 1.0, -9.0, 9.0
    router[0, 2] = 0.1
    fig = optional_plots.regions({"blended": (experts, router)}, samples)
    assert title(fig.axes[0]) == "blended: 100 % correct with all experts, 0 % with the likeliest alone"


def test_largest_loads_are_means_over_blocks_and_seeds():
    loads = [
        {"model": name, "seed": seed, "step": step, "block": 0, "load": [share, 1 - share]}
        for name, shares in {"alone": (0.6, 0.9), "balanced": (0.6, 0.5)}.items()
        for seed in (0, 1)
        for step, share in zip((1, 100), shares, strict=True)
    ]
    loads[1] |= {"load": [0.7, 0.3]}  # alone, seed 0, step 100
    fig = plots.largest_loads({"tables": {"loads": loads}}, ("alone", "balanced"))
    assert title(fig.axes[0]) == "Load of the busiest expert of a block at the end: alone 80 %, balanced 50 %"


def test_titles_of_speeds_come_from_the_bench(monkeypatch):
    bench = load_bench("cpu_moe")
    times = {
        side: [
            1 / each["times_anchor"]
            for each in bench["tables"]["sides"]
            if each["side"] == side and each["shape"][1] == 8
        ]
        for side in (plots.LAYER, plots.ALL)
    }
    assert [len(values) for values in times.values()] == [4, 4]
    (mine, every) = ((min(values), max(values)) for values in times.values())
    text = title(plots.speeds().axes[0])
    assert text == f"8 experts: {mine[0]:.1f} to {mine[1]:.1f} times; all run: {every[0]:.1f} to {every[1]:.1f} times"
    columns = ("times_anchor", "times_anchor_low", "times_anchor_high")
    faster = copy.deepcopy(bench)
    for each in faster["tables"]["sides"]:
        each |= {name: 2 * each[name] for name in columns}
    monkeypatch.setattr(plots, "load_bench", lambda name: faster)
    halved = title(plots.speeds().axes[0])
    assert halved.startswith(f"8 experts: {mine[0] / 2:.1f} to {mine[1] / 2:.1f} times; all run: ")


@pytest.mark.parametrize("draw", [plots.losses, plots.routers, plots.largest_loads, plots.speeds])
def test_without_arguments_the_stored_results_are_shown(draw):
    assert draw().described() != "a figure without a title"
