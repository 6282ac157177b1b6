"""Pages of the repository as pages of the site."""

import os
import re
import tomllib

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.workbook.masters import ROOT
from course_lib.workbook.site.made import inputs
from course_lib.workbook.site.slides import listed
from course_lib.workbook.site.source import by_lesson, from_lesson, launch, page, repository, tree

TEXT = """[04](notebooks/04_wanda.ipynb) [g](docs/glossary.md#gram) [s](SECURITY.md) [l](LICENSE) ![p](docs/lesson.png)
<!-- FOR STUDENTS
[hidden](x.md)
-->
[out](https://arxiv.org/abs/1) [here](#top) `![finding](figure:wanda.file.function)`
"""


def test_links_lead_to_pages_of_the_site_or_to_the_repository():
    shown = page(TEXT, "https://github.com/someone/course", ["04_wanda"])
    assert shown.splitlines() == [
        "[04](lessons/04_wanda.ipynb) [g](glossary.md#gram) [s](security.md) "
        "[l](https://github.com/someone/course/blob/main/LICENSE) ![p](lesson.png)",
        '[out](https://arxiv.org/abs/1) <a href="#top">here</a> `![finding](figure:wanda.file.function)`',
    ]


def test_without_a_repository_what_has_no_page_is_plain_text():
    first = page(TEXT).splitlines()[0]
    assert first == "04 [g](glossary.md#gram) [s](security.md) l ![p](lesson.png)"


def test_the_address_of_the_repository_is_one_setting(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert repository(tmp_path) == ""
    (tmp_path / "pyproject.toml").write_text("[tool.course]\nrepository = 'https://github.com/a/b/'\n")
    assert repository(tmp_path) == "https://github.com/a/b"
    assert launch("04_wanda", "https://github.com/a/b") == (
        "[Run it in Binder](https://mybinder.org/v2/gh/a/b/HEAD?labpath=notebooks/04_wanda.ipynb) · "
        "[in Colab](https://colab.research.google.com/github/a/b/blob/main/notebooks/04_wanda.ipynb), "
        "after a first cell `!pip install -q git+https://github.com/a/b && course setup`"
    )


def test_papers_stand_under_each_of_their_lessons():
    table = (
        "# Papers\n\n| paper | where |\n|:--|:--|\n| A, 2021: [One](https://x) | lessons 00, 01 and 07 |\n"
        "| B: [Two](https://y) | lesson 01, `course_lib/a.py` |\n| C: [Three](https://z) | `course_lib/b.py` |\n"
    )
    assert by_lesson(table) == (
        "# Papers by lesson\n\n## Lesson 00\n\n- A, 2021: [One](https://x)\n\n"
        "## Lesson 01\n\n- A, 2021: [One](https://x)\n- B: [Two](https://y)\n\n## Lesson 07\n\n- A, 2021: [One](https://x)\n"
    )


def test_the_list_of_decks_says_what_stands_in_them(tmp_path):
    (deck := tmp_path / "04_wanda.md").write_text(
        "# Wanda\n\nPruning\n---\n## A *score*\n---\nNo heading\n---\n### Two\n"
    )
    assert listed([deck]).split("\n\n")[2:] == [
        "## 04 · Wanda",
        '<a href="decks/04_wanda.html">4 slides</a> for [this lesson](lessons/04_wanda.ipynb):',
        "A *score* · Two\n",
    ]


def test_binder_and_the_workflow_name_what_exists():
    assert (ROOT / ".binder" / "requirements.txt").read_text().strip() == "-r ../requirements.lock"
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert (ROOT / ".binder" / "runtime.txt").read_text().strip() == f"python-{oldest}"
    assert os.access(ROOT / ".binder" / "postBuild", os.X_OK)
    workflow = (ROOT / ".github" / "workflows" / "site.yml").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"run: make (\w+)", workflow):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "run: .venv/bin/course site\n" in workflow
    assert "path: build/site/html\n" in workflow


def test_a_lesson_leads_to_pages_of_the_site():
    text = "[page](../docs/claims.md#top) [other](../docs/unknown.md) [out](https://arxiv.org/docs/claims.md)"
    assert from_lesson(text) == text.replace("../docs/claims", "../claims")


def test_the_same_lessons_give_the_same_sources(tmp_path):
    """Cells have names by lot; with others the pages would be made anew."""
    found = []
    for _ in range(2):
        lesson = new_notebook(cells=[new_markdown_cell("# One"), new_code_cell("1 + 1")])
        tree([("00_start_here", lesson)], [], tmp_path / "source", ROOT)
        found.append(inputs([tmp_path / "source"]))
    assert found[0] == found[1]
