"""Tables drawn as figures."""

from matplotlib.backends.backend_agg import FigureCanvasAgg

from course_lib.lessons.common.claim import PERCENT, Claim
from course_lib.lessons.common.drawn_tables import drawn_claims, drawn_table, wrapped
from course_lib.lessons.common.verdicts import of_count


def test_long_cells_are_wrapped():
    (axes,) = drawn_table(("a", "b"), [("one two three", "x")], (7, 4)).axes
    assert [text.get_text() for text in axes.texts] == ["a", "b", "one two\nthree", "x"]


def test_a_number_stays_with_its_percent_sign_and_its_error():
    assert wrapped("it is within 1 % of 2.1 ± 0.3", 14) == "it is within\n1\xa0% of\n2.1\xa0±\xa00.3"


def test_columns_do_not_touch():
    fig = drawn_table(("a", "b"), [("masked), 22 ± 11 times (10 %", "holds")], (28, 20))
    FigureCanvasAgg(fig).draw()  # which gives the axes their place
    (axes,) = fig.axes
    left, right = (text.get_window_extent() for text in axes.texts[2:])
    assert left.x1 < right.x0


def test_claims_show_both_numbers_and_a_bold_verdict():
    claim = Claim(
        id="kv-x",
        text="most layers do",
        measure=lambda: of_count(29, 30),
        above=0.5,
        unit=PERCENT,
        quantity="layers that do",
        refuted="half of them that do not",
        published="over 90 %",
    )
    (axes,) = drawn_claims([claim], title="what was claimed").axes
    assert [text.get_text() for text in axes.texts[4:]] == ["most layers do", "over 90\xa0%", "96.7\xa0%", "holds"]
    assert axes.texts[-1].get_fontweight() == "bold"
    assert axes.get_title(loc="left") == "what was claimed"
