"""What a document states, and which claim of a lesson judges it."""

from dataclasses import dataclass
from pathlib import Path

from course_lib.lessons.common.claim import result_path
from course_lib.measure.result_files import load

LIBRARY = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a document says, in our words: judged by a claim of a lesson, or with the reason why it is not measured.

    Attributes:
        id: DOCUMENT-NUMBER, in the document's order.
        at: the slide's title or the paper's name.
        says: the statement, one sentence.
        claim: id of the claim that judges it, such as "wanda-accuracy".
        why_not: why it is not measured.
        awaits: the result that will judge it, LESSON/NAME, or a part that is not in it yet, LESSON/NAME: PART.
        published: the source's own number.
    """

    id: str
    at: str
    says: str
    claim: str = ""
    why_not: str = ""
    awaits: str = ""
    published: str = ""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.claim, self.why_not, self.awaits))) != 1:
            raise ValueError(
                f"statement {self.id}: got claim={self.claim!r}, why_not={self.why_not!r}, awaits={self.awaits!r}; "
                "expected exactly one of them: what judges it, why nothing does, or the result that will."
            )


@dataclass(frozen=True, kw_only=True)
class Source:
    """A document and its statements, in its order."""

    title: str
    about: str  # who, where, when
    statements: tuple[Statement, ...]
    same_as: str = ""  # statements that stand under another document already, and how many of them


def is_there(awaited: str) -> bool:
    """Whether a result has been measured by now, or a part of it: a table, or a step."""
    name, _, part = awaited.partition(": ")
    if not (path := result_path(name)).exists():
        return False
    result = load(path)
    return not part or part in result["tables"] or part in result["steps"]
