"""Dots on a log scale: errors reach as far to both sides, and nothing has a length."""

import math

import pytest

from course_lib.lessons.common.dots import FEW, edged, error_bars, perplexities, reach, side_by_side
from course_lib.lessons.common.style import figure


def test_errors_reach_alike_on_the_log():
    below, above = reach(40.0, 20.0)  # the log's error is 0.5: two of them are a factor of e
    assert (40 - below, 40 + above) == (pytest.approx(40 / math.e), pytest.approx(40 * math.e))
    assert reach(40.0, 400.0)[0] < 40  # no error reaches below nothing


def test_a_line_a_model_and_no_bars():
    drawn = perplexities({"a": (40.0, 4.0), "b": (50.0, 5.0)}, "a title", n=8)
    (axes,) = drawn.axes
    assert axes.get_xscale() == "log"
    assert not axes.patches
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["b", "a"]
    assert axes.get_xlabel().endswith("two standard errors, n = 8)")


def test_a_figure_says_how_few_samples_its_errors_come_from():
    assert error_bars(FEW - 1).endswith(f", n = {FEW - 1}")
    assert error_bars(FEW) == "bars: two standard errors"


def test_groups_stand_side_by_side():
    _, (axes,) = figure()
    side_by_side(axes, ("x", "y"), {"one": [(5.44, 1.0), (20.0, 1.0)], "two": [(30.0, 1.0), (40.0, 1.0)]})
    centres = [container.lines[0].get_xdata().tolist() for container in axes.containers]
    assert centres == [pytest.approx([-0.2, 0.8]), pytest.approx([0.2, 1.2])]
    assert axes.get_yscale() == "log"
    assert not axes.patches
    assert [text.get_text() for text in axes.texts] == ["5.4", "20", "30", "40"]  # 5.4 and 5.1 are told apart


def test_error_bars_on_dark_bars_have_an_edge():
    _, (axes,) = figure()
    bars = axes.bar([0, 1], [50, 80], yerr=[10, 5], capsize=3)
    edged(bars)
    _, caps, lines = bars.errorbar
    assert all(part.get_path_effects() for part in (*caps, *lines))
