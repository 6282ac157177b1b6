"""The instructor's page: its numbers, counted again from the results; its sentences; its signals; its sorting."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from statistics import median
from urllib.parse import unquote

import pytest
from hostile import LONG, PAYLOADS, hostile_result
from made_up_class import made_up_class
from page_reader import Page, measure

from course_lib.grading.intake.student_ids import file_name
from course_lib.grading.records import ExerciseResult, Result
from course_lib.grading.report import charts, similar_code, templates, text
from course_lib.grading.report import page as report
from course_lib.grading.report.page import Facts
from course_lib.lessons.wanda.exercises import EXERCISES
from course_lib.workbook.decks import chromium

FACTS = Facts("04 Wanda", 7, "2025-11-21T10:18:00+00:00", 372.0, 200, "bwrap", {"torch": "2.13.0"})
TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "main",
    "section",
    "nav",
    "footer",
    "h1",
    "h2",
    "h3",
}
TAGS |= {"p", "ul", "li", "a", "span", "bdi", "div", "details", "summary", "dl", "dt", "dd", "small", "figure", "i"}
TAGS |= {"figcaption", "table", "thead", "tbody", "tr", "th", "td", "wbr", "script"}
TAGS |= {"svg", "defs", "pattern", "circle", "rect", "line", "text"}

needs_chromium = pytest.mark.skipif(chromium.find() is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def class_():
    return made_up_class(200)


@pytest.fixture(scope="module")
def seen(class_):
    return Page(report.html(class_, FACTS))


def student(name, *rows, problem=""):
    return Result(name, "04 Wanda", f"class/{name}.ipynb", 7, rows, problem=problem)


def row(state="right", points=2.0, **fields):
    known = {"exercise": "wanda.score", "title": "The score", "points": points, "of": 2.0, "state": state}
    return ExerciseResult(**known | fields)


def test_the_headline_counts(class_, seen):
    graded = [result for result in class_ if not result.problem]
    silent = [r for r in graded if {row.state for row in r.exercises} <= {"failed", "not found"}]
    totals = [round(sum(row.points for row in result.exercises), 2) for result in graded]
    share = round(100 * sum(totals) / sum(row.of for result in graded for row in result.exercises))
    of = sum(row.of for row in graded[0].exercises)
    assert len(graded) < len(class_)
    assert silent
    for said in (
        f"Submissions {len(class_)} Graded {len(graded)}",
        f"With problems {len(class_) - len(graded) + len(silent)}",
        f"Median {text.number(median(totals))} of {of:g}",
        f"Points earned {share} %",
        f"Half of the class has at least {text.number(median(totals))} of {of:g} points; {totals.count(of)} have all",
    ):
        assert said in seen.text


def test_every_exercise_has_its_shares(class_, seen):
    graded = [result for result in class_ if not result.problem]
    heads, *rows = seen.tables["How each exercise went"]
    assert heads[2:7] == ["Right", "Partly right", "Wrong", "Did not run", "Not attempted"]
    assert len(rows) == len(EXERCISES)
    for index, (title, _, *shares, points) in enumerate(rows):
        mine = [result.exercises[index] for result in graded]
        states = Counter(row.state for row in mine)
        counts = [states["right"], states["partly"], states["wrong"], states["failed"] + states["not found"]]
        counts.append(states["not attempted"])
        assert title == mine[0].title
        assert [int(re.search(r"\((\d+)\)", share)[1]) for share in shares] == counts
        assert [int(share.split()[0]) for share in shares] == [round(100 * n / len(mine)) for n in counts]
        assert points == f"{text.number(sum(row.points for row in mine) / len(mine))} of {mine[0].of:g}"


def test_every_named_mistake_is_counted_and_explained(class_, seen):
    made = Counter((row.mistake, row.title) for r in class_ if not r.problem for row in r.exercises if row.mistake)
    said = {(row.mistake, row.title): row.explanation for result in class_ for row in result.exercises}
    rows = seen.tables["Mistakes with a name"][1:] + seen.tables["Rarer mistakes"][1:]
    assert {(name, title): int(n) for name, title, n, _, _ in rows} == made
    assert all(explanation.startswith(said[name, title]) for name, title, _, _, explanation in rows)
    assert [int(n) for _, _, n, _, _ in rows] == sorted(made.values(), reverse=True)
    name, title, n, *_ = rows[0]
    assert f"The most common mistake with a name is “{name}” in “{title}”: {n} submissions make it." in seen.text


def test_the_histogram_holds_every_graded_submission(class_):
    totals = [result.points for result in class_ if not result.problem]
    assert sum(charts.bars(totals, 20.0)) == len(totals)
    assert charts.bars([0.0, 0.99, 1.0, 19.0, 20.0, 20.0], 20.0) == [2, 1, *[0] * 17, 3]
    assert charts.bars([0.3, 0.1 + 0.2], 1.0)[3] == 2  # a bar begins at its lower end, whatever the rounding
    assert [charts.bar_width(of) for of in (1.0, 20.0, 21.0, 100.0, 3.0)] == [0.1, 1, 2, 5, 0.2]
    assert charts.bars([5.0], 0.0) == [1]


@pytest.mark.parametrize("median_", [0.0, 14.0, 20.0, 21.0])
def test_the_median_stands_where_its_number_does(median_):
    """21 points are drawn as bars of 2, and the last bar is of 1 point: the axis is no longer one scale."""
    seen = Page(report.html([student(name, row(points=median_, of=21.0)) for name in "abc"], FACTS))
    numbers = [
        (label, values["x"]) for label, values in seen.labels if re.fullmatch(r"\d+", label) and not values.get("class")
    ]
    lines = [values["x1"] for tag, values in seen.elements if tag == "line" and values["class"] == "median"]
    expected = [x for label, x in numbers if label == f"{median_:g}"]
    assert len(lines) == 2  # for a wide and for a narrow screen
    assert lines == expected


def test_a_place_in_the_histogram_by_hand():
    chart = charts.histogram([], 21)
    assert (chart.step, len(chart.heights)) == (2, 11)
    assert [chart.place(points) for points in (0, 3, 14, 20, 20.5, 21)] == [0, 1.5, 7, 10, 10.5, 11]
    assert charts.histogram([], 0).place(0) == 0


def test_problems_are_listed_with_their_reasons(class_, seen):
    lost = [(text.clean(result.student, 120), "not graded", result.problem) for result in class_ if result.problem]
    rows = [tuple(cells[:3]) for cells in seen.tables["Problems"][1:]]
    assert [(name, what, why) for name, what, why in rows if what == "not graded"] == [
        (name, what, why[0].upper() + why[1:]) for name, what, why in lost
    ]
    states = [row.state for r in class_ for row in r.exercises if {e.state for e in r.exercises} != {"failed"}]
    single = seen.tables["Single exercises that did not run"][1:]
    assert len(single) == states.count("failed") + states.count("not found")


def test_every_student_has_a_row_and_a_link(class_, seen):
    rows = seen.tables["All students"][1:]
    known = {text.clean(result.student, 120): text.number(result.points) for result in class_}
    assert {name: points.split()[0] for name, _, points, _ in rows} == known
    assert len(rows) == len(class_)
    links = [unquote(address) for address in seen.all("href") if address.startswith("feedback/")]
    assert {f"feedback/{file_name(result.student)}.html" for result in class_} == set(links)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 1000])
def test_classes_of_every_size_have_a_page(n):
    class_ = [
        replace(result, student=f"s{i}") for i, result in enumerate(made_up_class(min(n, 100)) * max(n // 100, 1))
    ]
    seen = Page(made := report.html(class_, FACTS))
    assert f"Submissions {n:,}" in seen.text
    assert len(seen.tables.get("All students", [None])) == n + 1
    assert len(made) < 1_500_000
    assert "nan" not in seen.text


def test_what_it_says_of_small_classes():
    assert "There are no submissions." in Page(report.html([], FACTS)).text
    lost = student("a", row("no submission", 0.0), problem="no notebook")
    assert "Nothing was graded." in Page(report.html([lost], FACTS)).text
    one = Page(report.html([student("a", row("partly", 1.5))], FACTS)).text
    assert "The one graded submission has 1.5 of 2 points" in one
    full = Page(report.html([student(name, row()) for name in "abc"], FACTS)).text
    assert "Every exercise of every graded submission is right." in full
    assert "Every submission was read, and every function ran." in full


@pytest.mark.parametrize("said", [*PAYLOADS, LONG], ids=range(len(PAYLOADS) + 1))
@pytest.mark.parametrize("problem", [False, True])
def test_nothing_a_submission_says_becomes_more_than_text(said, problem):
    results = [hostile_result(said, said if problem else ""), hostile_result(f"{said}2")]
    made = report.html(results, replace(FACTS, lesson=said, started=said, versions={said: said}))
    seen = Page(made)
    assert seen.tags <= TAGS
    assert not [name for _, values in seen.elements for name in values if name.startswith("on") or name == "src"]
    assert all(re.fullmatch(r"#\w+|feedback/[\w.%@+-]+\.html", address) for address in seen.all("href"))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", made)
    assert len(made.encode("utf-8")) < 300_000


def test_only_the_pages_own_script_runs(seen):
    policy = next(v["content"] for t, v in seen.elements if v.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(templates.SORT.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert [tag for tag, _ in seen.elements].count("script") == 1


def test_a_screen_reader_finds_its_way(seen):
    ids = seen.all("id")
    assert len(ids) == len(set(ids))
    anchors = {address[1:] for address in seen.all("href") if address.startswith("#")}
    assert {*seen.all("aria-labelledby"), *anchors} <= set(ids)
    for tag, values in seen.elements:
        assert tag != "svg" or values.get("aria-hidden") == "true" or values["aria-label"]


LENGTHY = "def v0(v1, v2):\n" + "    v3 = v1.abs() * v2.norm(dim=0)\n" * 4 + "    return v3"
SHORT = "def v0(v1):\n    return v1.abs()"


def test_long_code_that_few_share_is_a_signal_and_other_code_is_none():
    def class_of(n, code, copies):
        return [student(f"s{i}", row(code=code if i < copies else f"{i} {LENGTHY}")) for i in range(n)]

    (found,) = similar_code.shared(class_of(100, LENGTHY, 3))
    assert found.telling
    assert found.students == ("s0", "s1", "s2")
    assert (found.n, found.right) == (100, True)
    assert not similar_code.shared(class_of(100, SHORT, 3))[0].telling  # too short
    assert not similar_code.shared(class_of(100, LENGTHY, 11))[0].telling  # by too many
    assert similar_code.shared(class_of(4, LENGTHY, 2))[0].telling  # two are few in any class
    assert similar_code.shared(class_of(4, LENGTHY, 1)) == []
    assert similar_code.shared([student(name, row("not attempted", 0.0, code=LENGTHY)) for name in "ab"]) == []


def test_pairs_are_ordered_by_what_they_share():
    def codes(*all_, states=("right",) * 3):
        return [
            row(state, code=code and f"{code} {LENGTHY}", exercise=f"e{i}", title=f"Exercise {i}")
            for i, (code, state) in enumerate(zip(all_, states, strict=True))
        ]

    wrong = ("wrong", "right", "right")
    results = [
        student("ann", *codes("a", "b", "c")),
        student("ben", *codes("a", "b", "x")),
        student("cid", *codes("y", "z", "c")),
        student("dan", *codes("w", "v", "u", states=wrong)),
        student("eva", *codes("w", "t", "s", states=wrong)),
    ]
    found = similar_code.pairs(similar_code.shared(results))
    assert [(pair.students, len(pair.exercises), pair.wrong) for pair in found] == [
        (("ann", "ben"), 2, 0),
        (("dan", "eva"), 1, 1),
        (("ann", "cid"), 1, 0),
    ]
    seen = Page(report.html(results, FACTS))
    assert seen.tables["Pairs with the same code"][1:] == [["ann and ben", "2", "0", "Exercise 0, Exercise 1"]]
    assert len(seen.tables["Code that few share"]) == 5
    assert "none of them has changed a grade" in seen.text


def test_calls_and_touches_are_told():
    results = [
        student("ann", row(only_calls=True, uses=("course_lib.pruning.base.Gram",))),
        student("ben", row(touched=("open solutions/04_wanda.py",))),
    ]
    seen = Page(report.html(results, FACTS))
    assert seen.tables["Functions that only call course_lib"][1:] == [
        ["ann", "The score", "course_lib.pruning.base.Gram"]
    ]
    assert seen.tables["Attempts to open what belongs to the grader"][1:] == [
        ["ben", "The score", "open solutions/04_wanda.py"]
    ]


def test_on_a_phone_every_cell_says_its_column(class_):
    """There a row is a card, and the heading of a column is what its cells say in data-label."""
    several = [student(name, row(code=LENGTHY), row(code=f"{LENGTHY} ", exercise="e")) for name in "ab"]
    for results in (class_, several, [student("a", row(only_calls=True, uses=("x",), touched=("y",)))]):
        seen = Page(report.html(results, FACTS))
        tables = "".join(
            {"table": "\n", "th": f"<{values.get('scope')}>", "td": f"<{values.get('data-label')}>"}.get(tag, "")
            for tag, values in seen.elements
        ).split("\n")[1:]
        assert tables
        for cells, (heads, *rows) in zip(tables, seen.tables.values(), strict=True):
            expected = "<row>" + "".join(f"<{head}>" for head in heads[1:])
            assert cells == "<col>" * len(heads) + expected * len(rows)


def test_times_are_told_slowest_first(class_, seen):
    times = {text.clean(r.student, 120): sum(row.seconds for row in r.exercises) for r in class_ if not r.problem}
    slowest = sorted(times.values(), reverse=True)[:10]
    assert [times[name] for name, _ in seen.tables["Slowest submissions"][1:]] == slowest  # ties in any order
    assert [ran for _, ran in seen.tables["Slowest submissions"][1:]] == [text.duration(each) for each in slowest]
    assert [text.duration(s) for s in (0.04, 9.96, 61, 90, 3599, 3600, 7265)] == [
        *("0.0 s", "10.0 s", "61 s", "1 min 30 s", "59 min 59 s", "1 h 0 min", "2 h 1 min")
    ]


@needs_chromium
def test_no_page_is_wider_than_a_phone_and_a_click_sorts(tmp_path, class_):
    odd = [hostile_result(LONG), hostile_result(PAYLOADS[1], PAYLOADS[1])]
    pages = [report.html(results, FACTS) for results in (class_[:60], [], class_[:1], odd)]
    found = measure(pages, 380, tmp_path)
    assert [each["over"] for each in found] == [0] * 4
    titles = [exercise.title for exercise in class_[0].exercises]
    assert found[0]["before"] == titles
    assert found[0]["once"] == sorted(titles, key=str.casefold)
    assert found[0]["twice"] == found[0]["once"][::-1]
