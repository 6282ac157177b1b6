"""The numbers that the instructor's guide quotes are those that were measured."""

import json
import re

from synthetic import experiment_challenge_class as challenge_class
from synthetic.recipes import order

from course_lib.grading.challenge.run import HALF_A_POINT, SECONDS_A_WINDOW, Request
from course_lib.workbook.masters import ROOT

GUIDE = (ROOT / "docs" / "instructors.md").read_text(encoding="utf-8")
RESULT = ROOT / "tests" / "helpers" / "synthetic" / "grading.json"


def test_the_speed_is_the_measured_one():
    stored = json.loads(RESULT.read_text(encoding="utf-8"))
    [speed] = stored["tables"]["speed"]
    everyone = next(row for row in stored["tables"]["agreement"] if row["kind"] == "all")
    assert stored["sizes"]["lesson"] == "04"
    assert speed["jobs"] == stored["machine"]["cores"] == 2
    said = re.search(
        r"synthetic class of (\d+) submissions of lesson 04 took (\d+) s on two cores, (\d+) per minute", GUIDE
    )
    assert [*map(int, said.groups())] == [speed["submissions"], round(speed["seconds"]), round(speed["a_minute"])]
    [right] = re.findall(r"grades of all\s+(\d+) were correct \(`course reproduce grading`\)", GUIDE)
    assert int(right) == everyone["equal"] == everyone["submissions"]
    assert stored["command"] == "course reproduce grading"


def test_how_well_the_challenge_ranks_is_the_measured_one():
    stored = json.loads(RESULT.with_name("challenge_class.json").read_text(encoding="utf-8"))
    rows, known = challenge_class.graded(stored["tables"]), challenge_class.known_of(stored["tables"])
    found = order(known, {name: row.points for name, row in rows.items()})
    [said] = re.findall(
        r"Of (\d+) such recipes, graded on four windows per domain, (\d+) pairs have a known order: (\w+) were "
        r"ranked the wrong way round and (\w+) tied \(`course reproduce challenge_class`\)",
        " ".join(GUIDE.split()),
    )
    assert all(row.place for row in rows.values()), "all keep to the budget"
    assert stored["sizes"]["windows"] == 4
    assert said == tuple("none" if n == 0 else str(n) for n in (len(known), found.pairs, found.inverted, found.alike))
    [swing] = re.findall(r"leaving one out changes a grade by up to ([\d.]+) points", GUIDE)
    assert float(swing) == round(max(row.swing for row in rows.values()), 1)


def test_how_much_one_window_decides_is_the_measured_number():
    stored = json.loads(RESULT.with_name("challenge_noise.json").read_text(encoding="utf-8"))
    swings = [row.swing for row in challenge_class.graded(stored["tables"]).values()]
    said = re.findall(
        r"With sixteen windows it changes (\w+) of these recipes by ([\d.]+) to ([\d.]+) points "
        r"\(`course reproduce challenge_noise`\)\. Twice as many windows halve this, so the default is (\d+),",
        " ".join(GUIDE.split()),
    )
    assert said == [("five", f"{min(swings):.1f}", f"{max(swings):.1f}", str(Request.windows))]
    assert (len(swings), stored["sizes"]["windows"], Request.windows) == (5, 16, 32)
    assert max(swings) / 2 < HALF_A_POINT


def test_the_time_a_recipe_may_take_is_more_than_was_measured():
    """The guide says what was measured, and what was not."""
    stored = [json.loads(RESULT.with_name(f"challenge_{name}.json").read_text("utf-8")) for name in ("class", "noise")]
    seconds = [step["seconds"] / each["sizes"]["windows"] for each in stored for step in each["steps"].values()]
    said = re.findall(
        r"one minute of processor time per window .*? The recipes of `challenge_class` and `challenge_noise` took "
        r"(\d+) to (\d+) s per window on one thread",
        " ".join(GUIDE.split()),
    )
    assert said == [(f"{min(seconds):.0f}", f"{max(seconds):.0f}")]
    assert max(seconds) < SECONDS_A_WINDOW == 60
