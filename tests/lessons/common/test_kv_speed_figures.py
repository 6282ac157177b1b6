"""The figures of the cache's bench say what was measured."""

import pytest
from figure_titles import drawn_title as title
from table_cells import headings, rows

from course_lib.lessons.common import cache_speed as plots


def row(contest, shape, side, times, anchor="DynamicCache", seconds=1.0):
    spread = {"times_anchor": times, "times_anchor_low": 0.9 * times, "times_anchor_high": 1.1 * times}
    return {"contest": contest, "shape": shape, "side": side, "anchor": anchor, "median_seconds": seconds} | spread


def made_up():
    """Numbers in the shape of kernels/bench/results/cpu_kv.json."""
    sides = []
    for n, gain in ((1, 1.5), (8, 3.0)):
        contest = (f"8 steps of {n} at 4096 tokens", [n, 4096])
        sides += [
            row(*contest, "DynamicCache", 1.0),
            row(*contest, "DynamicCache, 20 % of the text", gain + 1),
            row(*contest, "nothing evicted", gain + 2),
            row(*contest, "H2O, 20 %", gain - 0.5),
            row(*contest, "SnapKV, 20 %", gain),
        ]
    for n in (1024, 2048):
        sides += [row("a prompt", [1, n], "DynamicCache", 1.0), row("a prompt", [1, n], "H2O, 20 %", 0.5, seconds=2.0)]
    for n, times in ((256, 4.0), (512, 8.0)):
        for side, gain, seconds in (("the window recomputed", 1.0, times / 10), ("StreamingLLM", times, 0.1)):
            sides.append(row("a token of a stream", [1, n], side, gain, "the window recomputed", seconds))
    return {"tables": {"sides": sides}}


def test_a_fifth_is_compared_with_everything_in_the_same_cache():
    """Ranges decide: 1.5 is 1.35 to 1.65, and everything 3.15 to 3.85. The stock cache of a short text is left out."""
    drawn = plots.steps(made_up())
    said = "1 × 4096 tokens: nothing evicted 3.50 times;\nclearly more with 0 of 2 that read 20 %"
    assert title(drawn) == said
    quick = made_up()
    for side in quick["tables"]["sides"]:
        if side["side"] == "nothing evicted":
            side |= {"times_anchor": 1.1, "times_anchor_low": 1.0, "times_anchor_high": 1.2}
    assert title(plots.steps(quick)).endswith("clearly more with 1 of 2 that read 20 %")
    assert title(plots.steps(quick), 1).endswith("clearly more with 2 of 2 that read 20 %")
    assert [bar.get_width() for bar in drawn.axes[0].patches] == [1.5, 1.0, 3.5, 2.5]
    assert drawn.axes[0].get_yticklabels()[0].get_text() == "SnapKV, 20 %"


def test_transformers_static_cache_is_hatched_where_it_was_measured():
    measured = made_up()
    measured["tables"]["sides"].insert(1, row("8 steps of 1 at 4096 tokens", [1, 4096], "StaticCache", 4.4))
    drawn = plots.steps(measured)
    assert title(drawn) == title(plots.steps(made_up()))
    hatched = [bar.get_hatch() for bar in drawn.axes[0].patches]
    assert (len(hatched), hatched[-1], hatched.count("//")) == (5, "//", 2)
    assert drawn.axes[0].get_yticklabels()[-1].get_text() == "StaticCache"


def test_a_step_and_the_window_anew():
    drawn = plots.streams(made_up())
    assert title(drawn) == "A step is 4.0 times as fast at 256 slots, 8 times at 512"
    assert list(drawn.axes[0].lines[0].get_ydata()) == [0.4, 0.8]


def test_prompts_are_told_as_times_longer():
    table = plots.prompts(made_up())
    assert headings(table) == ["cache", "1024 tokens: seconds", "2048 tokens: seconds"]
    assert rows(table)[1] == ["H2O, 20 %", "2.00 (2.00 ×)", "2.00 (2.00 ×)"]


@pytest.mark.parametrize("name", ["steps", "streams", "prompts"])
def test_the_committed_measurement_can_be_drawn(name):
    assert getattr(plots, name)()
