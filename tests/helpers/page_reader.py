"""Read a page back as a browser would: its elements, its tables, its text; and measure it in Chromium."""

import json
import re
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

from course_lib.workbook.decks import chromium

VOID = {"meta", "wbr", "br", "img", "link", "input"}

# Measures every page in a frame of its own: a window of headless Chromium is never narrower than 500 pixels.
MEASURE = """<!doctype html><meta charset="utf-8"><style>iframe {{ width: {width}px; height: 800px; border: 0 }}</style>
{frames}<script>
addEventListener("load", () => {{
  const report = document.createElement("pre");
  report.id = "seen";
  report.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument;
    page.querySelectorAll("details").forEach(each => each.open = true);
    const parts = [page.documentElement, ...page.querySelectorAll(".scroll, pre")];
    const over = Math.max(...parts.map(part => part.scrollWidth - part.clientWidth));
    const button = page.querySelector("table.sorts thead button");
    const names = () => [...button.closest("table").tBodies[0].rows].map(row => row.cells[0].textContent);
    const before = button ? names() : [];
    if (button) button.click();
    const once = button ? names() : [];
    if (button) button.click();
    return {{over, before, once, twice: button ? names() : []}};
  }}));
  document.body.append(report);
}});
</script>"""


class Page(HTMLParser):
    """What a parser makes of a page."""

    def __init__(self, markup: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.labels: list[tuple[str, dict]] = []  # of charts
        self.tables: dict[str, list[list[str]]] = {}
        self.open: list[str] = []
        self.row: list[str] | None = None
        self.table = ""
        self.feed(markup)
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.table = dict(attributes)["aria-label"]
            self.tables[self.table] = []
        if tag == "tr":
            self.tables[self.table].append([])
        if tag in ("td", "th"):
            self.tables[self.table][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if not {"style", "script"} & set(self.open):
            self.words.append(text)
            if "text" in self.open[-1:]:
                self.labels.append((text, self.elements[-1][1]))
            if {"td", "th"} & set(self.open):
                self.tables[self.table][-1][-1] += text

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def all(self, name: str) -> list[str]:
        """The values of an attribute, wherever it is."""
        return [values[name] for _, values in self.elements if name in values]


def measure(pages: list[str], width: int, folder: Path) -> list[dict]:
    """How far each page sticks out of a screen of that width, and how its first table is sorted by clicks."""
    frames = "".join(f'<iframe srcdoc="{escape(page)}"></iframe>' for page in pages)
    path = folder / "frames.html"
    path.write_bytes(MEASURE.format(width=width, frames=frames).encode("utf-8"))
    seen = chromium.run(chromium.find(), "--virtual-time-budget=10000", "--dump-dom", path.as_uri())
    return json.loads(unescape(re.search(r'<pre id="seen">(.*?)</pre>', seen, re.DOTALL)[1]))
