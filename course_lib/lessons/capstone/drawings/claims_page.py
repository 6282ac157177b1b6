"""How the claims of the documents came out."""

from matplotlib.figure import Figure

from course_lib.lessons.capstone.tables.claims_page import NO_LESSON, claims, counts
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.verdicts import NOT_MEASURED, WORDS

LOOKS = dict(
    zip(
        (*WORDS, NOT_MEASURED),
        (
            *((COLOURS[0], ""), (COLOURS[4], ""), (COLOURS[2], "xx"), (COLOURS[1], "")),
            *((COLOURS[3], "//"), ("white", ".."), ("white", "")),
        ),
        strict=True,
    )
)


def verdicts() -> Figure:
    """One bar per lesson with its claims by verdict; claims that are not measured have no lesson."""
    fig, (axes,) = figure(width=9.0, height=4.0)
    lessons = sorted({each.lesson for each in claims()} - {NO_LESSON})
    left = dict.fromkeys(lessons, 0)
    for word, (colour, hatch) in LOOKS.items():
        sizes = [counts(lesson)[word] for lesson in lessons]
        look = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.6}
        if any(sizes):
            axes.barh(lessons, sizes, 0.7, list(left.values()), label=word, **look)
        left = {lesson: left[lesson] + size for lesson, size in zip(lessons, sizes, strict=True)}
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    found = counts()
    judged = sum(found[word] for word in WORDS)
    title = f"Of {judged} claims that were judged {found[WORDS[0]]} hold and {found[WORDS[1]]} hold partly"
    label(axes, f"{title}; {len(claims()) - judged} are not measured", "claims", "lesson")
    return fig
