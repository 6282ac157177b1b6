"""A claim of a document, and the line of a lesson that judges it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_lib import kernels
from course_lib.measure.result_files import load

LIBRARY = Path(__file__).parents[2]
BENCH = "bench/"  # of results that `course bench` or `make gpu` wrote


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One line among those that a lesson prints: it names a claim, and ends with the verdict on it.

    The effect of the verdict is positive on the claim's side, and measured from what the claim asks for.
    """

    lesson: str  # the folder
    results: tuple[str, ...]  # LESSON/NAME or bench/NAME, JSON without its ending; none where sizes are counted
    lines: Callable[[], str]
    line: str  # words that only this line has
    effect: str  # what the effect is, and its unit
    refuted: str  # what would have to be measured for the claim to fail

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where the results lie that the line is computed from."""
        return tuple(map(result_path, self.results))


def result_path(name: str) -> Path:
    """kv/measured → lessons/kv/measured.json; bench/cpu_kv → kernels/bench/results/cpu_kv.json."""
    if name.startswith(BENCH):
        return Path(kernels.__path__[0]) / "bench" / "results" / f"{name.removeprefix(BENCH)}.json"
    return LIBRARY / "lessons" / f"{name}.json"


def is_there(awaited: str) -> bool:
    """Whether a result has been measured by now, or a part of it: a table, or a step."""
    name, _, part = awaited.partition(": ")
    if not (path := result_path(name)).exists():
        return False
    result = load(path)
    return not part or part in result["tables"] or part in result["steps"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a document says, in words of ours: judged by a rule, or with the reason why nothing here can judge it."""

    id: str
    at: str  # the slide's title, or the paper's name
    says: str
    rule: Rule | None = None
    why_not: str = ""  # why it is not measured
    awaits: str = ""  # the result that will judge it, LESSON/NAME, or a part that is not in it yet, LESSON/NAME: PART
    published: str = ""  # the source's own number, to stand beside ours

    def __post_init__(self) -> None:
        if sum(map(bool, (self.rule, self.why_not, self.awaits))) != 1:
            raise ValueError(
                f"claim {self.id}: got rule={self.rule is not None}, why_not={self.why_not!r}, awaits={self.awaits!r}; "
                "expected exactly one of them: what judges it, why nothing does, or the result that will."
            )


@dataclass(frozen=True, kw_only=True)
class Source:
    """A document and its claims, in its order."""

    title: str
    about: str  # who, where, when
    claims: tuple[Claim, ...]
    same_as: str = ""  # claims that stand under another document already, and how many of them
