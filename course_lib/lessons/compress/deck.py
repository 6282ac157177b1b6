"""The figures of lesson 10's deck that its notebook does not show.

Where losses are made up, as in `pairs`, the figure says so.

Dimension key: N windows, T tokens of a window, P vectors of the prompt.
"""

import math

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import accuracy_gap
from course_lib.lessons.common.results import Measured, load_measured, percent, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS, Effect
from course_lib.lessons.compress import claims, plots, results
from course_lib.lessons.compress.experiments import prompt_words
from course_lib.lessons.compress.plots import BITS, GROUP, LAYERS, OTHERS, VECTORS, WEIGHTS, WIDTH
from course_lib.lessons.compress.results import loss_gain, model_name
from course_lib.lessons.compress.steps import BYTES, paired_ratio, stored_bytes, transferred_fraction
from course_lib.prompts.losses import zero_averaged
from course_lib.prompts.recipe import PromptRecipe

WINDOW = 1024  # tokens of a text in the paper's code
LENGTHS = tuple(2**step for step in range(3, 12))
COUNTS = (0, 5, 10, 20, 50, 100, 200)
CODE = PromptRecipe(n_steps=30_000, warm_up=500, rate=1e-3, batch=2, decay=0.0)  # scripts/gptq.sh at f15c334
KINDS = {"slides": "sentence (slides)", "code": "sentence (code)", "random": "random tokens"}


def title_picture() -> Figure:
    """The drawing of the idea, without a title."""
    return plots.idea("")


def first_token_factor(more: float, n_tokens: int) -> float:
    """exp((l + more + (T − 1) l) / T − l): the effect of a first token whose loss is so much higher."""
    return math.exp(more / n_tokens)


def first_token() -> Figure:
    """Plot the factor on a perplexity, over the length of a window, where the first token costs 2, 4 or 6 nats more."""
    _, (axes,) = figure(width=7.6, height=3.4)
    for index, more in enumerate((2.0, 4.0, 6.0)):
        factors = [first_token_factor(more, length) for length in LENGTHS]
        axes.plot(LENGTHS, factors, label=f"{more:g} nats more", **line_style(index))
    log_scale(axes, "x")
    axes.legend(frameon=False, fontsize=10.5)
    short, long = (first_token_factor(4.0, length) for length in (32, WINDOW))
    title = f"4 nats more for one token: {short:.2f} times the perplexity at 32 tokens, {long:.3f} times at 1,024"
    return label(axes, title, "tokens of a window", "factor on the perplexity").figure


def rates() -> Figure:
    """Plot the learning rate over the steps, relative to the highest, for the paper's code and for this course."""
    _, (axes,) = figure(width=7.6, height=3.2)
    for index, (name, recipe) in enumerate({"the paper's script": CODE, "this course": PromptRecipe()}.items()):
        steps = sorted({*range(0, recipe.n_steps, recipe.n_steps // 100), recipe.warm_up, recipe.n_steps - 1})
        relative = [recipe.rate_at(step) / recipe.rate for step in steps]
        name = f"{name}: {recipe.n_steps:,} steps up to {recipe.rate:g}"
        axes.plot([step / recipe.n_steps for step in steps], relative, label=name, markevery=12, **line_style(index))
    axes.set_ylim(0, 1.1)
    axes.legend(frameon=False, fontsize=10.5, loc="upper right")
    ours, theirs = (percent(recipe.warm_up / recipe.n_steps, 1) for recipe in (PromptRecipe(), CODE))
    title = f"Warm-up: {theirs} of the steps in the paper's script, {ours} here"
    return label(axes, title, "step / all steps", "learning rate / highest").figure


def made_up_losses(seed: int = 0, n: int = 16) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Random mean losses of windows of unequal difficulty, without a prompt and with one that gains about 0.1."""
    generator = torch.Generator().manual_seed(seed)
    plain = 3 + 0.4 * torch.randn(n, generator=generator)
    return plain, plain - 0.1 + 0.03 * torch.randn(n, generator=generator)


def ratios() -> tuple[float, float, float]:
    """The paired ratio, its error, and the error as if the windows were not paired."""
    plain, prompted = made_up_losses()
    real = torch.ones(len(plain), 2, dtype=torch.bool)
    both = torch.stack([torch.zeros_like(plain), prompted], dim=1)
    ratio, error = paired_ratio(both, plain[:, None], real)
    unpaired = ratio * ((plain.var() + prompted.var()) / len(plain)).sqrt()
    return float(ratio), float(error), float(unpaired)


def pairs() -> Figure:
    """Plot the loss of each window without and with a prompt, joined by a line."""
    _, (axes,) = figure(width=7.4, height=3.5)
    for before, after in zip(*(losses.tolist() for losses in made_up_losses()), strict=True):
        axes.plot((0, 1), (before, after), color=COLOURS[0], marker="o", linewidth=1)
    axes.set_xticks((0, 1), ("without", "with"))
    axes.set_xlim(-0.4, 1.4)
    ratio, error, unpaired = ratios()
    title = f"Made-up losses: ratio {ratio:.2f} ± {error:.3f} paired, ± {unpaired:.2f} unpaired"
    return label(axes, title, "", "loss of a window, nats per token").figure


def averaged_with_zeros(perplexity: float, n_vectors: int) -> float:
    """The perplexity that the mean of the public code gives, for windows of 1,024 tokens."""
    losses = torch.full((1, WINDOW - 1), math.log(perplexity), dtype=torch.float64)
    return math.exp(float(zero_averaged(losses, n_vectors)))


def artefact() -> Figure:
    """Plot the reported over the true perplexity, over the vectors of a prompt that does nothing."""
    _, (axes,) = figure(width=7.6, height=3.4)
    for index, perplexity in enumerate((10.0, 20.0, 50.0)):
        relative = [averaged_with_zeros(perplexity, count) / perplexity for count in COUNTS]
        axes.plot(COUNTS, relative, label=f"perplexity {perplexity:g}", **line_style(index))
    axes.legend(frameon=False, fontsize=10.5)
    title = f"100 vectors that do nothing: a perplexity of 20 is reported as {averaged_with_zeros(20.0, 100):.1f}"
    return label(axes, title, "vectors of the prompt", "reported / true").figure


def fraction(of_dense: float, moved: float = 0.16, own: float = 0.2) -> float:
    """The transferred fraction for gains in nats: of a moved and an own prompt, and of the dense model's own."""
    plain, dense = torch.full((2,), 4.0), torch.full((2,), 3.0)
    return float(transferred_fraction(plain, plain - own, plain - moved, dense, dense - of_dense)[0])


def fractions() -> Figure:
    """Plot the transferred fraction for the same two gains, over the gain of the dense model."""
    _, (axes,) = figure(width=7.6, height=3.4)
    gains = [step / 100 for step in range(17)]
    axes.plot(gains, [fraction(gain) for gain in gains], label="subtracted from both gains", **line_style(0))
    axes.axhline(fraction(0.0), label="not subtracted", color=COLOURS[1], linestyle="--")
    axes.set_ylim(-0.05, 1)
    axes.legend(frameon=False, fontsize=10.5, loc="lower left")
    title = f"Gains of 0.16 and 0.20 nats: {fraction(0.0):.2f} transfers; {fraction(0.12):.2f} if dense gains 0.12"
    return label(axes, title, "gain of the dense model, nats", "transferred fraction").figure


def whole_model() -> Figure:
    """Plot the megabytes of blocks, embedding table and prompt, before and after compression."""
    _, (axes,) = figure(width=8.8, height=3.0)
    blocks, times = stored_bytes(LAYERS, 0, 0, BITS, GROUP)
    n_bytes, of_all = stored_bytes(LAYERS, OTHERS, VECTORS * WIDTH, BITS, GROUP)
    prompt, others = BYTES * VECTORS * WIDTH, BYTES * OTHERS
    sizes_by_row = {"16 bits": (BYTES * WEIGHTS, others, 0), "50 % and 4 bits": (blocks, others, prompt)}
    names, looks = ("blocks", "embedding table and norms", "prompt"), (COLOURS[0], COLOURS[4], "white")
    for place, sizes in enumerate(sizes_by_row.values()):
        left = 0.0
        for name, size, colour in zip(names, sizes, looks, strict=True):
            axes.barh(-place, size / 1e6, 0.6, left, color=colour, edgecolor="black", label="" if place else name)
            left += size / 1e6
        axes.text(left + 3, -place, f"{left:.1f} MB", va="center", fontsize=10.5)
    axes.set_xlim(0, 1.15 * BYTES * (WEIGHTS + OTHERS) / 1e6)
    axes.set_yticks((0, -1), list(sizes_by_row))
    axes.legend(frameon=False, fontsize=10.5, loc="lower right")
    part = percent(prompt / n_bytes, 2)
    title = f"Blocks {times:.2f} times smaller, the model {of_all:.2f} times; the prompt takes {part}"
    return label(axes, title, "megabytes").figure


def hard_prompts() -> dict[str, list[tuple[str, Effect]]]:
    """By kind of hard prompt: its gain on each model; the mean over the random trials for random tokens."""
    measured, by_kind = results.load(), {kind: [] for kind in KINDS}
    for name in results.models(measured):
        alone = results.row_of(measured, "models", model=name)
        real, random = (claims.sentence_rows(measured, name, is_random) for is_random in (False, True))
        if random and alone:
            for kind, row in {**real, "random": results.mean_row([*random.values()])}.items():
                by_kind[kind].append((model_name(name), loss_gain(row, alone)))
    return by_kind


def words() -> Figure:
    """Plot the gain of each hard prompt on each model; below 0 it does harm."""
    fig, (axes,) = figure(width=8.4, height=3.4)
    by_kind = hard_prompts()
    for index, (kind, cells) in enumerate(by_kind.items()):
        places = [place + 0.18 * (index - 1) for place in range(len(cells))]
        heights, errors = zip(*((effect.value, ERRORS * effect.error) for _, effect in cells), strict=True)
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar(places, heights, yerr=errors, capsize=3, label=KINDS[kind], **look)
    axes.axhline(0, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(range(len(by_kind["code"])), [name for name, _ in by_kind["code"]])
    axes.legend(frameon=False, fontsize=10, ncols=3, loc="lower left")
    axes.margins(y=0.25)
    every = [effect for kind in ("slides", "code") for _, effect in by_kind[kind]]
    title = f"The sentences help significantly in {sum(effect.holds for effect in every)} of {len(every)} cases"
    label(axes, title, "", f"gain in nats per token\n({ERROR_BARS})")
    return fig


def ideas() -> Figure:
    """Plot the gain of the ideas for the open task, on the pruned model and on the dense one."""
    fig, (axes,) = figure(width=8.4, height=3.2)
    table = rows(load_measured("compress", "prompt_words"), "sentences")
    by_model = {model: prompt_words.gains(prompt_words.stored(table, model)) for model in prompt_words.MODELS}
    for index, (model, by_idea) in enumerate(by_model.items()):
        places = [len(by_idea) - 1 - place + 0.2 * (0.5 - index) for place in range(len(by_idea))]
        values, errors = zip(*((effect.value, ERRORS * effect.error) for effect in by_idea.values()), strict=True)
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar(values, places, xerr=errors, capsize=3, label=model, **look)
    axes.axvline(0, color="black", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(by_idea)), list(by_idea)[::-1])
    axes.legend(frameon=False, fontsize=10, loc="lower right")
    pruned = by_model[prompt_words.MODELS[0]]
    clear = [idea for idea, effect in pruned.items() if effect.holds]
    title = f"{len(clear)} of {len(pruned)} ideas help the pruned model significantly ({', '.join(clear) or 'none'})"
    label(axes, title, f"gain in nats per token ({ERROR_BARS})")
    return fig


def elsewhere(measured: Measured | None = None) -> Figure:
    """Plot the gain of a model's own prompt on text like its training text, on other text, and on questions."""
    measured = measured or results.load()
    fig, (left, right) = figure(n_columns=2, width=5.4, height=3.4)
    names = [name for name in results.models(measured) if claims.on_other_text(measured, name)]
    pairs_of = {"Wikipedia, as in training": results.with_and_without, "paragraphs of BoolQ": claims.on_other_text}
    for index, (kind, pair_of) in enumerate(pairs_of.items()):
        effects = [loss_gain(pair[1], pair[0]) for pair in (pair_of(measured, name) for name in names)]
        _dots(left, effects, kind, index, 0.18 * (index - 0.5))
    tasks = list(dict.fromkeys(row["task"] for row in results.rows_of(measured, "tasks")))
    by_task = {task: [_accuracy_gain(measured, name, task) for name in names] for task in tasks}
    for index, (task, effects) in enumerate(by_task.items()):
        _dots(right, effects, task, index, 0.2 * (index - (len(by_task) - 1) / 2))
    for axes in (left, right):
        axes.axhline(0, color="black", linestyle=":", linewidth=1)
        axes.set_xticks(range(len(names)), [model_name(name).replace(" and ", "\nand ") for name in names], fontsize=9)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.margins(y=0.3)
        axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=3)
    helped = claims.OTHER_TEXT.judge(measured).effects.values()
    answers = [effect for effects in by_task.values() for effect in effects if effect]
    counts = [f"{sum(effect.holds for effect in effects)} of {len(effects)}" for effects in (helped, answers)]
    title = f"Significant gains: {counts[0]} models on other text, {counts[1]} cases on questions"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    label(left, "Other text", "", f"gain in nats per token\n({ERROR_BARS})")
    label(right, "Questions", "", f"gain in accuracy\n({ERROR_BARS})")
    return fig


def _dots(axes: Axes, effects: list[Effect | None], name: str, index: int, shift: float) -> None:
    """One dot per model with two standard errors."""
    by_place = {place + shift: effect for place, effect in enumerate(effects) if effect}
    heights = [effect.value for effect in by_place.values()]
    errors = [ERRORS * effect.error for effect in by_place.values()]
    look = line_style(index) | {"linestyle": "none"}
    axes.errorbar(list(by_place), heights, errors, capsize=3, label=name, **look)


def _accuracy_gain(measured: Measured, name: str, task: str) -> Effect | None:
    alone, own = (results.row_of(measured, "tasks", model=name, task=task, prompted=is_so) for is_so in (False, True))
    return accuracy_gap(own, alone) if alone and own else None
