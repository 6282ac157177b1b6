"""One notebook of one student, as it was submitted."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from course_lib.grading.intake import zips

NOTEBOOK_BYTES = 32 * 2**20  # a notebook full of figures takes a few million


@dataclass(frozen=True)
class Submission:
    """One notebook of one student, not read yet; or the reason why there is none.

    Args:
        path: the notebook, or the zip that holds it.
        member: its name in the zip. outer: if zips are nested, the name of the inner zip in the zip at `path`.
        origin: where the instructor can find it.
        notes: such as "3 notebooks, the newest was taken".
        lesson: the lesson in its path, such as 04_wanda; empty if there is none.
        attempt: the course system's number of the resubmission. stamp: time of saving, in seconds.
        flat: whether files of other students are in the same folder, so that only names give the owner of a file.
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
        """Return the notebook's bytes.

        Raises:
            ValueError: if there is none, or it is larger than any real notebook.
        """
        if self.path is None:
            raise ValueError(self.problem or f"got no notebook from {self.origin}; expected one.")
        return zips.read(self.path, self.outer, self.member, limit=NOTEBOOK_BYTES)
