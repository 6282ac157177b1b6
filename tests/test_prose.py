"""The prose check of `make lint`: its rules, its readers, and the list of files that have not been rewritten yet."""

import re
from pathlib import Path

import prose
import pytest
from prose import Report, problems, read_debt, updated, write_debt
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
    ("n_findings", "n_words", "debt", "sentence"),
    [
        (0, 100, {}, ""),
        (1, 999, {}, "1 findings in 999 words, 0 allowed"),
        (1, 1000, {}, ""),
        (2, 1999, {}, "2 findings in 1999 words, 1 allowed"),
        (3, 100, {"a": 3}, ""),
        (4, 100, {"a": 3}, "4 findings in 100 words, 3 allowed"),
        (2, 100, {"a": 3}, "fewer than the 3 in tests/prose_debt.txt. Run python"),
        (1, 1000, {"a": 1}, "need not be in"),
        (0, 100, {"b": 1}, "does not exist. Run python"),
    ],
)
def test_a_file_must_have_what_the_list_says(n_findings, n_words, debt, sentence):
    sentences = problems({"a": report(n_findings, n_words)}, debt)
    assert len(sentences) == bool(sentence)
    assert sentence in "".join(sentences)


def test_a_problem_names_file_line_phrase_and_suggestion():
    assert f'  a:1: "beside" → {RULES[0].instead}' in problems({"a": report(1)}, {})[0]


def test_rewritten_masters_need_examples(monkeypatch):
    monkeypatch.setattr(prose, "REWRITTEN", ("a",))
    assert problems({"a": report(0, 4000, 6)}, {}) == []
    assert "5 examples or restatements in 4000 words; write at least 6" in problems({"a": report(0, 4000, 5)}, {})[0]
    assert "2 findings" in problems({"a": report(2, 1000, 6)}, {"a": 2})[0], "the list does not excuse them"


def test_counts_only_fall():
    debt = {"a": 3, "b": 2, "c": 1}
    assert updated({"a": report(1), "b": report(2), "c": report(0)}, debt) == ({"a": 1, "b": 2}, {})
    assert updated({"a": report(4), "b": report(0), "c": report(0)}, debt)[1] == {"a": 1}


def test_a_new_file_takes_over_no_more_than_others_have_lost():
    moved = {"a.py": report(1), "a.md": report(2), "new/b.py": report(2)}
    assert updated(moved, {"a.py": 3, "b.py": 2}) == ({"a.py": 1, "a.md": 2, "new/b.py": 2}, {})
    assert updated({"new": report(4), "b": report(2)}, {"a": 3, "b": 2})[1] == {"new": 1}


def test_what_is_too_much_is_found_in_the_file_that_has_it():
    reports = {"a.py": report(0), "a.md": report(3), "new.py": report(1), "x/b.py": report(2)}
    assert updated(reports, {"a.py": 3, "b.py": 2})[1] == {"new.py": 1}


def test_a_merge_is_resolved_by_an_update():
    merged = "3 a\n<<<<<<< HEAD\n2 b\n=======\n5 b\n1 c\n>>>>>>> other\n7 d\n"
    debt = read_debt(merged)
    assert debt == {"a": 3, "b": 5, "c": 1, "d": 7}
    assert write_debt(updated({"a": report(3), "b": report(2), "d": report(7)}, debt)[0]) == "3 a\n2 b\n7 d\n"


def test_the_command(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    page, debt = tmp_path / "docs" / "page.md", tmp_path / prose.DEBT
    page.write_text("One thing beside another, and one behind it.")
    debt.write_text("1 docs/old.md\n3 docs/page.md\n")
    assert prose.main([], tmp_path) == 1
    assert "fewer than the 3" in capsys.readouterr().out
    assert prose.main(["--update"], tmp_path) == 0
    assert debt.read_text() == "2 docs/page.md\n"
    assert prose.main([], tmp_path) == 0
    assert prose.main([str(page)], tmp_path) == 1
    assert f'{page}:1: "beside" → ' in capsys.readouterr().out
    page.write_text("One beside another beside a third, anew.")
    debt.write_text("1 docs/old.md\n2 docs/page.md\n")
    assert prose.main(["--update"], tmp_path) == 1
    assert debt.read_text() == "1 docs/old.md\n2 docs/page.md\n", "nothing is written when a count would rise"
    assert "docs/page.md: 1 findings are new" in capsys.readouterr().out
    debt.write_text("2 docs/page.md\n3 docs/page.md\n")
    assert prose.main([], tmp_path) == 1
    assert "not sorted, or has a path twice" in capsys.readouterr().out


def test_lint_checks_the_prose():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert "tests/helpers/prose.py" in recipe
    assert all(any(ROOT.glob(pattern)) for pattern in prose.TEXTS if not pattern.endswith("**/*.md"))
