"""The tables and verdicts of lesson 07 on what a compressed prompt can still be asked for."""

from course_lib.lessons.common.results import rows
from course_lib.lessons.common.table import Table, number, percent, with_range
from course_lib.lessons.kv import claims
from course_lib.lessons.kv.estimates import FULL, WINDOW, Measured, by_budget, needles_above_window
from course_lib.lessons.kv.measured import results


def retrieval_table(measured: Measured | None = None) -> Table:
    """Right answers with their 95 % intervals, by task, policy and budget; tasks that the full cache solves alone."""
    measured = measured or results()
    frame, formats, notes = [], {}, []
    for full in (row for row in measured["tables"]["retrieval"] if row["policy"] == FULL):
        usable = "" if full["usable"] else " (too hard for the model, so it says nothing)"
        notes.append(f"{full['task']}: {percent(full['exact'])}, n = {full['n']}{usable}")
        others = [row for row in rows(measured, "retrieval", task=full["task"]) if row["policy"] != FULL]
        for name in dict.fromkeys(row["policy"] for row in others if full["usable"]):
            frame.append({"task": full["task"], "policy": name})
            for row in sorted((row for row in others if row["policy"] == name), key=lambda row: row["budget"]):
                key = tuple(f"{percent(row['budget'])} kept{end}" for end in (" (% right)", ", low", ", high"))
                frame[-1] |= dict(zip(key, (row["exact"], row["low"], row["high"]), strict=True))
                formats[key] = with_range(0, scale=100)
    return Table(
        frame,
        caption="Right answers (%) by policy and budget",
        formats=formats,
        note=f"In brackets: the 95 % interval. With everything kept: {'; '.join(notes)}.",
    )


def window_verdict(measured: Measured | None = None) -> str:
    """Whether any policy answers more than a plain window of as many slots, by task and budget."""
    measured = measured or results()
    lines = []
    for full in (row for row in measured["tables"]["retrieval"] if row["policy"] == FULL and row["usable"]):
        for window in by_budget(measured, "retrieval", task=full["task"], policy=WINDOW):
            gaps = needles_above_window(measured, window)
            better = [name for name, gap in gaps.items() if gap.holds]
            worse = [name for name, gap in gaps.items() if gap.fails]
            lines.append(
                f"{full['task']}, {100 * window['budget']:.0f} % kept, n = {window['n']}: window "
                f"{100 * window['exact']:.0f} %; clearly better {', '.join(better) or 'none'}, clearly worse "
                f"{', '.join(worse) or 'none'}, not significant {len(gaps) - len(better) - len(worse)} of {len(gaps)}"
            )
    return "\n".join([*lines, str(claims.CHOOSING.judge(measured))])


def second_question_table(measured: Measured | None = None) -> Table:
    """The second question of a text: right answers, memory, and the steps that read everything."""
    return Table(
        [
            {"cache": row["policy"], "right answers": row["exact"], "memory (MB)": row["bytes"] / 1e6}
            | {"full steps after the prompt": row.get("full_steps")}
            for row in rows(measured or results(), "second_needle", question=2)
        ],
        caption="A second question about the same text",
        formats={"right answers": percent, "memory (MB)": number(1), "full steps after the prompt": number(1)},
    )


def recycled_verdict(measured: Measured | None = None) -> str:
    """The claim that looking again finds what eviction has lost: the second question."""
    return str(claims.LOOKS_AGAIN.judge(measured or results()))
