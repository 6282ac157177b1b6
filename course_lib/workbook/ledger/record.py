"""Statements of documents, and the claims of lessons that judge them."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

LIBRARY = Path(__file__).parents[2]


class Label(StrEnum):
    """The kind of reason why no measurement judges a statement. The page shows its text in place of a verdict."""

    BY_CONSTRUCTION = "true by construction"
    THEOREM = "theorem"
    COUNTED = "counted"
    FROM_SOURCE = "from the source's own table"
    LARGER_MODEL = "needs a larger model"
    GPU = "needs a GPU"
    NO_FINDING = "not a finding"
    OPEN = "not measured"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement of a document, in our words: judged by a claim of a lesson, or with the reason why not.

    Attributes:
        id: DOCUMENT-NUMBER, in the document's order.
        at: the slide's title or the paper's name.
        says: the statement, one sentence.
        claim: id of the claim that judges it, such as "wanda-accuracy".
        label: the kind of reason why it is not measured.
        why_not: the reason itself, or the count if we counted something.
        published: the source's own number.
    """

    id: str
    at: str
    says: str
    claim: str = ""
    label: Label | None = None
    why_not: str = ""
    published: str = ""

    def __post_init__(self) -> None:
        if bool(self.claim) == bool(self.why_not):
            raise ValueError(
                f"statement {self.id}: got claim={self.claim!r} and why_not={self.why_not!r}; expected exactly one of "
                "them: what judges it, or why nothing does."
            )
        if bool(self.why_not) != (self.label is not None):
            raise ValueError(f"statement {self.id}: got label={self.label!r} and why_not={self.why_not!r}; give both.")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A document and its statements, in their order."""

    title: str
    about: str  # who, where, when
    statements: tuple[Statement, ...]
    same_as: str = ""  # statements that are listed under another document, and how many of them
