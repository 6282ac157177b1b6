"""The house stays a house: imports go down, nothing runs in a circle, no folder fills up, lessons know no other lesson.

Every import counts: inside functions and under TYPE_CHECKING too.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# From the ground up. A folder may import what stands on a lower floor, and itself.
ORDER = (
    "discover repetition settings data checking hooks",
    "models",
    "measure attention",
    "sparsity",
    "kernels",
    "kv",
    "pruning",
    "quantization moe",
    "contextual prompts",
    "compose",
    "benches",  # in kernels/: they time methods that run kernels
    "lessons",
    "workbook",
    "grading",
    "cli",
    "__main__",
)
FLOOR = {name: floor for floor, names in enumerate(ORDER) for name in names.split()}
SUBJECTS = [name for name, floor in FLOOR.items() if floor < FLOOR["lessons"]]
# The root has a folder more than others may hold: compose stands above all subjects and so belongs into none of them.
MOST_ENTRIES, MOST_FILES, MOST_FOLDERS = 20, 8, 16
BENCHES = tuple(f"course_lib.kernels.{folder}." for folder in ("bench", "timing", "gpu"))
Graph = dict[str, set[str]]
LESSON_OF = {  # by the number of the lesson
    re.search(r'LESSON = "(\d\d)', path.read_text(encoding="utf-8"))[1]: path.parents[1].name
    for path in (ROOT / "course_lib" / "lessons").glob("*/exercises/__init__.py")
}


def module_of(path: Path) -> str:
    """course_lib/kv/__init__.py is course_lib.kv, and kernels/runtime.py is course_lib.kernels.runtime."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return f"course_lib.{name}" if name.startswith("kernels.") else name


FILES = {module_of(path): path for base in ("course_lib", "kernels") for path in sorted((ROOT / base).rglob("*.py"))}


def imports_of(source: str) -> Iterator[str]:
    """The dotted names that a source imports, as far as they are written down; `from a import b` may be a.b or a."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def targets(names: Iterable[str], files: Iterable[str] = tuple(FILES)) -> set[str]:
    """The project's files that are imported: of course_lib.kv.slots.Slots that is course_lib.kv.slots."""
    known = set(files)
    named = {name if name in known else name.rpartition(".")[0] for name in names}
    return named & known


def house_of(module: str) -> str:
    """The folder or file of course_lib that a module belongs to."""
    return parts_of(module)[1] if module.startswith("course_lib.") else module.split(".")[0]


def parts_of(module: str) -> list[str]:
    """The parts of a name. Benches count as a folder of their own, not of the kernels that they time."""
    if f"{module}.".startswith(BENCHES):
        return ["course_lib", "benches", *module.split(".")[2:]]
    return module.split(".")


def upward(module: str, imported: Iterable[str]) -> list[str]:
    """What a module imports that stands no lower than itself, in another folder."""
    mine = house_of(module)
    others = ((name, house_of(name)) for name in imported)
    return sorted(name for name, other in others if other not in (mine, "course_lib") and FLOOR[other] >= FLOOR[mine])


def circles(graph: Graph) -> list[list[str]]:
    """The groups of nodes each of which reaches all others of its group (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return [group for group in groups if len(group) > 1]


@lru_cache(maxsize=1)
def all_imports() -> Graph:
    """Which file imports which."""
    return {name: targets(imports_of(path.read_text(encoding="utf-8"))) - {name} for name, path in FILES.items()}


def folders(depth: int) -> Graph:
    """Which folder imports from which: names cut after `depth` parts, so that a file that high stands for itself."""
    graph: Graph = {}
    for name, imported in all_imports().items():
        cut = [".".join(parts_of(module)[:depth]) for module in (name, *imported)]
        graph.setdefault(cut[0], set()).update(set(cut[1:]) - {cut[0]})
    return graph


@pytest.mark.parametrize("house", sorted({house_of(name) for name in FILES} - {"course_lib"}))
def test_imports_go_down(house):
    assert house in FLOOR, f"{house} has no floor; give it one in ORDER"
    wrong = {name: upward(name, all_imports()[name]) for name in FILES if house_of(name) == house}
    assert {name: names for name, names in wrong.items() if names} == {}


def test_no_circle_of_files():
    assert circles(all_imports()) == []


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_no_circle_of_folders(depth):
    assert circles(folders(depth)) == []


def entries(folder: Path) -> list[str]:
    """What git would keep of a folder: caches and what a run leaves behind are none of it."""
    left_behind = ("__pycache__", ".ipynb_checkpoints")
    return sorted(p.name for p in folder.iterdir() if p.name not in left_behind and ".partial." not in p.name)


def test_no_folder_is_too_full():
    root = ROOT / "course_lib"
    files = [name for name in entries(root) if (root / name).is_file()]
    assert len(files) <= MOST_FILES, files
    assert len(entries(root)) - len(files) <= MOST_FOLDERS, entries(root)
    bases = (*root.iterdir(), ROOT / "kernels")
    inside = [
        folder
        for base in bases
        if base.is_dir()
        for folder in (base, *base.rglob("*/"))
        if "__pycache__" not in str(folder)
    ]
    full = {
        str(folder.relative_to(ROOT)): len(entries(folder)) for folder in inside if len(entries(folder)) > MOST_ENTRIES
    }
    assert full == {}


def test_a_lesson_imports_no_other_lesson():
    wrong = {}
    for name, imported in all_imports().items():
        if name.startswith("course_lib.lessons."):
            mine = name.split(".")[2]
            others = [other for other in imported if other.startswith("course_lib.lessons.")]
            allowed = {mine} if mine == "common" else {mine, "common"}
            foreign = [other for other in others if other.split(".")[2] not in allowed]
            wrong |= {name: foreign} if foreign else {}
    assert wrong == {}


@pytest.mark.parametrize("path", sorted((ROOT / "solutions").glob("*.py")), ids=lambda path: path.stem)
def test_a_master_imports_its_own_lesson_alone(path):
    lessons = {name.split(".")[2] for name in imports_of(path.read_text(encoding="utf-8")) if ".lessons." in name}
    assert lessons <= {"common", LESSON_OF[path.name[:2]]}


@pytest.mark.parametrize("path", sorted((ROOT / "slides").glob("*.md")), ids=lambda path: path.stem)
def test_a_deck_shows_figures_of_its_own_lesson_alone(path):
    lessons = set(re.findall(r"figure:(\w+)\.", path.read_text(encoding="utf-8")))
    assert lessons <= {"common", LESSON_OF[path.name[:2]]}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_nothing_below_the_lessons_knows_a_lesson_or_a_figure(subject):
    knows = ("course_lib.lessons", "course_lib.workbook", "matplotlib.pyplot")
    knows += () if subject == "checking" else ("course_lib.checking", "matplotlib")
    for name, path in FILES.items():
        if house_of(name) == subject:
            wrong = [each for each in imports_of(path.read_text(encoding="utf-8")) if each.startswith(knows)]
            assert wrong == [], name


def test_every_folder_says_what_is_in_it():
    for name, path in FILES.items():
        if path.name == "__init__.py":
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            assert docstring, f"{name} says nothing about itself"


def test_no_two_test_files_have_one_name():
    """They are imported by their names alone."""
    names = sorted(path.stem for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, following in pairwise(names) if name == following] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from course_lib.kv import slots", {"course_lib.kv.slots"}),
        ("from course_lib.kv.slots import Slots", {"course_lib.kv.slots"}),
        ("def f():\n    import course_lib.models as m", {"course_lib.models"}),
        ("if TYPE_CHECKING:\n    from course_lib.models import blocks", {"course_lib.models"}),
        ("import torch", set()),
    ],
)
def test_every_kind_of_import_is_seen(source, expected):
    assert targets(imports_of(source)) == expected


def test_the_rules_catch_what_breaks_them():
    assert upward("course_lib.measure.perplexity", ["course_lib.kv.slots", "course_lib.models"]) == [
        "course_lib.kv.slots"
    ]
    assert upward("course_lib.kernels.bench.kv", ["course_lib.kv.slots", "course_lib.lessons.kv.figures"]) == [
        "course_lib.lessons.kv.figures"
    ]
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
