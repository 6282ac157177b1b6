"""Figures of deck 10 from committed measurements: `course reproduce` prompts, prompts_further and prompt_words."""

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.style import figure, label, line_style
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.common.verdicts import ERRORS, Effect
from course_lib.lessons.compress import found
from course_lib.lessons.compress.live.sentences import MODELS, gains, stored

SAID = {"slides": "slides", "code": "code", "by lot": "tokens by lot"}


def hard_prompts() -> dict[str, list[tuple[str, Effect]]]:
    """For each kind of hard prompt what it wins on each model; tokens by lot in the mean over the draws."""
    result, kinds = found.results(), {kind: [] for kind in SAID}
    for name in found.models(result):
        rows = found.some(result, "words", model=name)
        alone = found.one(result, "models", model=name)
        lots = [row for row in rows if row["prompt"].startswith("lot")]
        sets = {row["prompt"]: row for row in rows if row not in lots}
        if lots and alone:
            for kind, row in {**sets, "by lot": found.mean_of(lots)}.items():
                kinds[kind].append((found.called(name), found.wins(row, alone)))
    return kinds


def words() -> Figure:
    """Nats won by each hard prompt on each model; below 0 it does harm."""
    fig, (axes,) = figure(width=8.4, height=3.4)
    kinds = hard_prompts()
    for index, (kind, cells) in enumerate(kinds.items()):
        places = [place + 0.18 * (index - 1) for place in range(len(cells))]
        heights, errors = zip(*((effect.value, ERRORS * effect.error) for _, effect in cells), strict=True)
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar(places, heights, yerr=errors, capsize=3, label=SAID[kind], **look)
    axes.axhline(0, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(range(len(kinds["code"])), [name for name, _ in kinds["code"]])
    axes.legend(frameon=False, fontsize=10, ncols=3, loc="lower left")
    axes.margins(y=0.25)
    every = [effect for kind in ("slides", "code") for _, effect in kinds[kind]]
    title = f"Sentences help clearly in {sum(effect.holds for effect in every)} of {len(every)} cases"
    label(axes, title, "", f"nats a token won\n({ERROR_BARS})")
    return fig


def ideas() -> Figure:
    """Seven ideas for words before a text, on the pruned model and on the dense one."""
    fig, (axes,) = figure(width=8.4, height=3.2)
    rows = load_measured("compress", "experiments/prompt_words")["tables"]["sentences"]
    of_models = {model: gains(stored(rows, model)) for model in MODELS}
    for index, (model, by_idea) in enumerate(of_models.items()):
        places = [len(by_idea) - 1 - place + 0.2 * (0.5 - index) for place in range(len(by_idea))]
        values, errors = zip(*((value, ERRORS * error) for value, error in by_idea.values()), strict=True)
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar(values, places, xerr=errors, capsize=3, label=model, **look)
    axes.axvline(0, color="black", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(by_idea)), list(by_idea)[::-1])
    axes.legend(frameon=False, fontsize=10, loc="lower right")
    pruned = of_models[MODELS[0]]
    clear = [idea for idea, (value, error) in pruned.items() if value > ERRORS * error]
    title = f"Clearly helped on the pruned model: {len(clear)} of {len(pruned)} ({', '.join(clear) or 'none'})"
    label(axes, title, f"nats a token won ({ERROR_BARS})")
    return fig
