"""`course claims`: writes the page, leaves it alone when nothing changed, and only compares with --check."""

import pytest

from course_lib.cli import claims


@pytest.fixture
def written(tmp_path, monkeypatch):
    path = tmp_path / "claims.md"
    monkeypatch.setattr(claims, "PATH", path)
    monkeypatch.setattr(claims, "SUMMARY", tmp_path / "verdicts.json")
    monkeypatch.setattr(claims, "page", lambda: "the page\n")
    monkeypatch.setattr(claims, "summary", lambda: "[]\n")
    monkeypatch.setattr(claims, "all_statements", lambda: [])
    return path


def test_the_page_is_written_once(written, capsys):
    assert claims.run() == 0
    assert written.read_text(encoding="utf-8") == "the page\n"
    assert written.with_name("verdicts.json").read_text(encoding="utf-8") == "[]\n"
    stamp = written.stat().st_mtime_ns
    assert claims.run() == 0
    assert written.stat().st_mtime_ns == stamp
    assert "is up to date" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("before", [None, "another page\n"])
def test_a_check_writes_nothing(before, written, capsys):
    if before:
        written.write_text(before, encoding="utf-8")
    assert claims.run(check=True) == 1
    assert (written.read_text(encoding="utf-8") if before else written.exists()) == (before or False)
    assert "differs from the results; run `course claims`" in " ".join(capsys.readouterr().out.split())
