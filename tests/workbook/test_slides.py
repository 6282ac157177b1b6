"""Decks: one file each that needs nothing else, figures and formulas inside, every slide on its page."""

import base64
import html
import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from thin_model import write_thin_model

from course_lib import models
from course_lib.data.assets.cache import asset_path
from course_lib.lessons.common import style
from course_lib.lessons.common.table import Table
from course_lib.models import DEFAULT_MODEL
from course_lib.workbook.decks import chromium, markdown
from course_lib.workbook.decks import page as slides

DECK = """# Bars & more

Note: Say hello.

---

## Formulas

$$S_{ij} = |W_{ij}| \\cdot \\lVert X_j \\rVert_2$$

Inline $\\alpha_k$, and $5 or $6 are money.

| method | bytes |
|:--|--:|
| dense | 4 |

---

## Code

```
---
x = "a $b$ c"
```

---

## Figure

![a line](figure:common.style.line_for_test)
"""

HERE = Path(__file__).parent

# What makes a browser fetch something: sources, stylesheets, scripts. Links that a reader may follow are none.
FETCHES = re.compile(r"""(?:\bsrc(?:set)?\s*=\s*["']?|url\(\s*["']?|@import\s+["'])([^"')\s>]+)""")


def line_for_test():
    _, (axes,) = style.figure()
    axes.plot([1, 2, 3], [1, 4, 9])
    return axes


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course folder with one deck."""
    monkeypatch.setattr(style, "line_for_test", line_for_test, raising=False)
    (tmp_path / "slides").mkdir()
    (tmp_path / "slides" / "00_demo.md").write_text(DECK, encoding="utf-8")
    return tmp_path


@pytest.fixture
def page(course):
    return slides.as_html(course / "slides" / "00_demo.md")


def only_sections(page):
    return re.search(r'<div class="slides">(.*)</div></div>\s*<script>', page, re.DOTALL)[1]


def test_rules_separate_slides_but_not_inside_code():
    assert markdown.split_slides("a\n\n---\n\nb\n```\n---\n```\n\n---\n---\nc") == ["a", "b\n```\n---\n```", "c"]


def test_the_title_is_the_first_heading():
    assert markdown.title_of(DECK) == "Bars & more"
    with pytest.raises(ValueError, match="without a heading"):
        markdown.title_of("text")


@pytest.mark.real
def test_the_page_has_every_part(page):
    assert page.count("<title>Bars &amp; more</title>") == 1
    sections = only_sections(page)
    assert sections.count("<section>") == 4
    assert '<aside class="notes"><p>Say hello.</p>' in sections
    assert sections.count("<math") == 2
    assert "$5 or $6 are money" in sections
    assert "<td" in sections
    assert "x = &quot;a $b$ c&quot;" in sections
    assert '<img class="figure" alt="a line" src="data:image/svg+xml;base64,' in sections
    assert "Copyright" in page  # reveal.js's licence asks for it


@pytest.mark.real
def test_nothing_is_fetched(page):
    without_scripts = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    fetched = FETCHES.findall(without_scripts)
    assert len(fetched) >= 5  # three faces, the mathematics font and the figure
    assert [address for address in fetched if not address.startswith("data:")] == []
    assert "<link" not in without_scripts
    assert re.findall(r"<script[^>]+src", page) == []
    assert "sourceMappingURL" not in page


@pytest.mark.real
def test_the_same_deck_gives_the_same_bytes(course, page):
    assert slides.as_html(course / "slides" / "00_demo.md") == page


@pytest.mark.real
def test_the_mathematics_font_has_what_the_formulas_need():
    from fontTools.ttLib import TTFont

    from course_lib.workbook.decks.fonts import math_face

    rule = math_face(asset_path("math-font"), "<math><mi>&#x003B1;</mi><mo>&#x02211;</mo></math> ∫ outside")
    font = TTFont(io.BytesIO(base64.b64decode(re.search(r"base64,([^)]+)\)", rule)[1])))
    letters = font.getBestCmap()
    assert {0x3B1, 0x2211, 0x221A, ord("x"), 0x1D465} <= set(letters)  # a root for <msqrt>, and the slanted x
    assert 0x222B not in letters
    assert "MATH" in font
    assert math_face(asset_path("math-font"), "no formula") == ""


@pytest.mark.parametrize(
    ("formula", "set_as"),
    [
        (r"p \log q", '<mi>p</mi><mo lspace="0.167em" rspace="0.167em">log</mo><mi>q</mi>'),
        (r"= \operatorname{mean}(s)", '</mo><mo lspace="0" rspace="0">mean</mo><mo stretchy="false">'),
        (r"\max_i x", '<msub><mo lspace="0" rspace="0.167em">max</mo><mi>i</mi></msub><mi>x</mi>'),
        (r"s = -\infty", '<mo form="prefix">&#x02212;</mo><mi>&#x0221E;</mi>'),
        (r"\exp(-x)", '<mo stretchy="false">&#x00028;</mo><mo form="prefix">&#x02212;</mo><mi>x</mi>'),
        (r"\left(-1, x\right)", '<mo form="prefix">&#x02212;</mo><mn>1</mn>'),
        (r"[-1, 1]", '<mo stretchy="false">[</mo><mo form="prefix">&#x02212;</mo><mn>1</mn>'),
        (r"(a) - b", '<mo stretchy="false">&#x00029;</mo><mo>&#x02212;</mo><mi>b</mi>'),
        (r"a - b", "<mi>a</mi><mo>&#x02212;</mo><mi>b</mi>"),
        (r"\bar d", '<mover><mi>d</mi><mo stretchy="true">&#x0203E;</mo></mover>'),
    ],
)
def test_functions_signs_and_bars_are_set_as_by_tex(formula, set_as):
    assert set_as in markdown.mathematics(formula, "inline")


def test_bars_do_not_stretch():
    text = markdown.render("$|x|$ and $\\lVert x \\rVert$", HERE)
    assert text.count('<mo stretchy="false" lspace="0" rspace="0">') == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("![x](https://example.org/a.png)", "must not need a network"),
        ("![x](figure:nowhere.curve)", "expected figure:lesson.file.function"),
        ("![x](figure:common.style.curve)", "expected figure:lesson.file.function"),
        ("![x](figure:common.style.label)", "each argument with a default .missing a required argument: 'axes'"),
        ("$\\left( x$", "cannot be read"),
        ("$\\foo x$", r"cannot be read: \\foo is unknown"),
    ],
)
def test_mistakes_in_a_deck_are_named(text, says):
    with pytest.raises(ValueError, match=says):
        markdown.render(text, HERE)


def test_a_function_that_returns_a_table_gives_its_html(monkeypatch):
    table = Table([{"method": "Wanda", "perplexity": 21.3}], caption="At 50 % <sparsity>")
    monkeypatch.setattr(style, "table_for_test", lambda: table, raising=False)
    assert table.as_html() in markdown.render("![a table](figure:common.style.table_for_test)", HERE)


def test_a_file_beside_the_deck_is_put_inside(tmp_path):
    (tmp_path / "dot.png").write_bytes(b"png bytes")
    assert f'src="{markdown.data_uri("image/png", b"png bytes")}"' in markdown.render("![<dot>](dot.png)", tmp_path)
    assert html.escape("<dot>") in markdown.render("![<dot>](dot.png)", tmp_path)


def test_large_figures_become_pixels(monkeypatch):
    monkeypatch.setattr(style, "line_for_test", line_for_test, raising=False)
    assert markdown.draw("common.style.line_for_test")[0] == "image/svg+xml"
    monkeypatch.setattr(markdown, "LARGE_SVG", 100)
    kind, content = markdown.draw("common.style.line_for_test")
    assert (kind, content[:4]) == ("image/png", b"\x89PNG")


def test_decks_are_found_by_number_and_name(course):
    (course / "slides" / "04_wanda.md").write_text("# W")
    names = {None: 2, ("04",): 1, ("4",): 1, ("0",): 1, ("wanda",): 1, ("start",): 1, ("00_demo", "04"): 2}
    assert {key: len(slides.decks(key, course)) for key in names} == names
    with pytest.raises(ValueError, match="got lesson 'nine'; expected one of 00_demo, 04_wanda, or its number"):
        slides.decks(["nine"], course)


@pytest.mark.real
def test_without_chromium_the_page_is_written_and_that_is_said(course, monkeypatch):
    monkeypatch.setattr(chromium, "find", lambda: None)
    console = Console(file=io.StringIO(), width=200)
    assert slides.build(root=course, console=console) == 0
    assert "Chromium was not found" in console.file.getvalue()
    assert [path.name for path in (course / "build" / "slides").iterdir()] == ["00_demo.html"]


needs_chromium = pytest.mark.skipif(chromium.find() is None, reason="needs Chromium")


@pytest.mark.real
@needs_chromium
def test_chromium_prints_one_page_a_slide(course):
    assert slides.build(root=course, console=Console(file=io.StringIO())) == 0
    pdf = (course / "build" / "slides" / "00_demo.pdf").read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 4


@pytest.mark.real
@needs_chromium
def test_slides_that_are_too_full_are_found(course):
    many = "\n".join("- one more line" for _ in range(30))
    wide = f"```\n{'x' * 200}\n```"
    path = course / "slides" / "00_demo.md"
    cut = f'<div class="columns"><div>\n\n```\n{"x" * 60}\n```\n\n</div><div>Right</div></div>'
    path.write_text(
        "\n\n---\n\n".join(["# Fits", f"## Tall\n\n{many}", f"## Wide\n\n{wide}", f"## Cut\n\n{cut}", "Fits"])
    )
    console = Console(file=io.StringIO(), width=200)
    assert slides.build(pdf=False, root=course, console=console) == 1
    found = chromium.overflowing(chromium.find(), course / "build" / "slides" / "00_demo.html")
    assert set(found) == {2, 3, 4}
    assert found[2] > 300
    assert "slide 2 of 00_demo" in console.file.getvalue()


def test_every_deck_of_the_course_reads_and_each_of_its_plots_needs_no_arguments(monkeypatch):
    monkeypatch.setattr(markdown, "draw", lambda name: ("image/svg+xml", b"", markdown.plot_of(name))[:2])
    for path in slides.decks():
        text = path.read_text(encoding="utf-8")
        assert markdown.title_of(text)
        for slide in markdown.split_slides(text):
            markdown.section(slide, path.parent)


# How many blocks a deck's figures name; others look at all there are.
N_BLOCKS = {"11": 18, "00": 16, "01": 16, "03": 16, "04": 16, "07": 13, "08": 21}


@pytest.fixture
def measured_in_small(path, tmp_path_factory, monkeypatch):
    """The figures of decks measure a model that takes a moment.

    Whether a slide is too full and whether a title is cut does not depend on what was measured: the text and the sizes
    of the figures do not, and a number is about as wide as any other.
    """

    def forget():
        holders = [module for name, module in sys.modules.items() if name.startswith("course_lib.")]
        for part in [part for each in holders if hasattr(each, "load_model") for part in vars(each).values()]:
            if hasattr(part, "cache_clear"):
                part.cache_clear()

    thin_model = write_thin_model(tmp_path_factory.mktemp("thin-model"), N_BLOCKS.get(path.stem[:2], 4))
    real = models.asset_path
    monkeypatch.setattr(models, "asset_path", lambda name: thin_model if name == DEFAULT_MODEL else real(name))
    forget()
    yield
    forget()


@pytest.mark.real
@needs_chromium
@pytest.mark.parametrize("path", slides.decks(), ids=lambda path: path.stem)
@pytest.mark.usefixtures("measured_in_small")
def test_every_slide_of_the_course_fits_and_no_title_is_cut(path, tmp_path, monkeypatch):
    figures, save = [], markdown._saved
    monkeypatch.setattr(
        markdown, "_saved", lambda figure, *kind, **options: figures.append(figure) or save(figure, *kind, **options)
    )
    page = tmp_path / f"{path.stem}.html"
    page.write_text(slides.as_html(path), encoding="utf-8")
    assert len(figures) >= path.read_text(encoding="utf-8").count(f"({markdown.FIGURE}") > 0
    assert chromium.overflowing(chromium.find(), page) == {}
    for figure in figures:
        for axes in figure.axes:
            for title in (axes.title, axes._left_title, axes._right_title):
                box = title.get_window_extent()
                assert box.x0 >= -1, title.get_text()
                assert box.x1 <= figure.bbox.x1 + 1, f"cut off: {title.get_text()}"
