"""The pages in Chromium, their content-security policy taken away: nothing that a submission wrote runs or loads.

The policy would hide that a text was not escaped, so each page stands without it in a frame; its parts are opened,
hovered over and clicked. A page into which the same texts are put as they are shows that these would run and load.
"""

import json
import re
from html import escape, unescape

import pytest
from hostile import PAYLOADS, hostile_result

from course_lib.grading.report import feedback
from course_lib.grading.report import page as report
from course_lib.grading.report.page import Facts
from course_lib.workbook.decks import chromium

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="needs Chromium")
FACTS = Facts("04 Wanda", 7, "2025-11-21T10:18:00+00:00", 372.0, 200, "bwrap", {"torch": "2.13.0"})
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
NOBODY = "http://127.0.0.1:9"  # where nobody answers: that something was asked for is noted all the same

# Each is alive where it is no text, in an element, in an attribute or behind something that is closed too early.
ALIVE = (
    "<script>top.ran.push('script')</script>",
    '"><img src=x onerror="top.ran.push(\'in double quotes\')">',
    "'><img src=x onerror='top.ran.push(`in single quotes`)'>",
    "</title></style></script></pre></textarea><svg onload=\"top.ran.push('behind an end')\">",
    "<b onclick=\"top.ran.push('clicked')\" onmouseover=\"top.ran.push('hovered')\">b</b>",
    "<details open ontoggle=\"top.ran.push('opened')\">d</details>",
    "<iframe srcdoc=\"<script>top.ran.push('in a frame')</script>\"></iframe>",
    f"<link rel=stylesheet href='{NOBODY}/style'><img src='{NOBODY}/image'><style>@import '{NOBODY}/import'</style>",
    f'url({NOBODY}/url)" style="background: url({NOBODY}/background)',
    "<a href=\"javascript:top.ran.push('followed')\">a</a>",
)
WATCH = """<!doctype html><meta charset="utf-8"><script>var ran = []</script>{frame}<script>
addEventListener("load", () => {{
  const frame = document.querySelector("iframe"), page = frame.contentDocument;
  page.querySelectorAll("details").forEach(each => each.open = true);
  page.querySelectorAll("body *").forEach(each => {{
    each.dispatchEvent(new Event("mouseover"));
    const away = each.closest("a") && !each.closest("a").href.startsWith("javascript:");
    if (!away) each.click ? each.click() : each.dispatchEvent(new Event("click"));
  }});
  setTimeout(() => {{
    const loaded = frame.contentWindow.performance.getEntriesByType("resource").map(each => each.name);
    const seen = document.createElement("pre");
    seen.id = "seen";
    seen.textContent = JSON.stringify({{ran, loaded, n: page.querySelectorAll("*").length}});
    document.body.append(seen);
  }}, 500);
}});
</script>"""


def what_happens(page: str, folder) -> dict:
    """What ran, what was asked for, and how many elements there are."""
    path = folder / "watched.html"
    frame = f'<iframe srcdoc="{escape(page)}"></iframe>'
    path.write_bytes(WATCH.format(frame=frame).encode("utf-8", "replace"))
    seen = chromium.run(chromium.find(), "--virtual-time-budget=5000", "--dump-dom", path.as_uri())
    return json.loads(unescape(re.search(r'<pre id="seen">(.*?)</pre>', seen, re.DOTALL)[1]))


def test_texts_that_are_put_in_as_they_are_run_and_load(tmp_path):
    found = what_happens(f"<!doctype html><body>{''.join(ALIVE)}", tmp_path)
    ran = {"script", "in double quotes", "in single quotes", "behind an end", "clicked", "hovered", "opened"}
    assert set(found["ran"]) >= ran | {"in a frame", "followed"}
    assert {f"{NOBODY}/{name}" for name in ("style", "image", "import")} <= set(found["loaded"])


@pytest.mark.parametrize("kind", ["feedback", "report"])
def test_nothing_runs_or_loads_without_the_policy_either(kind, tmp_path):
    """All texts in one, and each at the place where it would begin: every field of a result has its turn."""
    texts = ("".join(ALIVE), *ALIVE, *PAYLOADS[:5])
    results = [hostile_result(text, problem) for text in texts for problem in ("", text)]
    pages = [report.html(results, FACTS)] if kind == "report" else [feedback.html(result) for result in results]
    assert {len(POLICY.findall(page)) for page in pages} == {1}
    bodies = "\n".join(POLICY.sub("", page) for page in pages)
    found = what_happens(bodies, tmp_path)
    assert (found["ran"], found["loaded"]) == ([], [])
    assert found["n"] > 100 * len(pages), "the page was there"
