"""One notebook of one student, as it lies among what was handed in."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from course_lib.grading.intake import zips

NOTEBOOK_BYTES = 32 * 2**20  # a notebook full of figures takes a few million


@dataclass(frozen=True)
class Submission:
    """One notebook of one student, still unread; or the reason why there is none.

    Args:
        path: the notebook, or the zip that holds it.
        member: its name in the zip. outer: the name of that zip in the zip at the path, where a zip holds zips.
        origin: where it came from, as the instructor would look for it.
        notes: such as "3 notebooks, the newest was taken".
        lesson: what its path says, such as 04_wanda; empty where it says nothing.
        attempt: of a resubmission, as the course system counts them. stamp: when it was saved, in seconds.
        flat: whether it lies next to files of other students, so that only names say whose a file there is.
    """

    student: str
    origin: str
    path: Path | None = None
    member: str = ""
    outer: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()
    _: KW_ONLY
    lesson: str = ""
    attempt: int = 0
    stamp: float = 0.0
    flat: bool = False

    def read(self) -> bytes:
        """The notebook's bytes.

        Raises:
            ValueError: when there is none, or it is larger than any notebook is.
        """
        if self.path is None:
            raise ValueError(self.problem or f"got no notebook from {self.origin}; expected one.")
        return zips.read(self.path, self.outer, self.member, limit=NOTEBOOK_BYTES)
