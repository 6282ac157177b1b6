"""Headless Chromium, if installed: print a deck to PDF, and find slides whose content does not fit."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    "--disable-dev-shm-usage",
)
SECONDS = 120

# Shows every slide in turn and measures by how much its content overflows, in the slide's own pixels.
MEASURE = """
<script>
async function measure() {
  await document.fonts.ready;
  const found = [];
  Reveal.getSlides().forEach((slide, index) => {
    Reveal.slide(index);
    const frame = document.querySelector(".reveal .slides").getBoundingClientRect(), scale = Reveal.getScale();
    let over = 0, cut = 0;
    slide.querySelectorAll("*").forEach(part => {
      if (part.closest("aside")) return;
      const box = part.getBoundingClientRect();
      over = Math.max(over, box.bottom - frame.bottom, box.right - frame.right, frame.left - box.left);
      if (part.matches("pre, p, li, td, div")) cut = Math.max(cut, part.scrollWidth - part.clientWidth);
    });
    over = Math.max(over / scale, cut);
    if (over > 1) found.push([index + 1, Math.round(over)]);
  });
  const report = document.createElement("pre");
  report.id = "overflow";
  report.textContent = JSON.stringify(found);
  document.body.appendChild(report);
}
Reveal.isReady() ? measure() : Reveal.on("ready", measure);
</script>
"""


def find() -> str | None:
    """Return the path of the browser, or None."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    return program or (MAC if Path(MAC).exists() else None)


def run(program: str, *arguments: str) -> str:
    """Run the browser with a new profile and return its output."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *QUIET, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise ValueError(f"{program} failed with code {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def print_pdf(program: str, page: Path, pdf: Path) -> None:
    """Print each slide on one page of a PDF."""
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "deck.pdf"
        options = ("--no-pdf-header-footer", "--virtual-time-budget=20000")
        run(program, *options, f"--print-to-pdf={printed}", f"{page.resolve().as_uri()}?print-pdf")
        shutil.move(printed, pdf)


def overflowing(program: str, page: Path) -> dict[int, int]:
    """Find slides whose content does not fit: number (from 1) -> pixels of overflow."""
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(folder) / page.name
        before, _, after = page.read_text(encoding="utf-8").rpartition("</body>")  # the speaker view contains others
        measured.write_text(f"{before}{MEASURE}</body>{after}", encoding="utf-8")
        options = ("--window-size=1280,720", "--virtual-time-budget=20000", "--dump-dom")
        seen = run(program, *options, measured.resolve().as_uri())
    report = re.search(r'<pre id="overflow">(.*?)</pre>', seen)
    if not report:
        raise ValueError(f"{program} could not show the page {page}")
    return dict(json.loads(report[1]))
