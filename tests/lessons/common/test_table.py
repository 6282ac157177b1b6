"""Tables: what is shown is what the frame holds, as HTML and as text of 80 columns."""

import html
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lessons.common.table import Table, count, number, percent, plain, plus_minus, with_range

ROWS = [
    {"method": "Wanda", "perplexity": 21.345, "error": 0.52, "accuracy": 0.443, "parameters": 134_515_008},
    {"method": "SparseGPT", "perplexity": 1234.5, "error": None, "accuracy": None, "parameters": 7},
]
FORMATS = {("perplexity", "error"): plus_minus(1), "accuracy": percent, "parameters": count}


def example() -> Table:
    return Table(ROWS, caption="At 50 % sparsity", formats=FORMATS, note="± one standard error.")


def cells(markup: str) -> list[list[str]]:
    """The texts of an HTML table, row by row."""
    rows = re.findall("<tr>(.*?)</tr>", markup)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_the_text_is_aligned():
    assert str(example()) == (
        "At 50 % sparsity\n\n"
        "method     perplexity  accuracy   parameters\n"
        "─────────  ──────────  ────────  ───────────\n"
        "Wanda      21.3 ± 0.5      44 %  134,515,008\n"
        "SparseGPT     1,234.5         –            7\n\n"
        "± one standard error."
    )


def test_the_html_says_the_same_as_the_text():
    assert cells(example().as_html()) == [
        ["method", "perplexity", "accuracy", "parameters"],
        ["Wanda", "21.3 ± 0.5", "44 %", "134,515,008"],
        ["SparseGPT", "1,234.5", "–", "7"],
    ]
    assert "At 50 % sparsity</caption>" in example().as_html()
    assert example().as_html().endswith("± one standard error.</p>")


def test_jupyter_gets_both():
    bundle = example()._repr_mimebundle_()
    assert bundle == {"text/html": example().as_html(), "text/plain": str(example())}


def test_the_frame_keeps_numbers_that_can_be_sorted_and_reused():
    frame = example().frame
    assert frame["perplexity"].tolist() == [21.345, 1234.5]
    assert frame.sort_values("perplexity", ascending=False)["method"].tolist() == ["SparseGPT", "Wanda"]
    again = Table(frame.sort_values("perplexity", ascending=False), caption="Sorted", formats=FORMATS)
    assert [row[0] for row in cells(again.as_html())] == ["method", "SparseGPT", "Wanda"]


def test_numbers_stand_to_the_right_and_are_not_broken():
    markup = example().as_html()
    assert re.search(r'<td style="text-align:left[^"]*">Wanda', markup)
    assert re.search(r'<td style="text-align:right;white-space:nowrap[^"]*">21.3 ± 0.5', markup)


def test_markup_in_texts_is_shown_and_not_obeyed():
    table = Table([{"<b>": "<script>alert(1)</script>"}], caption='a < b & "c"', note="<i>")
    assert not re.search(r"<(b|script|i)>", table.as_html())
    assert cells(table.as_html()) == [["<b>"], ["<script>alert(1)</script>"]]
    assert 'aria-label="a &lt; b &amp; &quot;c&quot;"' in table.as_html()


def test_long_texts_wrap_at_words_and_rows_stay_apart():
    text = "a sentence that is far too long for the place that there is " * 2
    shown = str(Table([{"what it means": text, "n": 1}, {"what it means": "short", "n": 2}], caption="Sentences"))
    assert max(map(len, shown.splitlines())) <= 80
    without_numbers = re.sub(r" [n12]$", "", shown, flags=re.MULTILINE)
    assert re.sub(r"[─\s]+", " ", without_numbers) == f"Sentences what it means {text}short "
    assert "\n\nshort" in shown


def test_columns_that_do_not_fit_follow_below_with_the_names_of_the_rows():
    rows = [{"layer": name, **{f"median of block {n}": 1000.0 * n for n in range(14)}} for name in ("up", "down")]
    shown = str(Table(rows, caption="Medians"))
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("layer") == 2
    assert sorted(map(int, re.findall(r"\b\d+000\b", shown))) == sorted(2 * [1000 * n for n in range(1, 14)])


def test_a_word_that_does_not_fit_is_not_cut():
    assert 90 * "x" in str(Table([{"a": 90 * "x"}], caption="One word"))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.text("abc ", max_size=60),
                **{f"long column name {n}": st.floats(-1e9, 1e9) for n in range(8)},
            }
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(20, 120),
)
def test_no_value_is_lost_at_any_width(rows, width):
    table = Table(rows, caption="Anything")
    columns = table.columns()
    shown = table.as_text(width)
    numbers = [cell for column in columns if column.numeric for cell in column.cells]
    missing = [cell for cell in set(numbers) if shown.split().count(cell) < numbers.count(cell)]
    assert not missing
    least = max(columns[0].least + 2 + column.least for column in columns[1:])
    assert max(map(len, shown.splitlines())) <= max(width, least)


def test_what_is_missing_is_a_dash():
    frame = pd.DataFrame({"a": [1.0, np.nan], "b": ["x", None], "c": pd.array([1, None], dtype="Int64")})
    assert cells(Table(frame, caption="Gaps").as_html())[1:] == [["1", "x", "1"], ["–", "–", "–"]]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (plain(49_152), "49152"),
        (plain(0.125), "0.125"),
        (plain(3.0), "3"),
        (plain(True), "yes"),
        (plain(np.bool_(False)), "no"),
        (plain("50 %"), "50 %"),
        (count(49_152), "49,152"),
        (number(1, "MB", 1e-6)(28_300_000), "28.3 MB"),
        (number(2, sign=True)(0.5), "+0.50"),
        (plus_minus(0, "%", 100)(0.443, 0.07), "44 ± 7 %"),
        (number(3, sign=True)(-1e-6), "+0.000"),
        (plus_minus(2, sign=True)(-0.5, 0.25), "-0.50 ± 0.25"),
        (plus_minus(1)(21.34, None), "21.3"),
        (plus_minus(1)(21.34, float("nan")), "21.3"),
        (with_range()(14, 12, 17), "14 (12–17)"),
        (with_range(1, "%", 100)(0.5, 0.25, 1.0), "50.0 (25.0–100.0) %"),
    ],
)
def test_how_values_are_written(written, expected):
    assert written == expected


@pytest.mark.parametrize(
    ("frame", "formats", "message"),
    [
        ([{"a": 1}], {"b": percent}, r"format for 'b'; expected one of the columns \['a'\]"),
        ([{"a": 1}], {("a", "error"): plus_minus()}, "format for 'error'"),
        ([{"a": 1, "b": 2}], {"a": count, ("b", "a"): plus_minus()}, "column 'a' twice"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "column 'a' twice"),
    ],
)
def test_formats_that_cannot_be_meant_are_refused(frame, formats, message):
    with pytest.raises(ValueError, match=message):
        Table(frame, caption="", formats=formats)


def test_a_table_of_no_rows_at_all_takes_any_formats():
    assert str(Table([], caption="None yet", formats={"a": count})) == "None yet\n\n(no rows)"


def test_a_table_without_rows_shows_its_columns():
    table = Table(pd.DataFrame(columns=["a", "b"]), caption="None yet")
    assert cells(table.as_html()) == [["a", "b"]]
    assert "a  b" in str(table)
