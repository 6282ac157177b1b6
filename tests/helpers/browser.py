"""A headless Chromium for tests that look at pages, driven by playwright; without one they are skipped."""

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from course_lib.workbook.decks import chromium

needs_browser = pytest.mark.skipif(chromium.find() is None, reason="no Chromium")


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """The machine's own Chromium: playwright would fetch another one."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium.find(), args=list(chromium.QUIET[1:]))
        yield found
        found.close()
