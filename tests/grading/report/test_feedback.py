"""A student's page: complete, readable, and never more than text where a submission speaks."""

import itertools
import re
from dataclasses import replace

import pytest
from hostile import LONG, PAYLOADS, hostile_result
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from made_up_class import made_up_class
from page_reader import Page, measure

from course_lib.grading.records import CaseResult, ExerciseResult, Result
from course_lib.grading.report import feedback, templates, text
from course_lib.workbook.decks import chromium

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
TAGS |= {"p", "b", "ol", "ul", "li", "a", "span", "bdi", "div", "details", "summary", "pre"}
TAGS |= {"svg", "defs", "symbol", "circle", "path", "rect", "line", "use"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "dir", "tabindex", "role"}
ATTRIBUTES |= {"width", "height", "viewbox", "cx", "cy", "r", "d", "x", "x1", "x2", "y1", "y2", "stroke-dasharray"}
ATTRIBUTES |= {"aria-hidden", "aria-label", "aria-labelledby", "focusable"}

needs_chromium = pytest.mark.skipif(chromium.find() is None, reason="needs Chromium")


def exercise(**fields):
    known = {"exercise": "wanda.score", "title": "The Wanda score", "points": 1.0, "of": 2.0, "state": "partly"}
    return ExerciseResult(**known | fields)


def result_of(*rows, **fields):
    return Result("anna", "04 Wanda", "class/anna.ipynb", 7, rows, **fields)


WRONG = exercise(
    cases=(
        CaseResult("by hand", False, None),
        CaseResult("a dead input", False, "first different at [0, 1]: got 3, expected 4"),
        CaseResult("one token", True, "got 17.25, expected 18.75"),
    ),
    reason="a dead input: first different at [0, 1]: got 3, expected 4",
    mistake="squared norm",
    explanation="Equation 1 multiplies by the norm itself.",
    hint="How large is that feature?",
    trace="Traceback\n  File 'cell 3', line 2, in wanda_score\nValueError: no",
    notes=("Two cells define wanda_score; the later one was graded.",),
)


def test_a_wrong_answer_is_told_with_all_that_is_known_of_it():
    words = Page(feedback.html(result_of(WRONG))).text
    for said in (
        "1 of 2 points",
        "Partly right",
        "1 of 3 cases right",
        "a dead input: first different at [0, 1]: got 3, expected 4",
        "This looks like: squared norm",
        WRONG.explanation,
        WRONG.hint,
        "ValueError: no",
        *WRONG.notes,
    ):
        assert said in words
    assert words.count("first different at") == 1  # the reason does not say it again


def test_what_the_first_wrong_case_was_given_is_shown_where_it_is_known():
    wrong = CaseResult("by hand", False, "got 3, expected 4", "weight = [[1, -2]], n = 1")
    assert "given: weight = [[1, -2]], n = 1" in Page(feedback.html(result_of(replace(WRONG, cases=(wrong,))))).text
    assert "given" not in Page(feedback.html(result_of(WRONG))).text


def test_of_a_hidden_case_only_the_name_and_the_verdict_are_told():
    said = feedback.html(result_of(WRONG))
    assert "one token" in said
    assert "18.75" not in said
    visible = CaseResult("by hand", False, None)
    hidden = CaseResult("one token", True, "got 17.25, expected 18.75")
    only = replace(WRONG, cases=(visible, hidden), reason="one token: got 17.25, expected 18.75")
    said = feedback.html(result_of(only))
    assert "All cases of the notebook are right. A hidden one is not" in said
    assert "18.75" not in said
    assert "ValueError: no" not in said  # the traceback is that of the hidden case


@pytest.mark.parametrize(
    ("state", "word", "advice"),
    [
        ("not attempted", "Not attempted", "Write the function"),
        ("not found", "Not found", "the name that its check uses"),
        ("failed", "Did not run", "Restart the kernel"),
        ("no submission", "No submission", ""),
    ],
)
def test_what_did_not_run_says_why_and_what_to_do(state, word, advice):
    row = exercise(state=state, points=0.0, reason="it was stopped after 60 seconds")
    words = Page(feedback.html(result_of(row, exercise(state="right", points=2.0)))).text
    assert word in words
    assert advice in words
    assert ("It was stopped after 60 seconds" in words) is (state != "not attempted")


def test_a_reason_that_all_exercises_share_is_said_once():
    rows = [exercise(title=f"Step {i}", state="failed", points=0.0, reason="the cell never ends") for i in range(5)]
    words = Page(feedback.html(result_of(*rows))).text
    assert words.count("The cell never ends") == 1
    assert all(f"Step {i}" in words for i in range(5))


def test_a_submission_that_could_not_be_graded_says_why_and_nothing_else():
    row = exercise(state="no submission", points=0.0, reason="not valid JSON")
    seen = Page(feedback.html(result_of(row, problem="not valid JSON", notes=("3 notebooks",))))
    assert seen.text.count("ot valid JSON") == 1
    assert "3 notebooks" in seen.text
    assert "section" not in seen.tags


def test_points_are_those_of_the_result():
    for result in made_up_class(30, seed=3):
        if result.problem:
            continue
        words = Page(feedback.html(result)).text
        earned = round(sum(row.points for row in result.exercises), 2)
        right = sum(row.state == "right" for row in result.exercises)
        assert f"{earned:g} of {sum(row.of for row in result.exercises):g} points" in words
        n = len(result.exercises)
        assert (f"All {n} exercises are right" if right == n else f"{right or 'None'} of {n} exercises") in words


def test_most_is_to_be_gained_where_most_was_lost():
    rows = (exercise(points=1.5), exercise(title="N of M", of=3.0, points=0.6), exercise(state="right", points=2.0))
    assert "Most is to be gained in “N of M”: 2.4 points." in Page(feedback.html(result_of(*rows))).text
    rows = (exercise(points=1.0), exercise(title="N of M", of=3.0, points=2.5))
    assert "Most is to be gained in “The Wanda score”: 1 point." in Page(feedback.html(result_of(*rows))).text


@pytest.mark.parametrize("written", [*PAYLOADS, LONG], ids=range(len(PAYLOADS) + 1))
@pytest.mark.parametrize("problem", [False, True])
def test_nothing_a_submission_says_becomes_more_than_text(written, problem):
    said = feedback.html(hostile_result(written, written if problem else ""))
    seen = Page(said)
    assert seen.tags <= TAGS
    assert {name for _, values in seen.elements for name in values} <= ATTRIBUTES
    assert all(re.fullmatch(r"#\w+", address) for address in seen.all("href"))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", said)
    assert len(said.encode("utf-8")) < 200_000


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=300), st.integers(1, 200))
def test_text_becomes_one_bounded_line_and_is_encodable(written, limit):
    made = text.clean(written, limit)
    assert len(made.splitlines()) <= 1
    assert len(made) <= limit + 30
    made.encode("utf-8")


def test_long_text_says_how_much_is_missing():
    assert text.clean("a" * 1000, 100) == "a" * 100 + " … (900 more characters)"
    assert text.trace("first\n" + "x\n" * 100 + "ValueError: last").startswith("…\nx\n")
    assert text.trace("y" * 50_000 + "last").endswith("yylast")
    assert len(text.trace("\x1b[0m" * 100_000 + "last")) < 10_000


def printed(template, said):
    """What a template makes of a text that it prints without any care."""
    return templates.environment.from_string(template).render(said=said)


@pytest.mark.parametrize("template", ["{{ said }}", "{{ said|name }}", "{{ said|sentence }}", "{{ said|trace }}"])
@settings(deadline=None, max_examples=50)
@given(st.text(max_size=300))
def test_whatever_a_template_prints_is_text(template, said):
    assert not set("<>\"'") & set(printed(template, said))
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]", printed(template, said))


def test_a_template_cleans_cuts_and_escapes_by_itself_and_only_once():
    assert printed("{{ said }}", " a\x1b[31m\n<b>\u202e & ") == "a &lt;b&gt; &amp;"
    long = "a" * 1000
    cut = f"{'a' * 700} … (300 more characters)"
    assert printed("{{ said }}", long) == cut
    assert printed("{{ said|sentence }}", long) == "A" + cut[1:]
    assert printed("{{ said|name }}", long) == f"{'a' * 120} … (880 more characters)"
    assert printed("{{ said|path }}", "class/<b>/x") == "class/<wbr>&lt;b&gt;/<wbr>x"
    assert printed("{{ said|trace }}", "<b>\n  if x:\n") == "&lt;b&gt;\n  if x:"


def test_no_template_goes_round_the_escape():
    pages = sorted(templates.FOLDER.glob("*.html"))
    assert pages
    for path in pages:
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", path.read_text(encoding="utf-8")), path.name


def test_a_template_that_names_what_is_not_there_is_refused():
    with pytest.raises(UndefinedError, match="'sad' is undefined"):
        printed("{{ sad }}", "")


def test_a_page_needs_nothing_else_and_runs_nothing():
    seen = Page(feedback.html(made_up_class(3)[2]))
    policy = next(v["content"] for t, v in seen.elements if v.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "script-src 'none'" in policy
    assert not {"script", "link", "img", "iframe", "object"} & seen.tags
    assert not re.search(r"url\((?!#)|@import", feedback.html(made_up_class(3)[2]))


def test_a_screen_reader_finds_its_way():
    seen = Page(feedback.html(made_up_class(3)[2]))
    ids = seen.all("id")
    assert len(ids) == len(set(ids))
    assert {*seen.all("aria-labelledby"), *(address[1:] for address in seen.all("href"))} <= set(ids)
    levels = [int(tag[1]) for tag, _ in seen.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    for tag, values in seen.elements:
        assert tag != "svg" or values.get("aria-hidden") == "true" or values["aria-label"]


def contrast(first, second):
    """WCAG 2: the ratio of luminances."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_in_light_and_in_dark():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    light, dark = re.findall(
        r"--paper: #.*?\}", (templates.FOLDER / "page.css").read_text(encoding="utf-8"), re.DOTALL
    )[:2]
    for theme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for name in ("ink", "quiet", "strong", "right", "partly", "wrong", "none", "link"):
            for ground in ("paper", "wash"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


@needs_chromium
def test_no_page_is_wider_than_a_phone(tmp_path):
    class_ = made_up_class(140)
    odd = [result for result in class_ if len(result.student) > 60 or not result.student.isascii()]
    pages = [feedback.html(result) for result in [*class_[:3], *odd]]
    pages += [feedback.html(hostile_result(text, problem)) for text in (LONG, PAYLOADS[1]) for problem in ("", LONG)]
    assert [seen["over"] for seen in measure(pages, 380, tmp_path)] == [0] * len(pages)
