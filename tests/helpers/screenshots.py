"""Pictures of the built site for the README: `course site`, then `python tests/helpers/screenshots.py`."""

import io
from pathlib import Path

from browser import browser
from PIL import Image
from playwright.sync_api import Page

from course_lib.workbook.masters import ROOT

PAGES = ROOT / "build" / "site" / "html"
COLOURS = 128  # of a page's text and lines; what is drawn has few


def lesson(page: Page) -> None:
    """A figure of lesson 04, the lines around it."""
    page.goto((PAGES / "lessons" / "04_wanda.html").as_uri())
    page.locator("article img").first.evaluate("picture => picture.scrollIntoView({block: 'center'})")


def claims(page: Page) -> None:
    """What became of a claim, on a phone in the dark."""
    page.goto((PAGES / "claims.html").as_uri() + "?words=window+first+tokens+lost")
    page.locator("form.claims").scroll_into_view_if_needed()
    page.locator("form.claims").evaluate("form => form.scrollIntoView()")


def slide(page: Page) -> None:
    """A slide of lesson 00."""
    page.goto((PAGES / "decks" / "00_start_here.html").as_uri() + "#/4")


SHOTS = (
    ("lesson", lesson, (1120, 720), "light"),
    ("claims", claims, (390, 720), "dark"),
    ("slide", slide, (1120, 720), "light"),
)


def main() -> None:
    """Write docs/site-NAME.png, each with a palette of its own."""
    with browser() as chromium:
        for name, show, (width, height), theme in SHOTS:
            page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            show(page)
            page.wait_for_timeout(500)
            shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            path: Path = ROOT / "docs" / f"site-{name}.png"
            shot.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
            print(path, path.stat().st_size)
            page.close()


if __name__ == "__main__":
    main()
