"""Run inside a student's copy: does every check say what the checkout's exercise says? Prints what it compared.

    PYTHONPATH=COPY python same_verdicts.py CHECKOUT

The checkout's exercises, answers included, are loaded in place of the copy's for a moment; all else is the copy's.
"""

import importlib.util
import sys
from io import BytesIO
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import course_lib
from course_lib.checking.call import DidNotFinish
from course_lib.checking.judge import judge
from course_lib.workbook import show
from course_lib.workbook.catalogue import find, lessons
from course_lib.workbook.checks import SEED
from course_lib.workbook.progress import Record


def late(*arguments):
    """Never ends, as far as the check can tell."""
    raise DidNotFinish


def stub(*arguments):
    raise NotImplementedError("Exercise: replace this line")


NONSENSE = (stub, late, lambda *a: None, lambda *a: "yes", lambda *a: object(), lambda: 1, lambda *a: a[99])
TOLD = ("id", "title", "difficulty", "minutes", "points", "hints")


def with_answers(module, checkout: Path) -> tuple:
    """The same lesson's exercises as the checkout has them."""
    name = module.__name__
    folder = checkout / name.replace(".", "/")
    of_the_copy = _forget(name)
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    answers = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(answers)
    files = {loaded.__file__ for loaded in _forget(name).values()}
    sys.modules.update(of_the_copy)
    assert all(Path(file).is_relative_to(checkout) for file in files)
    assert len(files) > len(answers.EXERCISES)
    assert answers.LESSON == module.LESSON
    return answers.EXERCISES


def _forget(name: str) -> dict:
    """Take a package and what is in it out of what is imported."""
    return {key: sys.modules.pop(key) for key in list(sys.modules) if f"{key}.".startswith(f"{name}.")}


def half_right(exercise):
    """Right on the first case, an error on all others."""
    seen = []

    def function(*arguments):
        seen.append(1)
        if len(seen) > 1:
            raise ValueError("only once")
        return exercise.reference(*arguments)

    return function


def functions(exercise) -> list:
    known = [exercise.reference, *(variant.function for variant in exercise.also_right)]
    return known + [function for mistake in exercise.mistakes for function in mistake.functions]


def compare(exercise, function, again) -> int:
    """Both verdicts on one function, as text; `again` is the function anew, where it counts its calls."""
    full, copy = judge(exercise, function, SEED), judge(find(exercise.id), again, SEED)
    assert show.as_text(full, Record()) == show.as_text(copy, Record()), (exercise.id, show.as_text(copy, Record()))
    assert full.differences == copy.differences, exercise.id
    assert (full.state, full.n_right, full.n_cases) == (copy.state, copy.n_right, copy.n_cases)
    assert (full.mistake is None) == (copy.mistake is None)
    return 1


def picture(exercise) -> bool:
    """Whether the first named mistake is shown with the same picture, if the exercise has one."""
    function = exercise.mistakes[0].function
    pages = [show.as_html(judge(each, function, SEED), Record()) for each in (exercise, find(exercise.id))]
    assert pages[0] == pages[1], exercise.id
    return "data:image/png" in pages[0]


def drawn_once(figure: Figure, buffer: BytesIO, **_) -> None:
    """In place of `savefig`, which draws a figure twice to find what is tight: its pixels as they are."""
    figure.set_layout_engine("none")
    buffer.write(FigureCanvasAgg(figure).print_to_buffer()[0])


def main(checkout: Path) -> None:
    Figure.savefig = drawn_once
    assert checkout not in Path(course_lib.__file__).parents
    n_exercises = n_functions = n_pictures = 0
    for module in lessons():
        exercises = with_answers(module, checkout)
        assert [e.id for e in exercises] == [e.id for e in module.EXERCISES]
        for exercise in exercises:
            assert all(getattr(exercise, name) == getattr(find(exercise.id), name) for name in TOLD)
            assert not callable(find(exercise.id).reference)
            n_functions += sum(compare(exercise, each, each) for each in (*functions(exercise), *NONSENSE))
            n_functions += compare(exercise, half_right(exercise), half_right(exercise))
            n_pictures += picture(exercise)
            n_exercises += 1
    print(n_exercises, n_functions, n_pictures)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
