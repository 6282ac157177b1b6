"""Figures of what `course reproduce prompts_further` measured: other settings, another text, questions."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import Measured, listed
from course_lib.lessons.common.verdicts import ERRORS, Effect
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.experiment_prompts import VARIED
from course_lib.lessons.compress.found import called

ANOTHER = "another draw"
SETTINGS = {"n_vectors": "{} vectors", "n_steps": "{} steps", "begin": "begins at: {}", "draw": ANOTHER}


def settings(measured: Measured | None = None) -> Figure:
    """What a prompt wins with one setting changed, a row each; shaded: what lies between the draws of the main run."""
    measured = measured or found.results()
    alone, main = found.pair(measured, VARIED)
    rows = [main, *found.some(measured, "settings", model=VARIED)]
    draws = [row for row in rows if changed(row, main) in (changed(main, main), ANOTHER)]
    fig, (axes,) = figure(width=8.0, height=1.2 + 0.32 * len(rows))
    for place, row in enumerate(rows):
        won = found.wins(row, alone)
        look = line_style(0 if row in draws else 1) | {"linestyle": "none"}
        axes.errorbar(won.value, -place, xerr=ERRORS * won.error, capsize=3, **look)
    of_draws = [found.wins(row, alone).value for row in draws]
    axes.axvspan(min(of_draws), max(of_draws), color=COLOURS[4], alpha=0.3, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(0, -len(rows), -1), [changed(row, main) for row in rows])
    clear = [changed(row, main) for row in rows if row not in draws and clear_of(row, draws)]
    title = f"Told apart from both draws: {listed(clear) if clear else 'nothing'}"
    label(axes, title, f"nats a token won on {called(VARIED)}\n({ERROR_BARS}; shaded: between the draws)")
    return fig


def clear_of(row: Row, draws: list[Row]) -> bool:
    """Whether it wins clearly more than each draw of the main run, or clearly less."""
    beside = [found.wins(row, draw) for draw in draws]
    return all(effect.holds for effect in beside) or all(effect.fails for effect in beside)


def changed(row: Row, main: Row) -> str:
    """What is other than in the main run; of that, what it is."""
    differs = [text.format(row[key]) for key, text in SETTINGS.items() if row[key] != main[key]]
    return ", ".join(differs) or f"{main['n_vectors']} vectors, {main['n_steps']} steps, {main['begin']}"


def elsewhere(measured: Measured | None = None) -> Figure:
    """What a model's own prompt wins on text like that it learned from, on another text, and on questions."""
    measured = measured or found.results()
    fig, (left, right) = figure(n_columns=2, width=5.4, height=3.4)
    names = [name for name in found.models(measured) if on_other_text(measured, name)]
    kinds = {"Wikipedia, as learned": found.gain, "paragraphs of BoolQ": on_other_text}
    for index, (kind, effect_of) in enumerate(kinds.items()):
        _dots(left, [effect_of(measured, name) for name in names], kind, index, 0.18 * (index - 0.5))
    by_task = {task: [right_answers(measured, name, task) for name in names] for task in tasks(measured)}
    for index, (task, effects) in enumerate(by_task.items()):
        _dots(right, effects, task, index, 0.2 * (index - (len(by_task) - 1) / 2))
    for axes in (left, right):
        axes.axhline(0, color="black", linestyle=":", linewidth=1)
        axes.set_xticks(range(len(names)), [called(name).replace(" and ", "\nand ") for name in names], fontsize=9)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.margins(y=0.3)
        axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=3)
    fig.suptitle(_said_of(names, measured, by_task), x=0.01, ha="left", fontsize=11)
    label(left, "Another text", "", f"nats a token won\n({ERROR_BARS})")
    label(right, "Questions", "", f"accuracy won\n({ERROR_BARS})")
    return fig


def _said_of(names: list[str], measured: Measured, by_task: dict[str, list[Effect | None]]) -> str:
    texts = [on_other_text(measured, name) for name in names]
    answers = [effect for effects in by_task.values() for effect in effects if effect]
    helped, right = sum(e.holds for e in texts), sum(e.holds for e in answers)
    return f"Clearly helped: {helped} of {len(texts)} models on another text, {right} of {len(answers)} on questions"


def _dots(axes: Axes, effects: list[Effect | None], name: str, index: int, shift: float) -> None:
    """One kind, a dot a model with two errors."""
    there = {place + shift: effect for place, effect in enumerate(effects) if effect}
    heights = [effect.value for effect in there.values()]
    errors = [ERRORS * effect.error for effect in there.values()]
    look = line_style(index) | {"linestyle": "none"}
    axes.errorbar(list(there), heights, errors, capsize=3, label=name, **look)


def on_other_text(measured: Measured, name: str) -> Effect | None:
    """What the own prompt wins on a text that it has not learned from."""
    pair = claims.on_other_text(measured, name)
    return found.wins(pair[1], pair[0]) if pair else None


def tasks(measured: Measured) -> list[str]:
    return list(dict.fromkeys(row["task"] for row in found.some(measured, "tasks")))


def right_answers(measured: Measured, name: str, task: str) -> Effect | None:
    """By what share of the questions more is answered right with the own prompt."""
    alone, own = (found.one(measured, "tasks", model=name, task=task, prompted=so) for so in (False, True))
    return accuracy_gap(own, alone) if alone and own else None
