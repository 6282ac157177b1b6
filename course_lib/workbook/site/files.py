"""A deck as a page of the site: pictures, fonts and scripts become files, which decks share."""

import base64
import hashlib
import mimetypes
import re
from pathlib import Path

SMALL = 4_000  # characters; smaller parts stay in the page
_INSIDE = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/=]+)")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def in_files(page: str, folder: Path, where: str) -> str:
    """Replace embedded data by addresses of files, which are named after their content.

    Args:
        folder: gets the files.
        where: the address of that folder, from the page.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def address(content: bytes, suffix: str) -> str:
        name = hashlib.sha256(content).hexdigest()[:16] + suffix
        (folder / name).write_bytes(content)
        return f"{where}/{name}"

    def part(match: re.Match) -> str:
        suffix = mimetypes.guess_extension(match[1]) or ""
        return match[0] if len(match[0]) < SMALL else address(base64.b64decode(match[2]), suffix)

    def script(match: re.Match) -> str:
        if len(match[1]) < SMALL:
            return match[0]
        return f'<script src="{address(match[1].encode(), ".js")}"></script>'

    return _SCRIPT.sub(script, _INSIDE.sub(part, page))
