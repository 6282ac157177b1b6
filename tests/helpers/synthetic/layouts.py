"""A class as the course systems export it. A student is a name and a number, as theirs are: adaito_1007."""

import io
import os
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from synthetic.kinds import File, Work

Packed = dict[str, Work]
DAY = (2026, 3, 2)  # on which everything was saved


def folders(folder: Path, students: Packed, stem: str) -> None:
    """One folder per student."""
    for student, work in students.items():
        _store(folder / student, _files(work, stem))


def nbgrader(folder: Path, students: Packed, stem: str) -> None:
    """student/assignment/notebook, as nbgrader collects them."""
    for student, work in students.items():
        _store(folder / "submitted" / student / stem, _files(work, stem))


def canvas(folder: Path, students: Packed, stem: str) -> None:
    """All files side by side, with the student, the student's number and one of the file in front of each name."""
    for number, (student, work) in enumerate(students.items()):
        name = student.replace("_", "_LATE_") if number % 5 == 4 else student
        for count, file in enumerate(_files(work, stem)):
            known_as = f"{name}_{900_000 + 10 * number + count}_{file.name}"
            _store(folder, [File(known_as, file.content, file.hour)])


def moodle(folder: Path, students: Packed, stem: str) -> None:
    """One zip of the class, with one folder per student."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "submissions.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for student, work in students.items():
            for file in _files(work, stem):
                _add(archive, f"{student}_assignsubmission_file_/{file.name}", file)


def gradescope(folder: Path, students: Packed, stem: str) -> None:
    """Numbered folders, and a file that says whose they are."""
    metadata = []
    for number, (student, work) in enumerate(students.items()):
        name = f"submission_{300_000 + number}"
        _store(folder / name, _files(work, stem))
        metadata += [f"{name}:", "  :submitters:", f"  - :name: {student.title()}", f"    :sid: {student}", ""]
    (folder / "submission_metadata.yml").write_text("---\n" + "\n".join(metadata), encoding="utf-8")


LAYOUTS: dict[str, Callable[[Path, Packed, str], None]] = {
    layout.__name__: layout for layout in (folders, nbgrader, canvas, moodle, gradescope)
}


def _files(work: Work, stem: str) -> tuple[File, ...]:
    """The files of a student, in a zip when they were handed in as one."""
    if not work.zipped:
        return work.files
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in work.files:
            _add(archive, file.name, file)
    return (File(f"{stem}.zip", packed.getvalue()),)


def _add(archive: zipfile.ZipFile, name: str, file: File) -> None:
    entry = zipfile.ZipInfo(name, (*DAY, file.hour, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, file.content)


def _store(folder: Path, files: Iterable[File]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file.name).write_bytes(file.content)
        saved = time.mktime((*DAY, file.hour, 0, 0, 0, 0, -1))
        os.utime(folder / file.name, (saved, saved))
