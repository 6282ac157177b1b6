"""Conformance of every lesson: master, student notebook, exercises and deck belong together. Discovered, no list."""

import re

import pytest

from course_lib.workbook import build, masters
from course_lib.workbook.catalogue import find, lessons

MASTERS = masters.masters()
REGION = re.compile(rf"{masters.BEGIN}\n(.*?){masters.END}", re.DOTALL)


@pytest.fixture(params=MASTERS, ids=lambda p: p.stem)
def master(request):
    return request.param


def test_every_lesson_with_exercises_has_a_master():
    assert {module.LESSON[:2] for module in lessons()} == {p.stem[:2] for p in MASTERS}


def test_student_notebook_is_what_the_master_gives(master):
    assert build.run([master.stem], check=True) == 0


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


def test_text_has_no_exclamation_marks_and_no_emoji(master):
    for cell in masters.with_solutions(master).cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"`[^`]*`|\$[^$]*\$|!\[", "", cell.source)
            assert "!" not in prose, cell.source[:80]
            assert not re.search("[\U0001f300-\U0001faff☀-➿]", prose), cell.source[:80]
