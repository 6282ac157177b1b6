"""Clean students' ids: readable, equal however they were typed, and safe as file names."""

import hashlib
import re
import unicodedata

LONGEST = 80  # characters of an id

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_@+-]*(\.[a-z0-9_@+-]+)*")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # names that Windows reserves
# Control characters, direction marks, unpaired surrogates, private and unassigned characters.
_UNREADABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(text: str) -> str:
    """Return an id for display: without invisible characters, direction marks and path separators."""
    letters = unicodedata.normalize("NFC", text)
    kept = "".join(
        " " if c.isspace() else c for c in letters if c.isspace() or unicodedata.category(c) not in _UNREADABLE
    )
    kept = " ".join(kept.replace("/", "_").replace("\\", "_").split())
    if len(kept) > LONGEST:
        kept = f"{kept[:LONGEST]}~{_digest(text)}"
    return kept or f"student~{_digest(text)}"


def file_name(student: str) -> str:
    """Return the name of a student's files without suffix: the id if every system allows it, else a unique one."""
    if _PLAIN.fullmatch(student) and len(student) <= 64 and not _RESERVED.fullmatch(student):
        return student
    readable = "-".join(re.findall(r"[A-Za-z0-9]+", student[:64])) or "student"
    return f"{readable}-{_digest(student)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
