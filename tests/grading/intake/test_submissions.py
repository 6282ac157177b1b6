"""A folder as course systems export it becomes one submission for every student, whatever is wrong with it."""

import io
import os
import pickle
import zipfile

import pytest

from course_lib.grading.intake.student_ids import LONGEST, clean
from course_lib.grading.intake.submission import NOTEBOOK_BYTES
from course_lib.grading.intake.submissions import file_name, find, newest

STEM = "04_wanda"


def build(folder, *names):
    """Files below a folder. A name that ends in / is an empty folder; the content says where it came from."""
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"from {name}")
    return folder


def packed(*names, **contents):
    """A zip of files in memory. A content that is bytes is taken as it is."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, f"from {name}")
        for name, content in contents.items():
            archive.writestr(name.replace("__zip", ".zip"), content)
    return buffer.getvalue()


def students(folder, stem=STEM, **how):
    """Student -> what is read from the submission that counts, or the problem."""
    found = newest(find(folder, **how), stem)
    assert len({each.student for each in found}) == len(found)
    assert len({file_name(each.student).casefold() for each in found}) == len(found)
    return {each.student: each.problem or each.read().decode() for each in found}


def notes(folder, student, **how):
    return next(each.notes for each in newest(find(folder, **how), STEM) if each.student == student)


# Layouts ---------------------------------------------------------------------------------------------------------

CANVAS = (
    "examplealice_123456_7890_04_wanda.ipynb",
    "examplebob_LATE_123457_7891_04_wanda-2.ipynb",
    "ex_ample_123458_7892_my solution (1).ipynb",
    "anon_x7Yz2_7893_04_wanda.ipynb",
    "LATE_anon_Q1_7894_04_wanda-1.ipynb",
    "examplecara_123459_7895_report.pdf",
    "exampledan_LATE_123460_text.html",
    "éxampleeve_123461_7896_04_wanda.ipynb",
)
CANVAS_STUDENTS = {
    "examplealice_123456", "examplebob_123457", "ex_ample_123458", "anon_x7Yz2", "anon_Q1", "examplecara_123459",
    "exampledan_123460", "éxampleeve_123461",
}  # fmt: skip
LAYOUTS = {
    "flat": (("alice.ipynb", "bob.ipynb", "o.brien.ipynb"), {"alice", "bob", "o.brien"}),
    "flat with the lesson": (
        ("04_wanda_alice.ipynb", "bob_04_wanda.ipynb", "04-Wanda-Cara Example.ipynb", "dan 04_wanda (1).ipynb"),
        {"alice", "bob", "Cara Example", "dan"},
    ),
    "a folder each": (("alice/04_wanda.ipynb", "bob/mine/notebook.ipynb"), {"alice", "bob"}),
    "numbers as ids": (("01/04_wanda.ipynb", "02/04_wanda.ipynb", "03/04_wanda.ipynb"), {"01", "02", "03"}),
    "a folder a lesson": (("04_wanda/alice.ipynb", "04_wanda/bob.ipynb"), {"alice", "bob"}),
    "two lessons": (("04_wanda/alice/a.ipynb", "lesson 03/alice/a.ipynb"), {"alice"}),
    "a folder around": (("hw4/alice/x.ipynb", "hw4/bob/x.ipynb", "hw4/roster.csv", "README.md"), {"alice", "bob"}),
    "a folder around files": (("hw4/alice.ipynb", "hw4/bob.ipynb"), {"alice", "bob"}),
    "two folders around": (("a/b/alice/04_wanda.ipynb", "a/b/bob/04_wanda.ipynb"), {"alice", "bob"}),
    "one student": (("alice/04_wanda.ipynb",), {"alice"}),
    "one student with two lessons": (("alice/04_wanda.ipynb", "alice/03_sparsegpt.ipynb"), {"alice"}),
    "nbgrader": (
        ("submitted/alice/04_wanda/04_wanda.ipynb", "submitted/alice/04_wanda/timestamp.txt",
         "submitted/bob/04_wanda/04_wanda.ipynb", "source/04_wanda/04_wanda.ipynb", "gradebook.db",
         "autograded/alice/04_wanda/04_wanda.ipynb", "feedback/alice/04_wanda/04_wanda.html"),
        {"alice", "bob"},
    ),
    "nbgrader in a folder": (("course/submitted/alice/04_wanda/04_wanda.ipynb", "course/x.py"), {"alice"}),
    "nbgrader's submitted itself": (("alice/04_wanda/04_wanda.ipynb", "bob/04_wanda/04_wanda.ipynb"), {"alice", "bob"}),
    "Canvas": (CANVAS, CANVAS_STUDENTS),
    "Canvas in a folder": (tuple(f"submissions/{name}" for name in CANVAS), CANVAS_STUDENTS),
    "Moodle": (
        ("Alice Example_12345_assignsubmission_file_/04_wanda.ipynb",
         "Alice Example_12345_assignsubmission_onlinetext_/onlinetext.html",
         "Bob O'Neil_12346_assignsubmission_file/deep/er/04_wanda.ipynb",
         "Participant_12347_assignsubmission_file_/04_wanda.ipynb"),
        {"Alice Example_12345", "Bob O'Neil_12346", "Participant_12347"},
    ),
    "Moodle, one folder": (
        ("Alice Example_12345_assignsubmission_file_04_wanda.ipynb",
         "Bob Example_12346_assignsubmission_file_my_04_wanda.ipynb",
         "Cara Example_12347_assignsubmission_onlinetext_onlinetext.html"),
        {"Alice Example_12345", "Bob Example_12346", "Cara Example_12347"},
    ),
    "Gradescope without its list": (
        ("submission_1/04_wanda.ipynb", "submission_2/04_wanda.ipynb"),
        {"submission_1", "submission_2"},
    ),
}  # fmt: skip


def test_a_file_called_like_another_students_stays_with_its_owner(tmp_path):
    build(
        tmp_path,
        "Alice Example_111_assignsubmission_file_Bob Example_222_assignsubmission_file_04_wanda.ipynb",
        "Bob Example_222_assignsubmission_file_04_wanda.ipynb",
        "Cara Example_333_assignsubmission_file_04_wanda.ipynb",
    )
    found = students(tmp_path, roster=["111", "222", "333"])
    assert found["222"] == "from Bob Example_222_assignsubmission_file_04_wanda.ipynb"
    assert set(found) == {"111", "222", "333"}
    assert found["111"].startswith("from Alice")


def test_the_name_as_on_the_roster_comes_before_another_case(tmp_path):
    build(tmp_path, "BOB.ipynb", "bob.ipynb", "Cara.zip")
    found = students(tmp_path, roster=["bob", "cara"])
    assert found["bob"] == "from bob.ipynb"
    assert "BOB (2)" in found or "bob (2)" in found


@pytest.mark.parametrize("other", ["ALICE.ipynb", "Alice.ipynb", "Alice/04_wanda.ipynb"])
def test_without_a_roster_capitals_take_no_id_in_silence(tmp_path, other):
    build(tmp_path, "alice/04_wanda.ipynb", other)
    found = students(tmp_path)
    name = other[:5]
    assert found == {"alice": "from alice/04_wanda.ipynb", f"{name} (2)": f"from {other}"}
    assert notes(tmp_path, f"{name} (2)") == (f"another submission has the id {name} as well",)
    first = other.partition("/")[0]
    assert notes(tmp_path, "alice") == (f"{first} has this id as well; it is graded as {name} (2)",)


FORGED = ("alice_123_456_04_wanda.ipynb", "bob_1_2_04_wanda.ipynb")  # in the zip of one student


@pytest.mark.parametrize("beside", ["cara_7_8_report.pdf", "cara_7_8_text.html", "Cara_7_assignsubmission_file_a.pdf"])
def test_a_zip_beside_files_of_a_course_system_is_one_students(tmp_path, beside):
    build(tmp_path, beside)
    (tmp_path / "mallory.zip").write_bytes(packed(*FORGED))
    assert set(students(tmp_path)) == {"mallory", "cara_7" if "assign" not in beside else "Cara_7"}


@pytest.mark.parametrize("name", ["mallory_5_6_work.zip", "Mallory_5_assignsubmission_file_work.zip"])
def test_a_zip_that_a_course_system_has_named_is_one_students(tmp_path, name):
    (tmp_path / name).write_bytes(packed(*FORGED))
    assert {each.casefold() for each in students(tmp_path)} == {"mallory_5"}


def test_a_zip_of_somebody_on_the_roster_is_one_students(tmp_path):
    (tmp_path / "mallory.zip").write_bytes(packed(*FORGED))
    assert set(students(tmp_path, roster=["mallory", "alice"])) == {"mallory", "alice"}
    assert set(students(tmp_path, roster=["alice", "bob"])) == {"alice", "bob"}, "a zip of the class"


@pytest.mark.parametrize("ending", ["", ".zip"])
def test_a_student_called_submitted_hides_nobody(tmp_path, ending):
    build(tmp_path, "Submitted/04_wanda.ipynb")
    for name in ("alice", "bob"):
        if ending:
            (tmp_path / f"{name}.zip").write_bytes(packed("04_wanda.ipynb"))
        else:
            build(tmp_path, f"{name}/04_wanda.ipynb")
    assert set(students(tmp_path)) == {"alice", "bob", "Submitted"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_on_disk(name, tmp_path):
    names, expected = LAYOUTS[name]
    assert set(students(build(tmp_path, *names))) == expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_in_one_zip_beside_which_there_is_nothing(name, tmp_path):
    names, expected = LAYOUTS[name]
    if name.startswith("one student"):  # the zip is the student's then, as far as anyone can tell
        expected = {"class"}
    (tmp_path / "class.zip").write_bytes(packed(*names))
    assert set(students(tmp_path)) == (expected if "nbgrader" in name or len(expected) > 1 else {"class"})
    assert set(students(tmp_path / "class.zip")) == LAYOUTS[name][1]


def test_what_is_read_is_the_lesson_asked_for(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "alice/03_sparsegpt.ipynb", "bob/lesson3/nb.ipynb", "bob/lesson4/nb.ipynb")
    build(tmp_path, "cara/Sparsegpt.ipynb", "cara/Wanda final.ipynb", "dan/3.ipynb", "dan/work.ipynb")
    assert students(tmp_path) == {
        "alice": "from alice/04_wanda.ipynb",
        "bob": "from bob/lesson4/nb.ipynb",
        "cara": "from cara/Wanda final.ipynb",
        "dan": "from dan/work.ipynb",
    }
    assert students(tmp_path, "03_sparsegpt")["dan"] == "from dan/3.ipynb"
    assert students(tmp_path, "02_optimal_brain_damage_and_surgeon")["alice"] == (
        "there is no notebook of 02_optimal_brain_damage_and_surgeon, only of 03_sparsegpt, 04_wanda."
    )


def test_a_student_may_be_called_as_a_lesson_is(tmp_path):
    build(tmp_path, "wanda.ipynb", "sparsegpt.ipynb", "alice.ipynb")
    assert students(tmp_path) == {name: f"from {name}.ipynb" for name in ("wanda", "sparsegpt", "alice")}


def test_zips_of_students_beside_folders_and_files(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "bob.ipynb")
    (tmp_path / "cara.zip").write_bytes(packed("deep/04_wanda.ipynb", "__MACOSX/deep/._04_wanda.ipynb"))
    (tmp_path / "04_wanda_dan.zip").write_bytes(packed("nb.ipynb", "data.csv"))
    assert students(tmp_path) == {
        "alice": "from alice/04_wanda.ipynb",
        "bob": "from bob.ipynb",
        "cara": "from deep/04_wanda.ipynb",
        "dan": "from nb.ipynb",
    }


def test_zips_in_the_zip_of_a_class(tmp_path):
    inner = packed("work/04_wanda.ipynb")
    names = {
        "examplealice_1_2_work.zip": inner,
        "Bob_3_assignsubmission_file_/b.zip": inner,
        "cara.zip": packed(x__zip=inner),
    }
    (tmp_path / "class.zip").write_bytes(packed("exampledan_5_6_04_wanda.ipynb", **names))
    found = students(tmp_path)
    assert {name: found[name] for name in ("examplealice_1", "Bob_3", "exampledan_5")} == {
        "examplealice_1": "from work/04_wanda.ipynb",
        "Bob_3": "from work/04_wanda.ipynb",
        "exampledan_5": "from exampledan_5_6_04_wanda.ipynb",
    }
    assert (
        found["cara"]
        == "no notebook could be taken from x.zip: it is a zip in a zip in a zip; pack the notebook itself."
    )


def test_exports_of_two_sections(tmp_path):
    (tmp_path / "a.zip").write_bytes(packed("examplealice_1_2_04_wanda.ipynb"))
    (tmp_path / "b.zip").write_bytes(packed("examplebob_3_4_04_wanda.ipynb"))
    assert set(students(tmp_path)) == {"examplealice_1", "examplebob_3"}


METADATA = """submission_1:
  :submitters:
  - :name: Alice Example
    :sid: '111'
    :email: alice@example.org
  :created_at: 2026-04-26 17:34:00.861687000 Z
  :results:
    output: |-
      submission_9:
        :submitters:
        - :name: Mallory
submission_2:
  :submitters:
  - :name: "Bob \\"B\\" \\u00c9"
    :sid: 222
  - :name: 'Cara O''Neil'
    :sid:
submission_3:
  :submitters: []
submission_4:
  :submitters:
  - :email: dan@example.org
"""


@pytest.mark.parametrize("where", ["", "assignment_1_export/"])
def test_gradescope_says_who_is_in_which_folder(where, tmp_path):
    """Ids are read from the list beside the folders; what a program printed into it is not taken for a student."""
    build(tmp_path, *(f"{where}submission_{i}/04_wanda.ipynb" for i in (1, 2, 3)), f"{where}.DS_Store")
    (tmp_path / where / "submission_metadata.yml").write_text(METADATA, encoding="utf-8")
    assert students(tmp_path) == {
        "alice@example.org": f"from {where}submission_1/04_wanda.ipynb",
        "222": f"from {where}submission_2/04_wanda.ipynb",
        "Cara O'Neil": f"from {where}submission_2/04_wanda.ipynb",
        "submission_3": f"from {where}submission_3/04_wanda.ipynb",
        "dan@example.org": "there is no notebook (.ipynb): it is empty.",
    }
    found = students(tmp_path, roster=["Alice Example", "111", 'Bob "B" É'])
    assert {"111", 'Bob "B" É'} < set(found) or {"Alice Example", 'Bob "B" É'} < set(found)


def test_gradescope_in_a_zip_and_a_list_that_is_far_too_large(tmp_path):
    (tmp_path / "class.zip").write_bytes(
        packed("e/submission_1/04_wanda.ipynb", **{"e/submission_metadata.yml": METADATA})
    )
    assert students(tmp_path)["alice@example.org"] == "from e/submission_1/04_wanda.ipynb"
    folder = build(tmp_path / "large", "submission_1/04_wanda.ipynb")
    with (folder / "submission_metadata.yml").open("wb") as file:
        file.truncate(2**25)
    assert students(folder) == {"submission_1": "from submission_1/04_wanda.ipynb"}


# Which notebook --------------------------------------------------------------------------------------------------


def test_of_several_notebooks_the_newest_counts(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "alice/04_wanda (1).ipynb", "alice/old/04_wanda.ipynb", "alice/notes.ipynb")
    for hour, name in enumerate(("04_wanda (1).ipynb", "04_wanda.ipynb", "old/04_wanda.ipynb", "notes.ipynb")):
        os.utime(tmp_path / "alice" / name, (3600 * hour, 3600 * hour))
    assert students(tmp_path) == {"alice": "from alice/old/04_wanda.ipynb"}
    assert notes(tmp_path, "alice") == ("3 notebooks, the newest was taken: alice/old/04_wanda.ipynb",)


def test_in_a_zip_the_time_of_the_member_counts(tmp_path):
    with zipfile.ZipFile(tmp_path / "alice.zip", "w") as archive:
        for name, hour in (("04_wanda.ipynb", 9), ("a/04_wanda.ipynb", 11), ("b/04_wanda.ipynb", 10)):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, hour, 0, 0)), f"from {name}")
    assert students(tmp_path) == {"alice": "from a/04_wanda.ipynb"}


def test_canvas_counts_resubmissions_and_late_is_no_name(tmp_path):
    build(
        tmp_path,
        *(
            f"examplealice_{late}1_{i}_04_wanda{n}.ipynb"
            for late, i, n in (("", 7, ""), ("LATE_", 5, "-2"), ("", 9, "-1"))
        ),
    )
    for hour, path in enumerate(sorted(tmp_path.iterdir())):
        os.utime(path, (3600 * hour, 3600 * hour))
    assert students(tmp_path) == {"examplealice_1": "from examplealice_LATE_1_5_04_wanda-2.ipynb"}


def test_a_notebook_that_cannot_be_read_does_not_stand_in_for_one_that_can(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb")
    with (tmp_path / "alice/04_wanda (1).ipynb").open("wb") as file:
        file.truncate(NOTEBOOK_BYTES + 1)
    assert students(tmp_path) == {"alice": "from alice/04_wanda.ipynb"}


def test_every_notebook_is_found_before_one_is_chosen(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "alice/03_sparsegpt.ipynb", "bob/04_wanda.ipynb")
    found = find(tmp_path)
    assert [(each.student, each.origin) for each in found] == [
        ("alice", "alice/03_sparsegpt.ipynb"),
        ("alice", "alice/04_wanda.ipynb"),
        ("bob", "bob/04_wanda.ipynb"),
    ]
    assert pickle.loads(pickle.dumps(found)) == found


def test_suffixes_that_browsers_add_are_seen_through(tmp_path):
    build(tmp_path, "alice.ipynb.txt", "bob/04_wanda.ipynb.json", "cara/04_wanda.IPYNB")
    assert set(students(tmp_path).values()) == {
        "from alice.ipynb.txt",
        "from bob/04_wanda.ipynb.json",
        "from cara/04_wanda.IPYNB",
    }


def test_a_name_of_two_lines_is_a_name(tmp_path):
    build(tmp_path, "new\nline.ipynb", "bob/04\nwanda.ipynb", "dan\neve.rar")
    found = students(tmp_path)
    assert found.pop("dan eve").startswith("there is no notebook")
    assert {student: said[:4] for student, said in found.items()} == {"new line": "from", "bob": "from"}


EXERCISES = ("wanda.score", "wanda.n_of_m", "wanda.block")
FULL = "".join(f'check(\\"{name}\\", f)' for name in EXERCISES)
STUBS = "".join(f'raise NotImplementedError(\\"Exercise {name}: replace this line\\")' for name in EXERCISES)
ONE_OF_THEM = '"exercise": "wanda.score"'
ATTEMPTS = {  # hours, names and contents, and which counts
    "a newer one without a lesson": ({"04_wanda": "", "mine": FULL}, "mine"),
    "a newer one with as many": ({"04_wanda": ONE_OF_THEM, "mine": ONE_OF_THEM}, "mine"),
    "an older one without a lesson": ({"mine": FULL, "04_wanda": ONE_OF_THEM}, "04_wanda"),
    "a newer one with fewer": ({"04_wanda": FULL, "mine": ONE_OF_THEM}, "04_wanda"),
    "a newer one without any": ({"04_wanda": "", "mine": "import torch"}, "04_wanda"),
    "a newer copy in which nothing is written": ({"04_wanda": FULL, "mine": FULL + STUBS}, "04_wanda"),
    "a newer copy where the older has no answer either": ({"04_wanda": FULL + STUBS, "mine": FULL + STUBS}, "mine"),
    "a newer one of another lesson": ({"04_wanda": "", "03_sparsegpt": FULL}, "04_wanda"),
    "the newest of several": ({"a": FULL, "04_wanda": FULL, "b": FULL, "c": FULL, "d": ""}, "c"),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_newest_attempt_counts_whatever_it_is_called(name, tmp_path):
    made, counts = ATTEMPTS[name]
    for hour, (stem, content) in enumerate(made.items()):
        path = build(tmp_path, f"alice/{stem}.ipynb") / f"alice/{stem}.ipynb"
        path.write_text(content)
        os.utime(path, (3600 * hour, 3600 * hour))
    build(tmp_path, "bob.ipynb")
    chosen, _ = newest(find(tmp_path), STEM, exercises=EXERCISES)
    assert chosen.origin == f"alice/{counts}.ipynb"
    last = list(made)[-1]
    said = f"alice/{last}.ipynb is newer but was not graded: its name says no lesson, and "
    assert any(note.startswith(said) for note in chosen.notes) is (last != counts and not last[0].isdigit())


def test_a_newer_notebook_beside_the_folder_counts_too(tmp_path):
    build(tmp_path, "carol/04_wanda.ipynb")
    (tmp_path / "carol.ipynb").write_text(FULL)
    os.utime(tmp_path / "carol/04_wanda.ipynb", (0, 0))
    (chosen,) = newest(find(tmp_path), STEM, exercises=EXERCISES)
    assert (chosen.origin, chosen.notes) == ("carol.ipynb", ("2 notebooks, the newest was taken: carol.ipynb",))


# What can be wrong -----------------------------------------------------------------------------------------------


def test_what_is_no_submission_is_not_looked_at(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "alice/.ipynb_checkpoints/04_wanda-checkpoint.ipynb", ".hidden/x.ipynb")
    build(tmp_path, "__MACOSX/bob/04_wanda.ipynb", "._alice.ipynb", "README.md", "roster.csv", ".git/x.ipynb")
    assert students(tmp_path) == {"alice": "from alice/04_wanda.ipynb"}
    assert notes(tmp_path, "alice") == ()


def test_students_without_a_notebook_have_a_problem(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "bob/", "cara/report.pdf", "cara/a.py", "cara/b.py", "cara/c.py")
    build(tmp_path, "dan.rar", "eve/eve.7z", "fay/x.ipynb/")
    (tmp_path / "gus.zip").write_bytes(packed("x.txt"))
    (tmp_path / "hal.zip").write_bytes(packed())
    found = students(tmp_path)
    assert found.pop("alice").startswith("from")
    assert found == {
        "bob": "there is no notebook (.ipynb): it is empty.",
        "cara": "there is no notebook (.ipynb): it holds a.py, b.py, c.py and more.",
        "dan": "there is no notebook (.ipynb): it holds dan.rar.",
        "eve": "there is no notebook (.ipynb): it holds eve.7z.",
        "fay": "no notebook could be taken from x.ipynb: it is a folder that is named as a notebook.",
        "gus": "there is no notebook (.ipynb): it holds x.txt.",
        "hal": "there is no notebook (.ipynb): it is empty.",
    }


def test_a_folder_named_as_a_notebook_may_hold_one(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb/04_wanda.ipynb", "bob/04_wanda.ipynb")
    assert students(tmp_path)["alice"] == "from alice/04_wanda.ipynb/04_wanda.ipynb"
    assert notes(tmp_path, "alice") == ("04_wanda.ipynb: it is a folder that is named as a notebook.",)


def test_links_are_not_followed(tmp_path):
    folder = build(tmp_path / "class", "alice/04_wanda.ipynb", "bob/", "dan/")
    build(tmp_path, "secret.ipynb", "outside/04_wanda.ipynb")
    (folder / "bob/04_wanda.ipynb").symlink_to(folder / "alice/04_wanda.ipynb")
    (folder / "cara.ipynb").symlink_to(tmp_path / "secret.ipynb")
    (folder / "dan/work").symlink_to(tmp_path / "outside")
    (folder / "eve").symlink_to(tmp_path / "outside")
    (folder / "fay.zip").symlink_to("/nowhere")
    found = students(folder)
    assert found.pop("alice").startswith("from")
    assert set(found) == {"bob", "cara", "dan", "eve", "fay"}
    assert all("it is a link" in problem for problem in found.values())


def test_a_link_put_there_after_looking_is_not_followed_either(tmp_path):
    build(tmp_path, "secret", "class/alice/04_wanda.ipynb")
    (found,) = newest(find(tmp_path / "class"), STEM)
    found.path.unlink()
    found.path.symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="it is a link, which is not followed"):
        found.read()


def test_a_folder_reached_by_a_link_is_graded(tmp_path):
    build(tmp_path, "real/alice/04_wanda.ipynb", "real/bob/04_wanda.ipynb")
    (tmp_path / "class").symlink_to(tmp_path / "real")
    assert set(students(tmp_path / "class")) == {"alice", "bob"}


def test_pipes_are_not_waited_for(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "bob/")
    os.mkfifo(tmp_path / "bob/04_wanda.ipynb")
    os.mkfifo(tmp_path / "cara.zip")
    found = students(tmp_path)
    assert found["bob"] == "04_wanda.ipynb: it is no ordinary file."
    assert "no ordinary file" in found["cara"]


def test_what_may_not_be_read_is_said(tmp_path, monkeypatch):
    """As root, who may read everything, the system's answer is played."""
    build(tmp_path, "alice/04_wanda.ipynb", "bob/04_wanda.ipynb", "cara/04_wanda.ipynb")

    def refusing(real, *refused):
        def call(path, *rest):
            if str(path).endswith(refused):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *rest)

        return call

    monkeypatch.setattr(os, "open", refusing(os.open, "bob/04_wanda.ipynb"))
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, "/cara"))
    assert students(tmp_path) == {
        "alice": "from alice/04_wanda.ipynb",
        "bob": "04_wanda.ipynb: the file cannot be opened (Permission denied).",
        "cara": "no notebook could be taken from cara: the folder cannot be read (Permission denied).",
    }


def test_a_notebook_of_200_mb_is_refused_without_being_read(tmp_path, monkeypatch):
    build(tmp_path, "bob.ipynb", "alice.ipynb")
    os.truncate(tmp_path / "alice.ipynb", 200 * 2**20)
    assert students(tmp_path) == {
        "alice": "alice.ipynb: got more than 32 MiB; clear the notebook's outputs and hand it in again.",
        "bob": "from bob.ipynb",
    }
    (found,) = find(tmp_path / "bob.ipynb")
    os.truncate(found.path, 200 * 2**20)
    monkeypatch.setattr("course_lib.grading.intake.zips.bounded", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ValueError, match="more than 32 MiB"):
        found.read()


def test_a_large_notebook_in_a_zip_is_refused_without_being_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "alice.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("04_wanda.ipynb", bytes(NOTEBOOK_BYTES + 1))
    assert "more than 32 MiB" in students(tmp_path)["alice"]


def test_a_broken_zip_is_a_students_problem_and_the_class_zips_is_the_instructors(tmp_path):
    build(tmp_path, "alice.ipynb", "bob.zip")
    assert students(tmp_path)["bob"].startswith("no notebook could be taken from bob.zip: the zip is damaged or none")
    with pytest.raises(ValueError, match=r"bob\.zip: the zip is damaged or none"):
        find(tmp_path / "bob.zip")


def test_a_broken_zip_beside_a_notebook_is_a_note(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "alice/x.zip", "bob.ipynb")
    assert students(tmp_path)["alice"] == "from alice/04_wanda.ipynb"
    assert notes(tmp_path, "alice")[0].startswith("x.zip: the zip is damaged or none")


def test_what_lies_in_a_students_zip_cannot_name_another_student(tmp_path):
    """Otherwise a zip with bob's name in it would replace what bob handed in."""
    inside = (
        "submitted/bob/04_wanda/04_wanda.ipynb",
        "bob_1_2_04_wanda.ipynb",
        "Bob_9_assignsubmission_file_/04_wanda.ipynb",
        "submission_1/04_wanda.ipynb",
        "bob/04_wanda.ipynb",
    )
    (tmp_path / "alice.zip").write_bytes(packed(*inside, **{"submission_metadata.yml": METADATA}))
    build(tmp_path, "bob.ipynb", "cara/submitted/bob/04_wanda/04_wanda.ipynb")
    found = students(tmp_path)
    assert set(found) == {"alice", "bob", "cara"}
    assert found["bob"] == "from bob.ipynb"


@pytest.mark.parametrize("folder", ["nowhere", "file.txt", "nowhere.ipynb", "nowhere.zip"])
def test_a_folder_that_is_none_is_refused(folder, tmp_path):
    build(tmp_path, "file.txt")
    with pytest.raises(ValueError, match=r"expected a folder of submissions|cannot be opened"):
        find(tmp_path / folder)


def test_far_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.grading.intake.entries.MOST_FILES", 5)
    with pytest.raises(ValueError, match="more than 5 files"):
        find(build(tmp_path, *(f"s{i}.ipynb" for i in range(6))))


def test_folders_without_end_are_left_at_some_depth(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "bob" + "/x" * 20 + "/04_wanda.ipynb")
    assert "folders deep" in students(tmp_path)["bob"]


def test_an_empty_folder_holds_nobody(tmp_path):
    assert find(tmp_path) == []


# Patterns and rosters --------------------------------------------------------------------------------------------

PATTERNS = {
    "{student}/{lesson}.ipynb": {"alice", "bob"},
    "{student}/*.ipynb": {"alice", "bob"},
    "{student}.zip/{_}/{lesson}.ipynb": {"cara"},
    r"^(?P<student>[^/.]+)(\.zip)?/": {"alice", "bob", "cara"},
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_says_where_the_student_is(pattern, tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "bob/04_wanda.ipynb")
    (tmp_path / "cara.zip").write_bytes(packed("w/04_wanda.ipynb"))
    found = students(tmp_path, pattern=pattern)
    assert {name for name, said in found.items() if said.startswith("from")} == PATTERNS[pattern]
    missed = {name: said for name, said in found.items() if not said.startswith("from")}
    assert all("does not fit" in said for said in missed.values())
    assert len(found) == 3


def test_a_pattern_looks_into_depth_and_loses_nobody(tmp_path):
    build(tmp_path, "a/x/alice/04_wanda.ipynb", "a/y/bob/03_sparsegpt.ipynb", "odd.ipynb", "empty/", "README.md")
    found = students(tmp_path, pattern="a/*/{student}/{lesson}.ipynb")
    assert found["alice"].startswith("from")
    assert found["bob"] == "there is no notebook of 04_wanda, only of 03_sparsegpt."
    assert "does not fit" in found["odd.ipynb"]
    assert set(found) == {"alice", "bob", "odd.ipynb", "empty"}


@pytest.mark.parametrize("pattern", ["*.ipynb", "", "(?P<student>[", "{lesson}/x"])
def test_a_pattern_that_is_none_is_refused(pattern, tmp_path):
    with pytest.raises(ValueError, match="got pattern"):
        find(tmp_path, pattern=pattern)


def test_a_roster_finds_who_is_missing_and_who_is_not_on_it(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "mallory/04_wanda.ipynb")
    assert students(tmp_path, roster=["alice", "bob", "bob"]) == {
        "alice": "from alice/04_wanda.ipynb",
        "bob": "nothing was handed in.",
        "mallory": "from mallory/04_wanda.ipynb",
    }
    assert notes(tmp_path, "mallory", roster=["alice"]) == ("this id is not on the roster",)
    assert notes(tmp_path, "alice", roster=["alice"]) == ()


def test_a_roster_may_know_students_by_any_of_their_ids(tmp_path):
    build(
        tmp_path,
        "examplealice_1_2_04_wanda.ipynb",
        "examplebob_3_4_04_wanda.ipynb",
        "twin_5_6_a.ipynb",
        "twin_7_8_a.ipynb",
    )
    found = students(tmp_path, roster=["1", "ExampleBob", "twin"])
    assert set(found) == {"1", "ExampleBob", "twin", "twin_5", "twin_7"}
    assert found["twin"] == "nothing was handed in."


# Ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("alice", "alice"),
        ("al\u202eice", "alice"),
        ("a\x00l\x1b[31mice\n", "al[31mice"),
        ("  Alice \t Example ", "Alice Example"),
        ("Jose\u0301", "José"),
        ("a\u200bb\ufeff", "ab"),
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("a\ud800b", "ab"),
        ("アリス", "アリス"),
    ],
)
def test_ids_show_what_they_are(raw, shown):
    assert clean(raw) == shown


def test_ids_that_say_nothing_or_too_much_are_told_apart():
    assert clean("\u202e") != clean("\u202d")
    long = clean("a" * 500 + "b"), clean("a" * 500 + "c")
    assert long[0] != long[1]
    assert max(map(len, long)) < LONGEST + 20


@pytest.mark.parametrize(
    "student",
    [
        "..",
        ".",
        "",
        "a/b",
        "con",
        "NUL.x",
        "Alice",
        "alice ",
        "-rf",
        "é",
        "a" * 65,
        "a\\b",
        "=1+1",
        "alice.",
        "a..b",
        "🙂",
    ],
)
def test_file_names_are_safe_for_any_id(student):
    name = file_name(student)
    assert name != student
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
    assert len(name) < 100
    assert name not in {file_name(other) for other in ("alice", "con-", student + "x")}


@pytest.mark.parametrize("student", ["alice", "alice@example.org", "examplealice_123456", "o.brien", "a+b-c"])
def test_plain_ids_are_their_own_file_names(student):
    assert file_name(student) == student


def test_ids_that_look_alike_stay_apart(tmp_path):
    build(tmp_path, "alice/04_wanda.ipynb", "Alice/04_wanda.ipynb", "ali\u200bce/04_wanda.ipynb", "bob/04_wanda.ipynb")
    found = students(tmp_path)
    assert found["alice" if "alice" in found else "Alice"].startswith("from")
    assert set(found) in ({"Alice", "alice (2)", "alice (3)", "bob"}, {"alice", "Alice (2)", "alice (3)", "bob"})
    assert notes(tmp_path, "alice (3)") == ("another submission has the id alice as well",)


def test_names_in_bytes_that_are_no_text_are_shown(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/al\xffice")
    with open(os.fsencode(tmp_path) + b"/al\xffice/04_wanda.ipynb", "wb") as file:
        file.write(b"from there")
    build(tmp_path, "bob.ipynb")
    assert students(tmp_path)["alice"] == "from there"
    (first, _) = newest(find(tmp_path), STEM)
    first.origin.encode()
