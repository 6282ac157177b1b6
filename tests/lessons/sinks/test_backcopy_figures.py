"""The figures of the idle head say what the data say, and change when the data change."""

import pytest
import torch
from figure_titles import drawn_title as title

from course_lib.lessons.sinks import claims
from course_lib.lessons.sinks.estimates import VARIANTS
from course_lib.lessons.sinks.results import backcopy as plots


def made_up(lost=0.8, n_seeds=2):
    """A few seeds of made-up numbers in the shape of backcopy.json; `lost` by a learnable sink without it."""
    attention, streaming, emergence, widths = [], [], [], []
    for variant in VARIANTS:
        for seed in range(n_seeds):
            label = {"variant": variant, "seed": seed}
            own = variant == "learnable sink"
            attention.append(
                label
                | {"busy_first_slot": 0.01, "busy_nowhere": 0.0, "idle_first_slot": 0.9 if own else 0.02}
                | {"idle_nowhere": 0.3 * (variant == "zero sink")}
            )
            for n in (0, 1, 2, 4):
                streaming.append(label | {"sinks": n, "recent": 32 - n, "others": lost * own * (n == 0), "copies": 0.0})
            for step in (50, 100):
                emergence.append(label | {"step": step, "first_slot": 0.005 * step + 0.1 * seed, "first_value": 0.25})
    for hidden, share in ((16, 0.5), (64, 0.0)):
        for seed in (0, 1):
            widths.append({"hidden": hidden, "seed": seed, "idle_first_slot": share, "others_0": 0.1, "others_1": 0.0})
    weights = torch.zeros(4, 5)
    weights[torch.arange(4), torch.tensor([0, 0, 2, 0])] = 1.0
    sample = [{"variant": "learnable sink", "seed": 0, "text": "bca ", "weights": weights.tolist()}]
    tables = {
        "attention": attention,
        "streaming": streaming,
        "emergence": emergence,
        "widths": widths,
        "sample": sample,
    }
    return {"tables": tables, "sizes": {"shape": {"hidden": 8}}}


def test_the_map_says_where_busy_and_idle_letters_look():
    """Of "bca ", the vowel reads the letter before it, in slot 2 behind the sink, and the others read the sink."""
    drawn = plots.sample(made_up())
    said = "One model of 2 (seed 0): after a trigger the head reads the letter before it (100 %),"
    assert title(drawn) == f"{said}\notherwise the first slot (100 %)"
    assert [text.get_text() for text in drawn.axes[0].get_xticklabels()] == ["sink", "b", "c", "a", "␣"]
    assert [text.get_fontweight() for text in drawn.axes[0].get_yticklabels()][2] == "bold"


def test_titles():
    costs = plots.costs(made_up())
    said = "vanilla 0.00 to 0.00, zero sink 0.00 to 0.00, learnable sink 0.80 to 0.80"
    assert title(costs) == f"Lost without the first slot, nats a letter:\n{said}"
    grown = plots.emergence(made_up())
    assert title(grown) == "In the end the sink gets 50 to 60 % of all attention"
    assert title(grown, 1) == "Its value: 0.25 to 0.25 of the others' length"


def test_claims_are_counted_over_seeds():
    measured = made_up(n_seeds=5)
    judged = [claim.judge(measured) for claim in claims.IDLE_CLAIMS]
    assert [each.words for each in judged] == ["holds"] * 5
    assert [each.ours for each in judged] == ["5 of 5 trainings"] * 4 + ["10 of 10 trainings"]
    assert plots.verdict(measured) == "\n".join(map(str, judged))
    measured = made_up(lost=0.0, n_seeds=5)
    for row in measured["tables"]["attention"][-2:]:
        row["idle_first_slot"] = 0.4
    idle, needs = claims.IDLE.judge(measured), claims.NEEDS_ITS_SINK.judge(measured)
    assert (idle.verdict, idle.ours) == ("undecided", "3 of 5 trainings")  # says nothing of most
    assert (needs.verdict, needs.ours) == ("does not hold", "0 of 5 trainings")


def test_widths_are_those_of_both_tables():
    found = plots.widths(made_up())
    assert list(found) == [8, 16, 64]
    assert found[8] == [(90.0, 0.8)] * 2
    assert found[64] == [(0.0, pytest.approx(0.1))] * 2
    left, right = plots.by_width(made_up()).axes
    assert left.get_title(loc="left") == "With 64 units the sink still gets\n0 to 0 %"
    assert right.get_title(loc="left") == "and losing it costs 0.100 to 0.100 nats"


@pytest.mark.parametrize("name", ["sample", "costs", "emergence", "verdict", "by_width"])
def test_the_committed_measurement_can_be_drawn(name):
    assert getattr(plots, name)(plots.results())
