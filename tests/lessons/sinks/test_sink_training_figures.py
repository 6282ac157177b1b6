"""The titles of the sink figures say what the data say, and change when the data change."""

import math

import pytest
from figure_titles import drawn_title as title

from course_lib.lessons.sinks.estimates import VARIANTS
from course_lib.lessons.sinks.results import training as plots

BASE = {"vanilla": 3.0, "zero sink": 3.1, "learnable sink": 2.9}
LOST = {"vanilla": 0.1, "zero sink": 0.0, "learnable sink": math.log(2)}


def made_up():
    """A measurement of made-up numbers, in the shape of lessons/sinks/sink_pretraining.json."""
    streaming, recomputed, attention, emergence = [], [], [], []
    for variant in VARIANTS:
        for sinks in (0, 1, 2, 4):
            losses = [BASE[variant] + hard + LOST[variant] * (sinks == 0) for hard in (-0.2, 0.0, 0.2)]
            row = {"variant": variant, "sinks": sinks, "recent": 128 - sinks, "losses": losses}
            value = math.exp(BASE[variant] + LOST[variant] * (sinks == 0))
            streaming.append(row | {"perplexity": value, "standard_error": 0.5})
        recomputed.append({"variant": variant, "perplexity": 20.0, "standard_error": 0.25})
        for layer in (0, 1):
            for head in (0, 1):
                share = {"vanilla": 0.1, "zero sink": 0.05, "learnable sink": 0.4}[variant] * (layer + head)
                row = {"variant": variant, "layer": layer, "head": head, "slots": [share, 0.01, 0.0, 0.0]}
                attention.append(row | {"nowhere": 0.5 * (variant == "zero sink"), "even": 0.007})
        emergence += [
            {"variant": variant, "step": step, "evaluation_loss": loss, "first_slot": [0.01, 0.001 * step]}
            for step, loss in ((1, 7.5), (100, BASE[variant]))
        ]
    registers = [
        {"registers": n, "seed": seed, "layer": layer, "median": 2.0, "q99": 3.0, "largest": 4.0 + 8 * layer * (n == 0)}
        | {"accuracy": 0.95}
        for n in (0, 4)
        for seed in (0, 1)
        for layer in (0, 1)
    ]
    rates, rate_streaming = [], []
    for rate in (0.01, 0.001):
        for step in (1, 50):
            rates.append({"rate": rate, "step": step, "evaluation_loss": 2.0, "first_slot": [rate * step, 0.0]})
        for sinks in (0, 1):
            losses = [2.0 + hard + 40 * rate * (sinks == 0) for hard in (-0.2, 0.0, 0.2)]
            rate_streaming.append({"rate": rate, "sinks": sinks, "losses": losses})
    tables = {"streaming": streaming, "recomputed": recomputed, "attention": attention, "emergence": emergence}
    return {"tables": tables | {"registers": registers, "rates": rates, "rate_streaming": rate_streaming}}


def test_cost_is_counted_in_pairs():
    percent, error = plots.cost(made_up(), "learnable sink", 0)
    assert percent == pytest.approx(100.0)
    assert error == pytest.approx(0.0, abs=1e-9)
    assert plots.cost(made_up(), "vanilla", 4, 0)[0] == pytest.approx(100 * (math.exp(-0.1) - 1))
    measured = made_up()
    measured["tables"]["streaming"][0]["losses"][0] += 0.3
    assert plots.cost(measured, "vanilla", 0)[1] == pytest.approx(100 * math.exp(0.2) * 0.3 / 3)
    assert plots.cost_at(made_up(), 0.001)[0] == pytest.approx(100 * (math.exp(0.04) - 1))


def test_titles():
    measured = made_up()
    theirs, ours = plots.beside_the_paper(measured).axes
    assert theirs.get_title(loc="left").startswith("Published: 160 million parameters")
    assert ours.get_title(loc="left").endswith("none kept instead of 4: +11 %, +0 %, +100 %")
    assert "29214" in [text.get_text() for text in theirs.texts]
    assert "29214" not in [text.get_text() for text in ours.texts]
    layers = plots.first_slot_by_layer(measured)
    assert title(layers).endswith("in fair shares:\nvanilla 21.4, zero sink 10.7, learnable sink 85.7")
    assert "a fair share, 0.7 %" in [text.get_text() for text in layers.axes[0].get_legend().get_texts()]
    rates = plots.rates(measured)
    assert title(rates) == "In the end the learned token gets\n5 % at 0.001, 50 % at 0.01"
    assert title(rates, 1) == "Loss 2.00 at 0.001, 2.00 at 0.01;\nperplexity without its sink: +4 %, +49 %"
    norms = plots.register_norms(measured)
    assert title(norms) == "Largest patch norm over the median, mean of 2 trainings:\n6.0 with 0, 2.0 with 4 registers"


DRAWN = ["beside_the_paper", "by_first_slots", "first_slot_by_layer", "rates", "register_norms"]


@pytest.mark.parametrize("name", DRAWN)
def test_the_committed_measurement_can_be_drawn(name):
    assert getattr(plots, name)(plots.results())


def test_beside_the_papers_table_the_figure_shows_ours_alone():
    drawn = plots.by_first_slots(made_up())
    assert title(drawn).endswith("none kept instead of 4: +11 %, +0 %, +100 %")
    numbers = [text.get_text() for text in drawn.axes[0].texts]  # by first slots kept, and in each by model
    assert numbers == ["22", "22", "36"] + 3 * ["20", "22", "18"]
