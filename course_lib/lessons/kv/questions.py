"""The printed tables and verdicts of lesson 07 on what a compressed prompt can still be asked for."""

from course_lib.lessons.common.tables import rows
from course_lib.lessons.kv import claims
from course_lib.lessons.kv.estimates import FULL, WINDOW, Measured, by_budget, needles_above_window, second_answers
from course_lib.lessons.kv.measured import results


def retrieval_table(measured: Measured | None = None) -> str:
    """Right answers with their 95 % intervals, by task, policy and budget; tasks that the full cache solves alone."""
    measured = measured or results()
    lines = []
    for row in (row for row in measured["tables"]["retrieval"] if row["policy"] == FULL):
        usable = "" if row["usable"] else ": too hard for the model, says nothing"
        lines.append(f"{row['task']}: everything kept {100 * row['exact']:.0f} %, n = {row['n']}{usable}")
        if row["usable"]:
            lines += _of_task(measured, row["task"])
    return "\n".join(lines)


def _of_task(measured: Measured, task: str) -> list[str]:
    table_rows = [row for row in rows(measured, "retrieval", task=task) if row["policy"] != FULL]
    budgets = sorted({row["budget"] for row in table_rows})
    lines = [f"{'':<14}" + "".join(f"{100 * budget:>12.0f} % kept" for budget in budgets)]
    for name in dict.fromkeys(row["policy"] for row in table_rows):
        cells = (rows(measured, "retrieval", task=task, policy=name, budget=budget)[0] for budget in budgets)
        intervals = (f"{100 * c['exact']:.0f} ({100 * c['low']:.0f} to {100 * c['high']:.0f})" for c in cells)
        lines.append(f"{name:<14}" + "".join(f"{cell:>19}" for cell in intervals))
    return lines


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
                f"{', '.join(worse) or 'none'}, undecided {len(gaps) - len(better) - len(worse)} of {len(gaps)}"
            )
    return "\n".join([*lines, str(claims.CHOOSING.judge(measured))])


def recycled_verdict(measured: Measured | None = None) -> str:
    """The claim that looking again finds what eviction has lost: the second question."""
    measured = measured or results()
    lines = [
        f"{name:<26}{100 * row['exact']:>5.0f} %, {row['bytes'] / 1e6:.1f} MB"
        + (f", {row['full_steps']:.1f} full steps after the prompt" if "full_steps" in row else "")
        for name, row in second_answers(measured).items()
    ]
    return "\n".join([*lines, str(claims.LOOKS_AGAIN.judge(measured))])
