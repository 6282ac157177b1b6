"""A deck as a page of the site: what it held lies beside it, once."""

import base64

from course_lib.workbook.site.files import SMALL, in_files

PICTURE = base64.b64encode(b"<svg>" + b"x" * SMALL).decode()
SCRIPT = "let x = 1;\n" * SMALL


def page(further=""):
    picture = f'<img alt="a" src="data:image/svg+xml;base64,{PICTURE}">'
    style = "<style>a { src: url(data:font/woff;base64,AAAA) }</style>"
    return f"{style}{picture}<script>{SCRIPT}</script><script>go()</script>{further}"


def test_pictures_and_scripts_become_files_and_small_things_stay(tmp_path):
    said = in_files(page(), tmp_path / "files", "files")
    written = list((tmp_path / "files").iterdir())
    assert len(said) < 500
    assert all(f'src="files/{path.name}"' in said for path in written)
    assert "base64,AAAA" in said
    assert "<script>go()</script>" in said
    assert {path.suffix: path.read_bytes() for path in written} == {
        ".svg": base64.b64decode(PICTURE),
        ".js": SCRIPT.encode(),
    }


def test_what_two_decks_share_is_one_file(tmp_path):
    in_files(page(), tmp_path, "files")
    in_files(page("another deck"), tmp_path, "files")
    assert len(list(tmp_path.iterdir())) == 2
