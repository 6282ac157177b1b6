"""Zips whose parts contradict each other, where tests/grading/intake/test_zips.py does not look. Each is a record."""

import io
import re
import struct
import zipfile
from dataclasses import dataclass

import pytest

from course_lib.grading.intake.submissions import find, newest

NOTEBOOK, CENTRAL, END = "04_wanda.ipynb", b"PK\x01\x02", b"PK\x05\x06"


@dataclass(frozen=True, kw_only=True)
class HostileZip:
    """What is in it, and what becomes of it: the notebook that is read, or a pattern in the sentence on why not."""

    content: bytes
    reads: bytes | None = None
    says: str | None = None

    def __post_init__(self) -> None:
        if (self.reads is None) == (self.says is None):
            raise ValueError(f"got reads={self.reads} and says={self.says}; expected one of them.")


def packed(*members: tuple[str, bytes], comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
        archive.comment = comment
    return buffer.getvalue()


def changed(content: bytes, record: bytes, *changes: tuple[int, str, int], last: bool = False) -> bytes:
    """The zip with numbers changed in the first record of a kind, or in the last: (offset, format, number)."""
    content = bytearray(content)
    at = (content.rindex if last else content.index)(record)
    for offset, form, number in changes:
        struct.pack_into(form, content, at + offset, number)
    return bytes(content)


ONE, OTHER = packed((NOTEBOOK, b"{}")), packed((NOTEBOOK, b"[]"))
NO_NUMBER = 0xFFFFFFFF  # stands where a record of zip64 should have the number
ZIPS = {
    "two members in one place": HostileZip(
        content=changed(packed((NOTEBOOK, b"{}"), ("notes.txt", b"{}")), CENTRAL, (42, "<L", 0), last=True), reads=b"{}"
    ),
    "zip64 sizes without their record": HostileZip(
        content=changed(ONE, CENTRAL, (24, "<L", NO_NUMBER), (42, "<L", NO_NUMBER)), says="unpacks to 4095 MiB"
    ),
    "a zip64 end without its record": HostileZip(content=changed(ONE, END, (16, "<L", NO_NUMBER)), says="damaged"),
    "a member that begins elsewhere": HostileZip(content=changed(ONE, CENTRAL, (42, "<L", 7)), says="damaged"),
    "month 15, day 0": HostileZip(content=changed(ONE, CENTRAL, (14, "<H", 15 << 5)), reads=b"{}"),
    "31 o'clock": HostileZip(content=changed(ONE, CENTRAL, (12, "<H", 0xFFFF)), reads=b"{}"),
    "a program in front": HostileZip(content=b"#!/bin/sh\nexit 1\n" + ONE, reads=b"{}"),
    "a second zip behind": HostileZip(content=ONE + OTHER, reads=b"[]"),
    "a second zip in the comment": HostileZip(content=packed((NOTEBOOK, b"{}"), comment=OTHER), reads=b"[]"),
    "a second end in the comment": HostileZip(
        content=packed((NOTEBOOK, b"{}"), comment=END + bytes(18)), says="no notebook"
    ),
    "a name from right to left": HostileZip(content=packed(("\u202ebnypi.adnaw_40.ipynb", b"{}")), reads=b"{}"),
    "control characters in a name": HostileZip(content=packed(("a\x07\x1b[31m/" + NOTEBOOK, b"{}")), reads=b"{}"),
    "a line break in a name": HostileZip(content=packed(("04_wanda\n.ipynb", b"{}")), reads=b"{}"),
    "three thousand members": HostileZip(
        content=packed(*((f"{i}.txt", b"") for i in range(3000)), (NOTEBOOK, b"{}")), reads=b"{}"
    ),
}


@pytest.mark.parametrize("name", ZIPS)
def test_a_zip_is_read_or_refused_in_a_sentence_and_writes_nothing(name, tmp_path):
    (tmp_path / "alice.zip").write_bytes(ZIPS[name].content)
    (tmp_path / "bob.ipynb").write_bytes(b"bob's")
    found = {each.student: each for each in newest(find(tmp_path), "04_wanda")}
    assert set(found) == {"alice", "bob"}
    assert found["bob"].read() == b"bob's"
    said, content = found["alice"].problem, None
    try:
        content = None if said else found["alice"].read()
    except ValueError as error:
        said = str(error)
    assert content == ZIPS[name].reads, said
    assert re.search(ZIPS[name].says or "", said)
    assert {path.name for path in tmp_path.iterdir()} == {"alice.zip", "bob.ipynb"}


@pytest.mark.parametrize("mistaken", [{"raeds": b""}, {}, {"reads": b"", "says": "damaged"}], ids=str)
def test_a_field_that_is_misspelt_or_says_nothing_is_refused(mistaken):
    with pytest.raises((TypeError, ValueError)):
        HostileZip(content=b"", **mistaken)
