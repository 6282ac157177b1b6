"""Zips that were made to do harm, or were broken on the way: a sentence for each, and nothing is ever written."""

import io
import os
import stat
import struct
import tracemalloc
import zipfile

import pytest

from course_lib.grading.intake import zips
from course_lib.grading.intake.submission import NOTEBOOK_BYTES, Submission
from course_lib.grading.intake.submissions import find, newest

CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


def packed(*names, method=zipfile.ZIP_DEFLATED, content=b"{}"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name in names:
            archive.writestr(name, content)
    return bytearray(buffer.getvalue())


def patched(content, signature, offset, layout, value):
    """A zip with one number changed in the first record of a kind."""
    struct.pack_into(layout, content, content.index(signature) + offset, value)
    return content


def written(tmp_path, content, name="alice.zip"):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "bob.ipynb").write_bytes(b"bob's")
    return tmp_path


def outcome(folder, student="alice"):
    """The problem of a student's submission, or what is read of it, or why it cannot be read."""
    chosen = {each.student: each for each in newest(find(folder), "04_wanda")}
    assert chosen["bob"].read() == b"bob's"
    assert len(chosen) == 2
    try:
        return chosen[student].problem or chosen[student].read()
    except ValueError as error:
        return str(error)


@pytest.fixture(autouse=True)
def nothing_is_written(tmp_path, monkeypatch):
    """No file appears but those of the test, and the working folder is one where it would be seen."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    yield
    assert list(place.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} <= {"here", "class"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "class").mkdir()
    return tmp_path / "class"


def test_a_good_zip_is_read(folder):
    assert outcome(written(folder, packed("a/04_wanda.ipynb"))) == b"{}"


NAMES = {
    "../../04_wanda.ipynb": "leads outside",
    "a/../../../04_wanda.ipynb": "leads outside",
    "/etc/04_wanda.ipynb": "leads outside",
    "//host/04_wanda.ipynb": "leads outside",
    "C:/windows/04_wanda.ipynb": "leads outside",
    "c:\\windows\\04_wanda.ipynb": "leads outside",
    "..\\..\\04_wanda.ipynb": "leads outside",
    "x" * 1100 + ".ipynb": "characters",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_outside_are_refused(name, folder):
    assert NAMES[name] in outcome(written(folder, packed(name)))


@pytest.mark.parametrize("name", NAMES)
def test_they_do_not_cost_what_lies_beside_them(name, folder):
    assert outcome(written(folder, packed(name, "04_wanda.ipynb"))) == b"{}"


def test_links_are_refused(folder):
    link = zipfile.ZipInfo("04_wanda.ipynb")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(folder / "alice.zip", "w") as archive:
        archive.writestr(link, "../bob.ipynb")
    assert "it is a link in the zip" in outcome(written(folder, (folder / "alice.zip").read_bytes()))


def test_encryption_is_said(folder):
    content = packed("04_wanda.ipynb")
    patched(patched(content, LOCAL, 6, "<H", 1), CENTRAL, 8, "<H", 1)
    assert "it is encrypted in the zip" in outcome(written(folder, content))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(method, folder):
    assert f"method {method}" in outcome(written(folder, packed("04_wanda.ipynb", method=method)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"<html>Sign in</html>",
        b"\0" * 100,
        bytes(packed("04_wanda.ipynb"))[:-30],
        bytes(packed("04_wanda.ipynb"))[40:],
        END + b"\xff" * 18,
        bytes(patched(packed("04_wanda.ipynb"), END, 16, "<L", 2**31)),
        bytes(patched(packed("é.ipynb"), CENTRAL, 46, "<B", 0xFF)),
    ],
    ids=range(9),  # the bytes hold the time, and would be another name in every process
)
def test_damage_is_said(content, folder):
    assert "damaged" in outcome(written(folder, content))


def test_damage_inside_is_said_when_it_is_read(folder):
    content = packed("04_wanda.ipynb", content=b"{}" * 500)
    content[content.index(b"ipynb") + 8] ^= 0xFF
    assert "damaged" in outcome(written(folder, content))
    wrong_sum = patched(packed("04_wanda.ipynb"), CENTRAL, 16, "<L", 7)
    assert "damaged" in outcome(written(folder, wrong_sum))
    other_name = packed("04_wanda.ipynb")
    other_name[other_name.index(b"04_w")] ^= 1
    assert "damaged" in outcome(written(folder, other_name))


def test_a_size_that_is_a_lie_changes_nothing(folder):
    """The directory says two bytes; what follows is not read, and the sum then does not fit."""
    content = patched(packed("04_wanda.ipynb", content=b"[" * 10_000_000), CENTRAL, 24, "<L", 2)
    assert "damaged" in outcome(written(folder, content))


def test_a_member_that_unpacks_to_more_than_a_notebook_is_refused_at_once(folder):
    assert "more than 32 MiB" in outcome(written(folder, packed("04_wanda.ipynb", content=bytes(NOTEBOOK_BYTES + 1))))


def test_a_bomb_is_refused_by_what_it_says_of_itself(folder):
    """One notebook of 4 GiB in a thousand bytes, or a thousand members that share their bytes."""
    content = patched(packed("04_wanda.ipynb", "x"), CENTRAL, 24, "<L", 2**32 - 2)
    assert "unpacks to 4096 MiB" in outcome(written(folder, content))
    many = packed(*(f"{i}.ipynb" for i in range(1000)))
    at = -1
    while (at := many.find(CENTRAL, at + 1)) >= 0:
        struct.pack_into("<LL", many, at + 20, 2**28, 2**28)  # each as large as the whole, unpacked and packed
    assert "unpacks to" in outcome(written(folder, many))


def test_a_large_class_is_no_bomb(folder, monkeypatch):
    monkeypatch.setattr(zips, "BOMB", (1000, 200))
    content = packed(*(f"s{i}.ipynb" for i in range(20)), content=os.urandom(500))
    (folder / "class.zip").write_bytes(content)
    assert len(find(folder)) == 20


def test_a_list_of_members_too_large_for_memory_is_not_read(folder):
    """The end of the zip says that its list has 1 GiB; in a zip64 it may say more."""
    with (folder / "alice.zip").open("wb") as file:
        file.truncate(2**30)
        file.seek(0, 2)
        file.write(END + struct.pack("<HHHHLLH", 0, 0, 9, 9, 2**30, 0, 0))
    with (folder / "cara.zip").open("wb") as file:
        file.truncate(2**30)
        file.seek(0, 2)
        file.write(b"PK\x06\x06" + struct.pack("<QHHLLQQQQ", 44, 45, 45, 0, 0, 9, 9, 2**30, 0))
        file.write(b"PK\x06\x07" + struct.pack("<LQL", 0, 2**30, 1))
        file.write(END + struct.pack("<HHHHLLH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    tracemalloc.start()
    problems = [each.problem for each in newest(find(folder), "04_wanda")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert all("the zip's list of its files has 1024 MiB" in problem for problem in problems)
    assert peak < 2**26


def test_too_many_members_are_refused(folder, monkeypatch):
    monkeypatch.setattr(zips, "MOST_MEMBERS", 10)
    assert "the zip holds 11 files" in outcome(written(folder, packed(*(f"{i}.ipynb" for i in range(11)))))


def test_of_members_with_one_name_none_is_taken_in_silence(folder):
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = packed("04_wanda.ipynb", "04_wanda.ipynb")
    assert "it is in the zip twice" in outcome(written(folder, content))


def test_a_name_with_a_null_in_it_is_read_as_zipfile_reads_it(folder):
    content = packed("04_wanda.ipynbX.txt")
    while (at := content.find(b"ipynbX")) >= 0:
        content[at + 5] = 0
    assert outcome(written(folder, content)) == b"{}"


@pytest.mark.parametrize("flagged", [True, False])
def test_names_in_utf_8_are_read_whether_or_not_the_zip_says_so(flagged, folder):
    content = packed("Zoë/04_wanda.ipynb", "Ада/04_wanda.ipynb")
    at = -1
    while not flagged and (at := content.find(b"PK", at + 1)) >= 0:
        if content[at : at + 4] in (LOCAL, CENTRAL):
            content[at + (7 if content[at : at + 4] == LOCAL else 9)] = 0
    (folder / "class.zip").write_bytes(content)
    found = newest(find(folder), "04_wanda")
    assert {each.student: each.read() for each in found} == {"Zoë": b"{}", "Ада": b"{}"}


def test_a_zip_in_a_zip_is_opened_and_no_deeper(folder):
    inner = packed("deep/04_wanda.ipynb")
    assert outcome(written(folder, packed("inner.zip", content=bytes(inner)))) == b"{}"
    twice = packed("outer.zip", content=bytes(packed("inner.zip", content=bytes(inner))))
    assert "zip in a zip in a zip" in outcome(written(folder, twice))


def test_inner_zips_are_bounded_too(folder, monkeypatch):
    bomb = packed("04_wanda.ipynb", "x")
    patched(bomb, CENTRAL, 24, "<L", 2**32 - 2)
    assert "inner.zip: the zip unpacks to" in outcome(written(folder, packed("inner.zip", content=bytes(bomb))))
    assert "inner.zip: the zip is damaged" in outcome(written(folder, packed("inner.zip")))
    monkeypatch.setattr(zips, "LARGEST_INNER", 100)
    large = packed("inner.zip", content=bytes(packed("04_wanda.ipynb")))
    assert "more than 0 MiB" in outcome(written(folder, large))


def test_there_is_an_end_to_unpacking_inner_zips(folder, monkeypatch):
    inner = bytes(packed("04_wanda.ipynb"))
    monkeypatch.setattr("course_lib.grading.intake.entries.LARGEST_INNER_SUM", int(1.5 * len(inner)))
    content = packed("first_1_2_a.zip", "second_3_4_a.zip", "third_5_6_a.zip", content=inner)
    (folder / "class.zip").write_bytes(content)
    problems = {each.student: each.problem for each in newest(find(folder), "04_wanda")}
    assert problems["first_1"] == ""
    assert "together" in problems["second_3"]
    assert "together" in problems["third_5"]


def test_what_changed_since_it_was_found_is_said(folder):
    written(folder, packed("04_wanda.ipynb"))
    submission = next(each for each in find(folder) if each.student == "alice")
    (folder / "alice.zip").write_bytes(packed("other.ipynb"))
    with pytest.raises(ValueError, match="holds no '04_wanda.ipynb' any more"):
        submission.read()
    (folder / "alice.zip").unlink()
    with pytest.raises(ValueError, match="cannot be opened"):
        submission.read()


def test_a_member_is_checked_again_when_it_is_read(folder):
    """A submission that was made up, not found, is held to the same rules."""
    written(folder, packed("../04_wanda.ipynb"))
    with pytest.raises(ValueError, match="leads outside"):
        Submission("alice", "alice.zip", folder / "alice.zip", "../04_wanda.ipynb").read()


def test_folders_without_end_in_a_zip_end(folder):
    deep = "x/" * 500 + "04_wanda.ipynb"
    assert outcome(written(folder, packed(deep))) == b"{}"
    (folder / "bob.ipynb").unlink()
    assert [each.student for each in find(folder)] == ["alice"]


def test_a_folder_in_the_place_of_a_file_is_no_ordinary_file(tmp_path):
    with pytest.raises(zips.Refused, match="it is no ordinary file"), zips.regular(tmp_path):
        pass
