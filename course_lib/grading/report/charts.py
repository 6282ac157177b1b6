"""The charts of the pages as inline SVG: they follow light and dark, print, survive greyscale, and need no image.

Every group has a pattern of its own besides its colour. Colours and patterns are classes in page.css.
"""

import math
from collections.abc import Sequence

from course_lib.grading.report.html import counted, escape, number

# Patterns are told once a page, and every chart of it refers to them.
PATTERNS = """<svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false"><defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="ground" width="6" height="6"/><rect class="ink" width="2.6" height="6"/></pattern>
<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">
<rect class="ground" width="6" height="6"/><circle class="ink" cx="3" cy="3" r="1.3"/></pattern>
</defs></svg>"""

# What stands before a state's word: shapes that differ without colour.
MARKS = """<svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false"><defs>
<symbol id="right" viewBox="0 0 16 16"><circle class="full" cx="8" cy="8" r="8"/>
<path class="inner" d="M4.2 8.4 7 11.2 11.9 5.4"/></symbol>
<symbol id="partly" viewBox="0 0 16 16"><circle class="outline" cx="8" cy="8" r="7"/>
<path class="full" d="M8 1a7 7 0 0 0 0 14z"/></symbol>
<symbol id="wrong" viewBox="0 0 16 16"><circle class="outline" cx="8" cy="8" r="7"/>
<path class="outline" d="M5.2 5.2 10.8 10.8M10.8 5.2 5.2 10.8"/></symbol>
<symbol id="failed" viewBox="0 0 16 16"><path class="outline" d="M8 1.6 15 14.4 1 14.4z"/>
<path class="outline" d="M8 6v4M8 11.8v.6"/></symbol>
<symbol id="none" viewBox="0 0 16 16"><circle class="outline" cx="8" cy="8" r="7" stroke-dasharray="2.2 3.3"/></symbol>
</defs></svg>"""

_STEPS = (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000)
_MOST_BARS = 20


def bar_width(of: float | int) -> float:
    """The width of a bar of the histogram, in points: a plain number that gives at most 20 bars."""
    return float(next((step for step in _STEPS if of / step <= _MOST_BARS), of / _MOST_BARS))


def bars(totals: Sequence[float | int], of: float | int) -> list[int]:
    """How many totals fall in each bar. A bar includes its lower end; the last one its upper end too."""
    width = bar_width(of)
    heights = [0] * max(math.ceil(of / width - 1e-9), 1)
    for total in totals:
        heights[min(max(int(total / width + 1e-9), 0), len(heights) - 1)] += 1
    return heights


def histogram(totals: Sequence[float | int], of: float | int, middle: float) -> str:
    """Totals as bars, drawn for a wide and for a narrow screen: the style sheet shows one of them."""
    return _histogram(totals, of, middle, 700, "wide") + _histogram(totals, of, middle, 320, "narrow")


def _histogram(totals: Sequence[float | int], of: float | int, middle: float, width: int, kind: str) -> str:
    heights, top, floor = bars(totals, of), 34, 190
    pitch = width / len(heights)
    shapes = [_bar(index, n, pitch, (floor - top) * n / max(*heights, 1), floor) for index, n in enumerate(heights)]
    per_tick = next((step for step in (1, 2, 5, 10) if step * pitch >= 28), len(heights))
    ticks = [
        f'<text x="{index * pitch:.1f}" y="{floor + 18}">{number(min(index * bar_width(of), of))}</text>'
        for index in range(0, len(heights) + 1, per_tick)
    ]
    x = min(max(middle / of * width if of else 0.0, 0.0), width)
    side = "end" if x > width / 2 else "start"
    line = (
        f'<line class="median" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{floor}"/>'
        f'<text class="median {side}" x="{x + (-6 if side == "end" else 6):.1f}" y="18">median {number(middle)}</text>'
    )
    description = ", ".join(
        f"{number(i * bar_width(of))} to {number(min((i + 1) * bar_width(of), of))}: {n}"
        for i, n in enumerate(heights)
        if n
    )
    return (
        f'<svg class="histogram {kind}" viewBox="0 0 {width} {floor + 40}" role="img" '
        f'aria-label="Submissions by points. {description}">{"".join(shapes)}'
        f'<line class="axis" x1="0" x2="{width}" y1="{floor}" y2="{floor}"/>{"".join(ticks)}'
        f'<text x="{width / 2:g}" y="{floor + 36}">points, of {number(of)}</text>{line}</svg>'
    )


def _bar(index: int, n: int, pitch: float, height: float, floor: int) -> str:
    if not n:
        return ""
    height = max(height, 2)  # one of a thousand is still seen
    x, middle = index * pitch + pitch * 0.08, (index + 0.5) * pitch
    label = f'<text class="count" x="{middle:.1f}" y="{floor - height - 5:.1f}">{n}</text>'
    rectangle = f'<rect class="bar" x="{x:.1f}" y="{floor - height:.1f}" width="{pitch * 0.84:.1f}"'
    return f'{rectangle} height="{height:.1f}" rx="1.5"/>{label if len(str(n)) * 7 < pitch + 6 else ""}'


def mark(kind: str) -> str:
    """The shape of a state."""
    return f'<svg class="mark {kind}" aria-hidden="true" focusable="false"><use href="#{kind}"/></svg>'


def stacked(parts: Sequence[tuple[str, int]]) -> str:
    """One bar that shows how a whole is made up: (class, number) from left to right."""
    whole = sum(n for _, n in parts) or 1
    shapes, left = [], 0.0
    for kind, n in parts:
        if n:
            share = 100 * n / whole
            shapes.append(f'<rect class="{kind}" x="{left:.2f}%" width="{share:.2f}%" height="100%"/>')
            left += share
    return f'<svg class="stack" aria-hidden="true" focusable="false">{"".join(shapes)}</svg>'


def length(n: int, most: int) -> str:
    """One bar, as long as its share of the longest."""
    share = 100 * n / most if most else 0.0
    return (
        '<svg class="length" aria-hidden="true" focusable="false">'
        f'<rect class="bar" width="{max(share, 0.5 if n else 0):.2f}%" height="100%" rx="1.5"/></svg>'
    )


def progress(parts: Sequence[tuple[float | int, float | int]], label: str) -> str:
    """Points, exercise by exercise: a segment is as wide as its points, and filled as far as they were earned."""
    whole = sum(of for _, of in parts) or 1.0
    shapes, left = [], 0.0
    for points, of in parts:
        width = 100 * of / whole
        filled = width * min(max(points / of, 0.0), 1.0) if of else 0.0
        shapes.append(f'<rect class="empty" x="{left:.2f}%" width="{width:.2f}%" height="100%"/>')
        shapes.append(f'<rect class="bar" x="{left:.2f}%" width="{filled:.2f}%" height="100%"/>')
        left += width
        shapes.append(f'<line class="gap" x1="{left:.2f}%" x2="{left:.2f}%" y1="0" y2="100%"/>')
    return f'<svg class="progress" role="img" aria-label="{escape(label)}">{"".join(shapes[:-1])}</svg>'


def legend(parts: Sequence[tuple[str, str]]) -> str:
    """The key to a stacked bar: (class, word)."""
    items = "".join(f'<li><svg aria-hidden="true"><rect class="{kind}"/></svg>{word}</li>' for kind, word in parts)
    return f'<ul class="legend">{items}</ul>'


def in_words(parts: Sequence[tuple[str, int]]) -> str:
    """What a stacked bar shows, for those who do not see it."""
    return ", ".join(f"{word}: {counted(n, 'submission')}" for word, n in parts if n)
