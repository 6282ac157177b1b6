"""The prose check of `make lint`: its rules, its readers, and the number of findings that a file may have."""

import re
from pathlib import Path

import prose
import pytest
from prose import Report, problems
from prose_rules import RULES

ROOT = Path(__file__).parents[1]


def matches(text):
    return [rule for rule in RULES if rule.compiled.search(text)]


def found(tmp_path, name, text):
    """(line, phrase) of each finding in a file of that name."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    return [(finding.line, finding.phrase) for finding in prose.check_file(tmp_path / name).findings]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.wrong)
def test_every_rule_on_its_two_examples(rule):
    assert rule in matches(rule.wrong)
    assert matches(rule.right) == []


@pytest.mark.parametrize("text", [rule.instead for rule in RULES])
def test_what_is_suggested_breaks_no_rule(text):
    assert matches(text) == []


MARKDOWN = """# Heads beside each other

A weight takes *4 bits a
weight*, [beside](https://example.org/beside) the mask.

- one row per list item: `beside` is code
- $\\text{beside}$ is a formula

| left | anew |
|:--|--:|

```python
beside = 1
```

$$
\\text{beside}
$$

![The mask beside its weights](figure:wanda.plots.mask)
A title: "Whatever Stands Beside Attention"; quoted speech: "it stands".
"""


def test_markdown_is_read_without_code_formulas_and_titles(tmp_path):
    assert found(tmp_path, "a.md", MARKDOWN) == [
        (1, "beside"),
        (3, "bits a weight"),
        (4, "beside"),
        (9, "anew"),
        (20, "beside"),
        (21, "stands"),
    ]


MASTER = '''# %% [markdown]
# Weights stand in
# rows.

# %%
"""A mask beside its weights."""
# Beside a comment
x = 1  # beside code


# %% [markdown]
# `beside` and the end: it is dear.
'''


def test_a_master_is_read_cell_by_cell(tmp_path):
    expected = [(2, "stand"), (6, "beside"), (7, "Beside"), (8, "beside"), (12, "dear")]
    assert found(tmp_path, "a.py", MASTER) == expected


PYTHON = '''"""Docstring.

    The second paragraph goes
    over to a new line.
    >>> beside = 1
"""
import re

beside = {"beside": 1, "two beside": 2}
PATTERN = re.compile("one beside another")
CODE = "beside = weight[keep]"
raise ValueError(
    f"expected {n:<9}bits a weight, "
    f"got {m!r}: whoever "
    "reads this knows"
)
# A comment on two lines: 4 bits
# a weight, kv.find(x, beside) and course_lib.beside.function as well as is_beside
'''


def test_python_is_read_without_names_code_and_patterns(tmp_path):
    assert found(tmp_path, "a.py", PYTHON) == [
        (3, "goes over"),
        (9, "beside"),
        (13, "bits a weight"),
        (14, "whoever"),
        (17, "bits a weight"),
    ]


def test_templates_are_read_without_tags_style_and_statements(tmp_path):
    text = "<style>\n.a { beside: 1 }\n</style>\n{% if beside %}\n<p class='beside'>{{ name }} stands <b>here</b></p>"
    assert found(tmp_path, "a.html", text) == [(5, "stands")]


def test_examples_and_restatements_are_counted(tmp_path):
    (tmp_path / "a.md").write_text("For example, 4 of 8, e.g. a row, that is, half; such as\nthese. That is all.")
    assert prose.check_file(tmp_path / "a.md").n_examples == 4


def report(n_findings, n_words=100, n_examples=0):
    finding = prose.Finding(1, "beside", RULES[0])
    return Report((finding,) * n_findings, n_words, n_examples)


@pytest.mark.parametrize(
    ("n_findings", "n_words", "sentence"),
    [
        (0, 100, ""),
        (1, 999, "a: 1 findings in 999 words, 0 allowed"),
        (1, 1000, ""),
        (2, 1999, "a: 2 findings in 1999 words, 1 allowed"),
        (2, 2000, ""),
    ],
)
def test_a_file_may_have_one_finding_per_1000_words(n_findings, n_words, sentence):
    sentences = problems({"a": report(n_findings, n_words), "b": report(0)})
    assert len(sentences) == bool(sentence)
    assert sentence in "".join(sentences)


def test_a_problem_names_file_line_phrase_and_suggestion():
    assert f'  a:1: "beside" → {RULES[0].instead}' in problems({"a": report(1)})[0]


def test_masters_need_examples():
    master = "solutions/00_a.py"
    assert problems({master: report(0, 4000, 6), "docs/a.md": report(0, 4000)}) == []
    assert "5 examples or restatements in 4000 words; write at least 6" in problems({master: report(0, 4000, 5)})[0]
    assert len(problems({master: report(5, 4000, 5)})) == 2, "too many findings and too few examples"


def test_the_command(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("One thing beside another, and one behind it.")
    assert prose.main([], tmp_path) == 1
    assert "docs/page.md: 2 findings in 8 words, 0 allowed" in capsys.readouterr().out
    assert prose.main([str(page)], tmp_path) == 1
    assert f'{page}:1: "beside" → ' in capsys.readouterr().out
    page.write_text("One thing next to another, and one after it.")
    assert prose.main([], tmp_path) == 0
    assert prose.main([str(page)], tmp_path) == 0


def test_lint_checks_the_prose():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert "tests/helpers/prose.py" in recipe
    assert all(any(ROOT.glob(pattern)) for pattern in prose.TEXTS if not pattern.endswith("**/*.md"))
