"""Where the pages go: whole or as before, and over nobody's files."""

import errno
import os

import pytest
from rich.console import Console

from course_lib.workbook.site import build as site
from course_lib.workbook.site import place

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def written(folder, text):
    (folder / "lessons").mkdir()
    (folder / "lessons" / "00.html").write_text(text)


def made(target, text="a page"):
    with place.replacing(target) as empty:
        written(empty, text)
    return target


def test_a_site_replaces_an_earlier_one_whole(tmp_path):
    target = made(tmp_path / "html", "before")
    place.ours(target)
    with place.replacing(target) as empty:
        (empty / "index.html").write_text("after")
        assert (target / "lessons" / "00.html").read_text() == "before"
    assert sorted(path.name for path in target.iterdir()) == [place.LIST, "index.html"]
    assert [path.name for path in tmp_path.iterdir()] == ["html"]


def test_a_folder_with_files_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "new").mkdir()
    for target in (tmp_path / "new", tmp_path / "not there"):
        place.ours(target)
    target = made(tmp_path / "html")
    for name in ("thesis.tex", "CNAME", "a", "b"):
        (target / name).write_text("mine")
    with pytest.raises(ValueError, match="files that are not of the site: CNAME, a, b and 1 more; expected a new"):
        place.ours(target)
    with pytest.raises(ValueError, match="which is a file"):
        place.ours(target / "thesis.tex")


@pytest.mark.parametrize(
    ("stopped", "said"),
    [
        (KeyboardInterrupt(), "Stopped. Executed lessons are kept, and the existing pages are complete."),
        (FULL, "got a full disk: .*no page was changed. Make room"),
        ("WARNING: error writing file a.html: " + str(FULL), "got a full disk: "),
    ],
)
def test_pages_are_as_before_when_a_build_is_stopped(tmp_path, monkeypatch, stopped, said):
    target = made(tmp_path / "build" / "site" / "html")

    def sphinx(folder, empty):
        (empty / "index.html").write_text("half of a page")
        if isinstance(stopped, str):
            return stopped
        raise stopped

    monkeypatch.setattr(site, "_lessons", lambda *_: [])
    monkeypatch.setattr(site.source, "tree", lambda lessons, decks, folder, root: folder.mkdir())
    monkeypatch.setattr(site, "_sphinx", sphinx)
    console = Console(record=True, width=200)
    if isinstance(stopped, KeyboardInterrupt):
        assert site.build(slides=False, root=tmp_path, console=console) == 130
        assert said in console.export_text()
    else:
        with pytest.raises(ValueError, match=said):
            site.build(slides=False, root=tmp_path, console=console)
    assert (target / "lessons" / "00.html").read_text() == "a page"
    assert sorted(path.name for path in target.parent.iterdir()) == [".lock", "extra", "html", "source"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_pages_are_whole_wherever_the_exchange_is_stopped(tmp_path, monkeypatch, at):
    """Whatever moves or removes a folder is stopped by Ctrl-C, the first, the second or the third of them."""
    target, calls = made(tmp_path / "html"), []

    def stopping(do):
        def done(path, *arguments, **options):
            calls.append(path)
            if len(calls) == at:
                raise KeyboardInterrupt
            return do(path, *arguments, **options)

        return done

    with pytest.raises(KeyboardInterrupt), place.replacing(target) as empty:  # noqa: PT012
        written(empty, "a new page")
        monkeypatch.setattr(place.Path, "rename", stopping(place.Path.rename))
        monkeypatch.setattr(place.shutil, "rmtree", stopping(place.shutil.rmtree))
    monkeypatch.undo()
    assert (target / "lessons" / "00.html").read_text() in ("a page", "a new page")
    place.ours(target)
    made(target)
    assert [path.name for path in tmp_path.iterdir()] == ["html"]


def test_pages_of_a_run_that_was_killed_between_two_names_are_there_again(tmp_path):
    target = made(tmp_path / "html")
    target.rename(tmp_path / ".html.old")
    with pytest.raises(OSError, match="full"), place.replacing(target):
        raise OSError("full")
    assert (target / "lessons" / "00.html").read_text() == "a page"
    assert [path.name for path in tmp_path.iterdir()] == ["html"]


def test_an_out_with_files_is_refused_before_anything_is_executed(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "_lessons", lambda *_: pytest.fail("a lesson was executed"))
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="Nothing was written"):
        site.build(root=tmp_path, out=tmp_path)


def test_two_builds_do_not_meet(tmp_path):
    (tmp_path / "build").mkdir()
    said = "another `course site` is running in .*; expected one"
    with place.alone(tmp_path / "build" / "site"), pytest.raises(ValueError, match=said):
        site.build(root=tmp_path, console=Console(record=True))
    with place.alone(tmp_path / "build" / "site"):
        pass
