"""Conformance of every lesson: master, student notebook, exercises and deck belong together. Discovered, no list."""

import ast
import re
from collections import Counter

import nbformat
import pytest
from notebooks_to_check import both, bound, is_check, is_exercise, with_what_is_typed, without_magics

from course_lib.lessons.common.results import COLUMNS
from course_lib.workbook import build, masters
from course_lib.workbook.catalogue import find, lessons

MASTERS = masters.masters()
REGION = re.compile(rf"{masters.BEGIN}\n(.*?){masters.END}", re.DOTALL)


@pytest.fixture(params=MASTERS, ids=lambda p: p.stem)
def master(request):
    return request.param


FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$", re.DOTALL)
RELATION = re.compile(r"=|\\(?:leftarrow|ge|le|propto|approx|gg)(?![a-z])")
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
# Formulas between a check and the next cell that do not give its exercise away, by how they begin.
NO_SOLUTION = {
    ("wanda.interval", r"|\hat p - p|"): "Wilson's interval, which the exercise does not ask for",
    ("classic.obd_saliency", r"E = \tfrac{1}{2P}"): "the squared error, of which the next cell computes the Hessian",
    ("classic.obd_saliency", r"H = \frac1P \sum X"): "the Hessian of a squared error, not the saliency",
    ("classic.obs_saliency", r"H = I"): "a special case of the Hessian, not of the saliency",
    ("classic.obs_saliency", r"H = \alpha I"): "the definition from which the next exercise starts",
    ("classic.obs_saliency", r"(A + u u^\top)^{-1} ="): "Sherman and Morrison, which the next exercise applies",
    ("sparsegpt.eliminate", r"H^{-1} = U^\top U"): "defines U, which the next exercise computes",
    ("kv.merge", r"\tau \leftarrow"): "the moving threshold; in the exercise the threshold is given",
}


def test_every_lesson_with_exercises_has_a_master():
    assert {module.LESSON[:2] for module in lessons()} == {p.stem[:2] for p in MASTERS}


def test_student_notebook_is_what_the_master_gives(master):
    assert build.run([master.stem], check=True) == 0


def test_no_heading_stands_twice(master):
    """A section is not called as its exercise is: in the list of contents they follow each other."""
    headings = re.findall(r"^# ##+ (?:\d+\. )?(.+)$", master.read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading, n in Counter(headings).items() if n > 1] == []


def test_deck_exists(master):
    assert (masters.ROOT / "slides" / f"{master.stem}.md").exists()


def test_no_solution_line_is_in_the_student_notebook(master):
    text = "\n".join(cell.source for cell in masters.for_students(master).cells)
    student = {line.strip() for line in text.splitlines()}
    regions = REGION.findall(master.read_text(encoding="utf-8"))
    assert regions
    for region in regions:
        for line in region.splitlines():
            # A bare bracket or `return x` may stand elsewhere by chance; anything that says something may not.
            if len(line.strip()) > 12:
                assert line.strip() not in student


def test_exercises_stand_in_order_each_announced_truly_and_checked(master):
    cells = masters.with_solutions(master).cells
    asked = [(i, cell.metadata["exercise"]) for i, cell in enumerate(cells) if "exercise" in cell.metadata]
    module = next(m for m in lessons() if m.LESSON[:2] == master.stem[:2])
    assert [name for _, name in asked] == [e.id for e in module.EXERCISES]
    for i, name in asked:
        e = find(name)
        points = f"{e.points} point{'s' * (e.points != 1)}"
        announced = f"**Exercise** · difficulty {e.difficulty} of 5 · {e.minutes} minutes · {points}"
        assert cells[i - 1].cell_type == "markdown"
        assert announced in cells[i - 1].source, f"above {name}: expected the line {announced!r}"
        assert cells[i + 1].source.strip().startswith(f'check("{name}", ')
        assert '"""' in cells[i].source, f"{name}: the student cell needs a docstring with shapes"


def test_a_lesson_says_what_it_is_for_and_ends_with_what_remains_and_with_questions(master):
    text = "\n".join(cell.source for cell in masters.for_students(master).cells if cell.cell_type == "markdown")
    opening, closing = text.split("\n## ", 1)[0], text.split("\n## To take home\n")[1]
    assert all(f"**{word}" in opening for word in ("Afterwards you can", "You need", "Time"))
    assert 2 <= closing.count("<details><summary>") == closing.count("</details>") <= 3
    assert re.match(r"\n1\. .*", closing)


def docstring_lines(source):
    """The lines of all docstrings of functions and classes, as they stand in a cell."""
    described = (ast.FunctionDef, ast.ClassDef)
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, described) and ast.get_docstring(node)]
    rows = source.splitlines()
    return [row for node in found for row in rows[node.body[0].lineno - 1 : node.body[0].end_lineno]]


def test_what_an_exercise_asks_can_be_read_without_scrolling_sideways(master):
    lines = docstring_lines(master.read_text(encoding="utf-8"))
    assert [line for line in lines if len(line) > COLUMNS] == []
    wide = 'def f():\n    """' + "x" * 100 + '"""\n'
    assert [len(line) for line in docstring_lines(wide)] == [110]


def test_text_has_no_exclamation_marks_and_no_emoji(master):
    for cell in masters.with_solutions(master).cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"`[^`]*`|\$[^$]*\$|!\[", "", cell.source)
            assert "!" not in prose, cell.source[:80]
            assert not re.search("[\U0001f300-\U0001faff☀-➿]", prose), cell.source[:80]


def test_outside_the_exercises_a_masters_cells_are_those_of_the_students_notebook(master):
    """So both run at once: under nbval the student's notebook runs whole, with the master's answers beside it."""
    mine = masters.with_solutions(master).cells
    theirs = nbformat.read(masters.ROOT / "notebooks" / f"{master.stem}.ipynb", as_version=4).cells
    assert [(cell.id, cell.cell_type) for cell in mine] == [(cell.id, cell.cell_type) for cell in theirs]
    differing = [one.id for one, other in zip(mine, theirs, strict=True) if one.source != other.source]
    assert differing == [cell.id for cell in mine if is_exercise(cell)]


def test_an_answer_is_used_by_its_check_and_through_mine_alone(master):
    """Else a cell would fail in a notebook in which nothing is solved, or run otherwise than it is tested."""
    cells = [cell for cell in masters.with_solutions(master).cells if cell.cell_type == "code"]
    answers = {cell.metadata["exercise"]: bound(cell.source) for cell in cells if is_exercise(cell)}
    for cell in cells:
        if not (is_exercise(cell) or is_check(cell)):
            calls = list(uses(without_magics(cell.source)))
            assert all(name in answers[exercise] for exercise, name in calls), cell.source
            loose = Counter(global_names(cell.source)) - Counter(name for _, name in calls)
            assert not set(loose) & set().union(*answers.values()), cell.source


def global_names(source):
    """The names that a cell uses, without those that are parameters of the function around them."""
    tree = ast.parse(without_magics(source))
    local = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id in {argument.arg for argument in function.args.args}
    }
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in local]


def test_names_that_are_parameters_are_local():
    assert sorted(global_names("def f(score):\n    def g(x):\n        return score(x) + y\nscore")) == ["score", "y"]


def uses(source):
    """The exercise and the name of the answer in each `mine("exercise", answer)`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "mine":
            exercise, answer = node.args
            yield exercise.value, answer.id


def test_what_the_page_tells_a_student_to_type_is_typed_into_every_notebook(master):
    whole = masters.for_students(master)
    typed = [cell.source for cell in with_what_is_typed(whole).cells if cell.id.startswith("typed")]
    module = next(m for m in lessons() if m.LESSON[:2] == master.stem[:2])
    assert {f"hint({e.id!r})" for e in module.EXERCISES} <= set(typed)
    assert ("show_progress()" in typed) is (master.stem[:2] == "00")
    assert [cell for cell in with_what_is_typed(whole).cells if not cell.id.startswith("typed")] == whole.cells


def test_a_students_notebook_runs_whole_and_above_each_exercise_the_masters_answer_and_its_check(master):
    first, *others = both(master).cells
    assert "both_versions.load" in first.source
    solved = [cell for cell in others if cell.id.startswith("solved-")]
    assert [cell for cell in others if cell not in solved] == with_what_is_typed(masters.for_students(master)).cells
    whole = masters.with_solutions(master).cells
    answers = [(cell.metadata["exercise"], cell.source) for cell in whole if is_exercise(cell)]
    checks = [cell.source for cell in whole if is_check(cell)]
    assert len(answers) == len(checks)
    expected = [
        f"%%solved {exercise}\n{source}\n\n\n{check}" for (exercise, source), check in zip(answers, checks, strict=True)
    ]
    assert [cell.source for cell in solved] == expected
    following = [others[others.index(cell) + 1].metadata["exercise"] for cell in solved]
    assert following == [exercise for exercise, _ in answers]


def below(cells, i):
    """The text between the check of the exercise in cell i and the next code or the next exercise."""
    parts = []
    for cell in cells[i + 2 :]:
        if cell.cell_type != "markdown" or "**Exercise**" in cell.source:
            break
        parts.append(cell.source)
    return "\n\n".join(parts)


def formulas(text):
    """All formulas that state something: with an equals sign, an arrow or an inequality."""
    found = (" ".join((match[1] or match[2]).split()) for match in FORMULA.finditer(text))
    return [formula for formula in found if RELATION.search(formula)]


def unfolded(cells):
    """Formulas under a check that anybody sees who looks at the check, with the exercise."""
    asked = [(i, cell.metadata["exercise"]) for i, cell in enumerate(cells) if "exercise" in cell.metadata]
    return [(name, formula) for i, name in asked for formula in formulas(FOLDED.sub("", below(cells, i)))]


def test_what_gives_an_exercise_away_is_folded_below_its_check(master):
    found = unfolded(masters.with_solutions(master).cells)
    listed = [(name, begins) for name, begins in NO_SOLUTION if exercise_of(name) == master.stem[:2]]
    unlisted = [(n, f) for n, f in found if not any(n == name and f.startswith(begins) for name, begins in listed)]
    assert unlisted == [], "fold it in <details>, or say in NO_SOLUTION why it gives nothing away"
    unused = [
        (name, begins) for name, begins in listed if not any(n == name and f.startswith(begins) for n, f in found)
    ]
    assert unused == [], "it is folded or gone: remove it from NO_SOLUTION"


def exercise_of(name):
    """The number of the lesson that an exercise belongs to."""
    return next(module.LESSON[:2] for module in lessons() if name in {e.id for e in module.EXERCISES})


def test_what_is_folded_below_a_check_is_not_said_above_it(master):
    cells = masters.with_solutions(master).cells
    for i, cell in enumerate(cells):
        if is_exercise(cell):
            above = "\n".join(FOLDED.sub("", c.source) for c in cells[:i] if c.cell_type == "markdown")
            said = {right_side(formula) for formula in formulas(above)}
            folded = [f for part in FOLDED.findall(below(cells, i)) for f in formulas(part)]
            # A side such as 0 or 1 may stand anywhere.
            said_again = {right_side(formula) for formula in folded} & said
            assert not {side for side in said_again if len(side) > 3}, cell.metadata["exercise"]


def right_side(formula):
    """What a formula says something is, without what only sets it."""
    side = RELATION.split(formula, maxsplit=1)[1].replace(r"\tfrac", r"\frac")
    return re.sub(r"\\[,;!]|\\q?quad|\s", "", side).rstrip(".,;")


def test_an_answer_that_is_not_folded_is_found(tmp_path):
    text = '# %% exercise="wanda.score"\ndef f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\n\n'
    text += '# %%\ncheck("wanda.score", f)\n\n# %% [markdown]\n# So $a = b$.\n#\n# {}$$ c \\leftarrow d $${}\n'
    (tmp_path / "98_made_up.py").write_text(text.format("", ""), encoding="utf-8")
    said = [("wanda.score", "a = b"), ("wanda.score", r"c \leftarrow d")]
    assert unfolded(masters.with_solutions(tmp_path / "98_made_up.py").cells) == said
    (tmp_path / "98_made_up.py").write_text(text.format("<details>", "</details>"), encoding="utf-8")
    assert unfolded(masters.with_solutions(tmp_path / "98_made_up.py").cells) == said[:1]
    assert right_side(r"s_k = \tfrac12 h \, w.") == r"\frac12hw"
