"""`make check`: the tests of what changed, nearest first, as many as take about two minutes; and what was left out.

A test file belongs to a change when it imports a changed file, or imports one that does, and so on. A file that is
found by being in its folder counts for all files that import the folder. A file that is not Python counts for all that
mention its name. A changed exercise also gets the tests that run once per exercise, for this exercise alone. Options
are handed on to pytest; `--list` shows what would run.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALWAYS = ("test_layout.py", "test_style.py")
# Found by their place alone: nothing mentions them by name.
BY_FOLDER = {"solutions": "test_lessons.py", "notebooks": "test_lessons.py", "slides": "test_slides.py"}
EVERYTHING = ("pyproject.toml", "requirements.lock", "tests/conftest.py", "tests/helpers/shape_annotations.py")
# CPU seconds, about, of test files that take more than five; a file that is not listed takes OTHERS.
SECONDS = json.loads(Path(__file__).with_name("seconds.json").read_text(encoding="utf-8"))
OTHERS = 3
BUDGET = 200  # CPU seconds, which two cores spend in under two minutes; the rest of three is for start and lint
# Tests that run once per exercise, with its id in their name: too slow for all exercises, quick for those that changed.
PER_EXERCISE = (
    "tests/lessons/test_every_exercise.py",
    "tests/lessons/test_named_mistakes.py",
    "tests/lessons/test_mutated_references.py",
)
OF_AN_EXERCISE = re.compile(
    r"course_lib/lessons/(\w+)/exercises/(\w+)\.(?:py|md)|course_lib/grading/hidden_cases/(\w+)\.py"
)


def main(options: list[str]) -> int:
    base, said = compared_with(ROOT)
    changed = changed_files(ROOT, base)
    print(f"{len(changed)} files differ from {said}.")
    if wide := sorted(set(changed) & set(EVERYTHING)):
        print(f"Every test depends on {' and '.join(wide)}: run `make test` before you hand this in.")
    chosen, late, far = choose(distances(importers(ROOT), changed), ROOT)
    exercises = exercises_of(changed)
    narrowed = [name for name in PER_EXERCISE if name in late] if exercises else []
    late = [name for name in late if name not in narrowed]
    if narrowed:
        print(f"To run for {', '.join(exercises)} alone; for other exercises in `make test`: {' '.join(narrowed)}")
    if late:
        print(f"Left to `make test`, because there is no time for them: {', '.join(late)}")
    print(f"Left to `make test`, because no import leads from them to a change: {len(far)} test files")
    print(f"To run ({sum(map(seconds, chosen))} CPU seconds or so): {' '.join(chosen)}", flush=True)
    if "--list" in options:
        return 0
    codes = [run_tests(*options, *chosen)]
    if narrowed:
        codes.append(run_tests(*options, "-k", " or ".join(exercises), *narrowed))
    return next((code for code in codes if code not in (0, NOTHING_TO_RUN)), 0)


NOTHING_TO_RUN = 5  # pytest's exit code, for an exercise that is gone


def run_tests(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


def exercises_of(changed: Iterable[str]) -> list[str]:
    """The ids of the exercises to which changed files belong; "wanda." for a file that all exercises of it share."""
    ids = set()
    for lesson, name, hidden in (match.groups() for match in map(OF_AN_EXERCISE.fullmatch, changed) if match):
        ids.add(f"{hidden}." if hidden else f"{lesson}.{'' if name in ('__init__', 'common') else name}")
    ids.discard("__init__.")
    return sorted(ids)


FOUND_BY = {  # what is found by its place, and who looks there
    r"course_lib/lessons/\w+/exercises/": "course_lib/workbook/catalogue.py",
    r"course_lib/lessons/\w+/\w+\.py": "course_lib/workbook/decks/markdown.py",
    r"course_lib/grading/report/templates/": "course_lib/grading/report/templates.py",
    r"(course_lib/lessons/\w+|tests/helpers/synthetic)/experiment(s/\w+|\w*)\.py": "course_lib/cli/reproduce.py",
    r"kernels/(?!bench/)\w+/\w+\.py": "course_lib/kernels.py",
    r"kernels/bench/\w+/\w+\.py": "kernels/bench/__init__.py",
}


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def compared_with(root: Path) -> tuple[str, str]:
    """The commit to compare with, and its name: where this branch left `main`; on main, HEAD or the commit before."""
    head = git(root, "rev-parse", "HEAD")
    main_branch = next((name for name in ("main", "origin/main") if git(root, "rev-parse", "--verify", name)), "HEAD")
    base = git(root, "merge-base", main_branch, "HEAD")
    if base and base != head:
        return base, f"{main_branch} ({base[:7]}, where this branch left it)"
    if git(root, "status", "--porcelain"):
        return head, f"the last commit ({head[:7]}), since this is {main_branch}"
    before = git(root, "rev-parse", "--verify", "HEAD~1") or head
    return before, f"the commit before the last ({before[:7]}), since this is {main_branch} with nothing changed"


def changed_files(root: Path, base: str) -> list[str]:
    """Paths that differ from that commit, those of no commit yet included. A file that is gone counts too."""
    known = git(root, "diff", "--name-only", "--no-renames", base).splitlines()
    return sorted({*known, *git(root, "ls-files", "--others", "--exclude-standard").splitlines()})


def importers(root: Path) -> dict[str, set[str]]:
    """For every file of the project, the Python files that import it, or mention it where it is not Python."""
    paths = [name for name in git(root, "ls-files", "-co", "--exclude-standard").splitlines() if (root / name).exists()]
    sources = {name: (root / name).read_text(encoding="utf-8") for name in paths if name.endswith(".py")}
    beside = {Path(name).stem: name for name in sources if name.startswith("tests/")}  # tests import helpers by stem
    found: dict[str, set[str]] = {name: set() for name in paths}
    for name, source in sources.items():
        for module in imports(source):
            target = file_of(module, sources)
            if not target and name.startswith("tests/"):  # by stem, or a name out of it
                target = next((beside[part] for part in reversed(module.split(".")) if part in beside), None)
            if target and target != name:
                found[target].add(name)
        folder = f"{Path(name).parent}/__init__.py"
        if folder in found and folder != name:
            found[name].add(folder)
    for name in set(paths) - set(sources):
        found[name] = {user for user, source in sources.items() if Path(name).name in source}
    for place, finder in FOUND_BY.items():
        for name in paths if finder in found else ():
            if re.match(place, name):
                found[name].add(finder)
    return found


def imports(source: str) -> Iterable[str]:
    """Modules that a file may import, inside functions too; `from a import b` may mean a.b, else it means a."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def file_of(module: str, sources: Mapping[str, str]) -> str | None:
    """The file of a module, of a folder, or of the module that a name is taken from."""
    path, parent = module.replace(".", "/"), module.rpartition(".")[0].replace(".", "/")
    candidates = (f"{path}.py", f"{path}/__init__.py", f"{parent}.py", f"{parent}/__init__.py")
    return next((name for name in candidates if name in sources), None)


def distances(users: Mapping[str, set[str]], changed: Iterable[str]) -> dict[str, int]:
    """How many imports lie between each file and the nearest change: 0 for a changed file."""
    found = dict.fromkeys(changed, 0)
    nearest = list(found)
    while nearest:
        name = nearest.pop(0)
        further = set(users.get(name, ()))
        if by_folder := BY_FOLDER.get(name.partition("/")[0]):
            further |= {user for user in users if Path(user).name == by_folder}
        for user in sorted(further - found.keys()):
            found[user] = found[name] + 1
            nearest.append(user)
    return found


def choose(found: Mapping[str, int], root: Path) -> tuple[list[str], list[str], list[str]]:
    """Test files nearest first, cheap ones first among equals, while they fit the budget.

    Returns (those to run, those for which there is no time, those that no change reaches).
    """
    tests = sorted(path.relative_to(root).as_posix() for path in (root / "tests").rglob("test_*.py"))
    chosen = [name for name in tests if Path(name).name in ALWAYS]
    reached = sorted(set(tests) & set(found) - set(chosen), key=lambda name: (found[name], seconds(name), name))
    late, spent = [], sum(map(seconds, chosen))
    for name in reached:
        fits = spent + seconds(name) <= BUDGET
        (chosen if fits else late).append(name)
        spent += seconds(name) * fits
    return chosen, late, [name for name in tests if name not in found and name not in chosen]


def seconds(name: str) -> int:
    """What a test file takes, by its name, which is the only one of its kind."""
    return SECONDS.get(Path(name).name, OTHERS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
