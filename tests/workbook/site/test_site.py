"""The site as it is built, with a short lesson that has a bit of everything: pages, and what a browser says of them."""

import html
import os
import re
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import browser, needs_browser
from filelock import FileLock
from rich.console import Console

from course_lib.workbook.masters import ROOT
from course_lib.workbook.site import build as site
from course_lib.workbook.site import made

LARGEST_PAGE, LARGEST_SITE = 2e6, 40e6
PARTS = ("docs", "README.md", "SECURITY.md", "pyproject.toml")
MASTER = """
# %% [markdown]
# # 00 · Start here
#
# The *roofline* says $t \\ge \\max(F/\\pi, Q/\\beta)$, and a bit is worth $\\log_2 2$ or $\\log(2)$:
#
# $$\\lVert x \\rVert_2 = \\sqrt{\\textstyle\\sum_i x_i^2}$$

# %%
import math

import torch
from IPython.display import HTML

from course_lib.lessons.common import style
from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.results import say
from course_lib.workbook import check, show_progress

# %% [markdown]
# ## The sparsity of a tensor

# %% exercise="start.sparsity"
def sparsity(tensor):
    \"\"\"Share of the entries that are zero.\"\"\"
    ### BEGIN SOLUTION
    return (tensor == 0).double().mean().item()
    ### END SOLUTION

# %%
check("start.sparsity", sparsity)

# %% [markdown]
# <details><summary>Why?</summary>
#
# Since half of them are zero.
#
# </details>

# %%
say("a line that is long enough to be wrapped " * 5)
for title in ("Half of all entries are zero", "Two sinks are as good as four"):
    drawn, (axes,) = style.figure()
    style.label(axes, title, "share", "sinks")
    axes.plot([0, 1])
    display(drawn)
print(torch.ones(2, 3), "x" * 200)
display(HTML(f"<pre style='overflow-x:auto'>{'x' * 200}</pre>"))
methods = ("magnitude pruning", "Wanda", "SparseGPT with an update of the weights")
layers = {f"perplexity of layer {n}": n + 0.25 for n in range(5)}
rows = [{"method": name} | layers | {"error": 0.5} for name in methods]
joined = {("perplexity of layer 4", "error"): plus_minus(1)}
display(Table(rows, caption="Perplexity by method", formats=joined, note="± one standard error."))
show_progress()
"""
DECK = "# Start here\n\n---\n\n## A formula\n\n$$x^2$$\n\nNote: What is it?\n"
DECK += "".join(f"\n---\n\n## More {n}\n" for n in range(8))  # of a number of one digit axe does not judge the contrast
KINDS = ("index.html", "lessons/00_start_here.html", "glossary.html", "instructors.html", "search.html?q=sinks")
KINDS += (
    "404.html",
    "claims.html?words=sinks&verdict=holds",
    "decks/00_start_here.html",
)  # of all claims a few are looked at


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """The folder with the pages; of all workers the first one builds them, and the others wait for it."""
    if not (ROOT / "solutions").is_dir():
        pytest.skip("a student's copy has no masters")
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "course"
    with FileLock(root.with_suffix(".lock")):
        if not (done := root / "built").exists():
            shutil.rmtree(root, ignore_errors=True)  # of a worker that failed
            _build(root)
            done.touch()
    return root / "build" / "site" / "html"


def _build(root: Path) -> None:
    root.mkdir()
    for name in PARTS:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
    (root / "solutions").mkdir()
    (root / "solutions" / "00_start_here.py").write_text(MASTER, encoding="utf-8")
    (root / "slides").mkdir()
    (root / "slides" / "00_start_here.md").write_text(DECK, encoding="utf-8")
    solved = root / "build" / "home" / "progress.json"  # by somebody who ran the masters here
    solved.parent.mkdir(parents=True)
    solved.write_text('{"start.sparsity": {"attempts": 1, "solved": "2026-01-01"}}', encoding="utf-8")
    console = Console(record=True, width=200)
    assert site.build(["00"], with_solutions=True, root=root, console=console) == 0, console.export_text()


@pytest.fixture(scope="module")
def pages(built) -> dict[str, str]:
    return {str(path.relative_to(built)): path.read_text(encoding="utf-8") for path in built.rglob("*.html")}


def test_a_process_can_build_twice(tmp_path):
    """What Sphinx registers in a process would be there already, and be warned of."""
    for name in ("first", "second"):
        (tmp_path / name / "source").mkdir(parents=True)
        (tmp_path / name / "source" / "index.md").write_text("# A page\n\nIts text.\n", encoding="utf-8")
        (tmp_path / name / "extra").mkdir()
        assert site._sphinx(tmp_path / name, tmp_path / name / "html") == ""


def test_what_lies_there_as_it_was_made_is_not_made_again(tmp_path, monkeypatch):
    folder, target, runs, warnings = tmp_path, tmp_path / "html", [], ["", "", "", "", "a warning", ""]

    def sphinx(_, empty):
        (empty / "index.html").write_text("a page")
        runs.append(empty)
        return warnings[len(runs) - 1]

    def again() -> int:
        before = len(runs)
        site._pages(folder, target)
        return len(runs) - before

    monkeypatch.setattr(site, "_sphinx", sphinx)
    for name in ("source", "extra"):
        (folder / name).mkdir()
    assert [again(), again()] == [1, 0]
    (target / "index.html").write_text("altered")
    assert [again(), again()] == [1, 0]
    (target / "index.html").unlink()
    assert [again(), again()] == [1, 0]
    (folder / "source" / "index.md").write_text("changed")
    assert [again(), again()] == [1, 0]
    monkeypatch.setattr(made, "distributions", lambda: [])  # as with other versions
    assert [again(), again(), again()] == [1, 1, 0]  # what warned is made until it does not


def links(page: str, attribute: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(rf'\s{attribute}="([^"]*)"', page)]


def test_every_link_within_the_site_leads_somewhere(built, pages):
    ids = {name: set(re.findall(r'\sid="([^"]+)"', page)) for name, page in pages.items()}
    broken = []
    for name, page in pages.items():
        for link in links(page, "href") + links(page, "src"):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            path = (built / name).parent / target.partition("?")[0] if target else built / name
            there = path.resolve().relative_to(built.resolve())
            if not path.is_file() or (anchor and path.suffix == ".html" and anchor not in ids[str(there)]):
                broken.append(f"{name}: {link}")
    assert broken == []


def test_no_page_asks_another_machine_for_anything(built, pages):
    asked = {}
    for name, page in pages.items():
        tags = re.findall(r"<(?:script|img|link|iframe|source|video|audio)\b[^>]*>", page)
        found = [
            tag for tag in tags if re.search(r'(?:src|href)="(?:https?:)?//', tag) and 'rel="canonical"' not in tag
        ]
        asked |= {name: found} if found else {}
    assert asked == {}
    for sheet in built.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet


def test_every_figure_has_a_text_that_says_what_is_found(pages):
    pictures = [(name, tag) for name, page in pages.items() for tag in re.findall(r"<img\b[^>]*>", page)]
    assert len([where for where, _ in pictures if where.startswith("lessons/")]) == 2
    assert [where for where, tag in pictures if not re.search(r'\balt="[^"]{12,}"', tag)] == []


def test_every_page_has_one_heading_above_all(pages):
    assert {name: n for name, page in pages.items() if (n := len(re.findall(r"<h1[\s>]", page))) != 1} == {}


def test_pages_and_the_site_stay_small(built, pages):
    assert {name: len(page) for name, page in pages.items() if len(page.encode()) > LARGEST_PAGE} == {}
    assert sum(path.stat().st_size for path in built.rglob("*") if path.is_file()) < LARGEST_SITE


def test_no_page_names_a_folder_of_the_machine_that_made_it(built, pages):
    own = {str(Path.home()), str(ROOT), str(built.parents[2])} - {"/"}
    assert {name: folder for name, page in pages.items() for folder in own if folder + "/" in page} == {}


def test_solutions_are_folded_under_their_exercises_when_asked_for(pages):
    page = pages["lessons/00_start_here.html"]
    exercise = page.index("Exercise start.sparsity: replace this line")
    solution = page.index("BEGIN SOLUTION", exercise)
    assert "<details" in page[exercise:solution]
    assert page.index("check", solution) > solution


def test_nothing_is_solved_in_a_page_whoever_solved_something_where_it_is_made(pages):
    shown = pages["lessons/00_start_here.html"].partition("Stored in progress.json")[0]
    points = re.findall(r"(\d+) of \d+ ", shown[shown.rindex("hints used") :])
    assert len(points) > 1
    assert set(points) == {"0"}


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_wide_table_scrolls_in_its_box_and_can_be_selected(built, width):
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme="dark")
        page.goto(f"{built.as_uri()}/lessons/00_start_here.html")
        box = page.get_by_role("region", name="Perplexity by method")
        shown, inside = box.evaluate("box => [box.clientWidth, box.scrollWidth]")
        assert (inside > shown) == (width == 390)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        selected = box.evaluate("box => { getSelection().selectAllChildren(box); return getSelection().toString() }")
        assert "Wanda\t0.25\t1.25" in selected
        assert "4.2 ± 0.5" in selected
        ground = box.evaluate("box => getComputedStyle(box.parentElement).backgroundColor")
        assert ground == "rgba(0, 0, 0, 0)", "a table is as dark as its page"


def test_a_formula_keeps_its_comma(pages):
    said = pages["lessons/00_start_here.html"].partition("The <em>roofline</em>")[2].partition("</p>")[0]
    assert re.search(r'<span class="together"><math (?:(?!</math>).)*</math>,</span>', said)


def test_terms_and_papers_are_found_by_the_search(built):
    index = (built / "searchindex.js").read_text(encoding="utf-8")
    assert [word for word in ("rooflin", "glossari", "wanda", "sink") if word not in index] == []


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_finds_no_serious_fault_of_access_and_no_error(built, theme):
    faults = []
    with browser() as chromium:
        for width in (390, 1280):
            page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("request", lambda asked: faults.append(asked.url) if asked.url.startswith("http") else None)
            for kind in KINDS:
                page.goto(f"{built.as_uri()}/{kind}")
                for fault in Axe().run(page).response["violations"]:
                    if fault["impact"] in ("serious", "critical"):
                        where = [node["html"][:120] for node in fault["nodes"][:3]]
                        faults.append((kind, width, fault["id"], len(fault["nodes"]), where))
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    faults.append((kind, width, f"{wide} pixels wide"))
    assert not faults, "\n".join(map(str, faults))


@needs_browser
def test_slides_follow_each_other_on_a_phone(built):
    """Each as high as it is, not as the screen, of which a slide would leave three quarters white."""
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        page.goto(f"{built.as_uri()}/decks/00_start_here.html")
        page.locator(".scroll-page").nth(1).wait_for()
        page.get_by_role("heading", name="Start here").wait_for()
        assert page.get_by_role("heading", name="A formula").bounding_box()["y"] < 844 / 2


@needs_browser
def test_a_stranger_finds_a_claim_and_its_command_from_the_first_page(built):
    """One click, then words as they are typed, a verdict or a lesson; and the address keeps the choice."""
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 390, "height": 900})
        page.goto((built / "index.html").as_uri())
        page.locator("article a[href^='claims.html']").first.click()
        shown = page.locator("table.sentences:has(th:nth-child(7)) tbody tr:visible")
        shown.first.wait_for()
        n_all = shown.count()
        page.get_by_label("Words").fill("tokens with substantial influence later significantly")
        assert shown.count() == 1
        assert "course reproduce kv" in shown.inner_text()
        said = page.locator("form.claims output").inner_text()
        assert re.match(rf"1 of {n_all} statements and claims(, with \d of 6 words)?$", said)
        page.reload()
        assert shown.count() == 1
        page.get_by_label("Words").fill("")
        page.get_by_label("Verdict").select_option("does not hold")
        assert 0 < shown.count() < n_all
        verdicts = shown.locator("td[data-column='verdict']").all_inner_texts()
        assert len(verdicts) == shown.count()
        assert all(verdict.startswith("does not hold") for verdict in verdicts)
        page.get_by_label("Source or lesson").select_option("07 KV eviction")
        assert 0 < shown.count() < len(verdicts)
        page.get_by_label("Source or lesson").select_option("")
        page.get_by_label("Words").fill("xyzzy")
        assert shown.count() == 0
        page.goto(f"{built.as_uri()}/search.html")
        asked = page.get_by_role("main").get_by_label("Words")
        asked.fill("substantial influence significantly")
        asked.press("Enter")
        page.wait_for_url(f"{built.as_uri()}/search.html?q=substantial+influence+significantly")
        page.get_by_role("link", name="Claims with these words").click()
        shown.first.wait_for()
        assert shown.count() == 1
        assert "course reproduce kv" in shown.inner_text()


@needs_browser
def test_whoever_comes_to_no_page_finds_the_search_from_any_depth(built):
    """As GitHub Pages does it: in a folder of its host, the page in place of whatever is not there."""

    class Pages(SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return super().translate_path(path.removeprefix("/course") if path.startswith("/course/") else "/none")

        def send_error(self, code, message=None, explain=None):
            self.send_response(code)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write((built / "404.html").read_bytes())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=str(built))) as server, browser() as chromium:
        Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}/course"
        without = chromium.new_page(java_script_enabled=False)
        without.goto(f"{at}/lessons/none.html")
        found, advice, _ = without.locator("main").inner_text().partition("The links on this page and the search need")
        assert advice
        assert "There is no page at" in found
        assert not without.get_by_role("button").is_visible()
        assert not without.get_by_role("link").is_visible(), "which would lead from a folder nowhere"
        for address in ("lessons/deep/er/none.html", "none"):
            page = chromium.new_page()
            page.goto(f"{at}/{address}")
            page.locator("base").wait_for(state="attached")
            assert page.locator("code").inner_text() == f"/course/{address}"
            page.get_by_label("Search the course").fill("roofline")
            page.get_by_role("button").click()
            page.wait_for_url(f"{at}/search.html?q=roofline")
            page.goto(f"{at}/{address}")  # to go back now and then finds no page that a browser is attached to
            page.locator("base").wait_for(state="attached")
            page.get_by_role("link", name="Front page").click()
            page.wait_for_url(f"{at}/index.html")
            assert page.title().startswith("Sparsity in large language models")
        server.shutdown()
