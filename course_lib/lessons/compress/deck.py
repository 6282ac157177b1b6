"""Figures of deck 10 that are computed: where a prompt begins, what a metric makes of it, and what goes over.

Losses drawn by lot stand for windows; none of them was measured on a model.

Dimension key: N windows, T tokens of a window, P vectors of the prompt, V tokens of the vocabulary, D width.
"""

import math

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import percent
from course_lib.lessons.compress.steps.gains import paired_ratio, share_that_goes_over
from course_lib.models import load_model
from course_lib.prompts.losses import zero_averaged
from course_lib.prompts.recipe import PromptRecipe
from course_lib.prompts.soft import table_of

WINDOW = 1024  # tokens of a text in the paper's code
LENGTHS = tuple(2**step for step in range(3, 12))
COUNTS = (0, 5, 10, 20, 50, 100, 200)
CODE = PromptRecipe(n_steps=30_000, warm_up=500, rate=1e-3, batch=2, decay=0.0)  # scripts/gptq.sh at f15c334


def first_token_factor(more: float, n_tokens: int) -> float:
    """exp((l + more + (T − 1) l) / T − l): what scoring the first token too does, if it costs so much more."""
    return math.exp(more / n_tokens)


def first_token() -> Figure:
    """The factor on a perplexity, over the length of a window, where the first token costs 2, 4 or 6 nats more."""
    _, (axes,) = figure(width=7.6, height=3.4)
    for index, more in enumerate((2.0, 4.0, 6.0)):
        factors = [first_token_factor(more, length) for length in LENGTHS]
        axes.plot(LENGTHS, factors, label=f"{more:g} nats more", **line_style(index))
    log_scale(axes, "x")
    axes.legend(frameon=False, fontsize=10.5)
    short, long = (first_token_factor(4.0, length) for length in (32, WINDOW))
    title = f"4 nats more for one token: {short:.2f} times at 32 tokens, {long:.3f} times at 1,024"
    return label(axes, title, "tokens of a window", "factor on the perplexity").figure


def row_lengths(seed: int = 0) -> tuple[Float[Tensor, "V"], Float[Tensor, "V"]]:
    """‖E(w)‖ of every token of the course's model, and the lengths of as many rows of N(0, 1), √D in the mean."""
    table = table_of(load_model()[0]).float()
    normal = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed))
    return table.norm(dim=1), normal.norm(dim=1)


def lengths() -> Figure:
    """Histograms of the lengths of the vocabulary's rows and of rows of N(0, 1)."""
    _, (axes,) = figure(width=8.0, height=3.4)
    words, normal = row_lengths()
    bins = [0.25 * step for step in range(112)]
    axes.hist(words, bins, color=COLOURS[0], label="rows of the vocabulary")
    axes.hist(normal, bins, color=COLOURS[3], label="rows of N(0, 1)")
    axes.legend(frameon=False, fontsize=10.5, loc="upper center")
    times = float(normal.mean() / words.mean())
    title = f"Rows of N(0, 1) are {normal.mean():.1f} long, those of SmolLM2 {words.mean():.1f}: {times:.0f} times"
    return label(axes, title, "length of a row", "rows").figure


def rates() -> Figure:
    """The rate over the steps, as a share of the highest, with the settings of the paper's code and this course's."""
    _, (axes,) = figure(width=7.6, height=3.2)
    for index, (name, recipe) in enumerate({"the paper's script": CODE, "this course": PromptRecipe()}.items()):
        steps = sorted({*range(0, recipe.n_steps, recipe.n_steps // 100), recipe.warm_up, recipe.n_steps - 1})
        shares = [recipe.rate_at(step) / recipe.rate for step in steps]
        said = f"{name}: {recipe.n_steps:,} steps up to {recipe.rate:g}"
        axes.plot([step / recipe.n_steps for step in steps], shares, label=said, markevery=12, **line_style(index))
    axes.set_ylim(0, 1.1)
    axes.legend(frameon=False, fontsize=10.5, loc="upper right")
    ours, theirs = (percent(recipe.warm_up / recipe.n_steps, 1) for recipe in (PromptRecipe(), CODE))
    title = f"A warm-up of {theirs} of the steps in the paper's script, {ours} here"
    return label(axes, title, "share of the steps", "share of the highest rate").figure


def drawn_losses(seed: int = 0, n: int = 16) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Mean losses by lot of windows of unequal difficulty, without a prompt and with one that wins about 0.1 each."""
    generator = torch.Generator().manual_seed(seed)
    plain = 3 + 0.4 * torch.randn(n, generator=generator)
    return plain, plain - 0.1 + 0.03 * torch.randn(n, generator=generator)


def ratios() -> tuple[float, float, float]:
    """The paired ratio, its error, and the error as if the windows were no pairs."""
    plain, prompted = drawn_losses()
    real = torch.ones(len(plain), 2, dtype=torch.bool)
    both = torch.stack([torch.zeros_like(plain), prompted], dim=1)
    ratio, error = paired_ratio(both, plain[:, None], real)
    apart = ratio * ((plain.var() + prompted.var()) / len(plain)).sqrt()
    return float(ratio), float(error), float(apart)


def pairs() -> Figure:
    """Each window without and with a prompt, joined by a line."""
    _, (axes,) = figure(width=7.4, height=3.5)
    for before, after in zip(*(losses.tolist() for losses in drawn_losses()), strict=True):
        axes.plot((0, 1), (before, after), color=COLOURS[0], marker="o", linewidth=1)
    axes.set_xticks((0, 1), ("without", "with"))
    axes.set_xlim(-0.4, 1.4)
    ratio, error, apart = ratios()
    title = f"Drawn losses: ratio {ratio:.2f} ± {error:.3f} in pairs, ± {apart:.2f} without"
    return label(axes, title, "", "loss of a window, nats a token").figure


def printed(perplexity: float, n_vectors: int) -> float:
    """What the public code's mean makes of a perplexity, for windows of 1,024 tokens."""
    losses = torch.full((1, WINDOW - 1), math.log(perplexity), dtype=torch.float64)
    return math.exp(float(zero_averaged(losses, n_vectors)))


def artefact() -> Figure:
    """What is printed of three perplexities, over the vectors of a prompt that does nothing."""
    _, (axes,) = figure(width=7.6, height=3.4)
    for index, perplexity in enumerate((10.0, 20.0, 50.0)):
        shares = [printed(perplexity, count) / perplexity for count in COUNTS]
        axes.plot(COUNTS, shares, label=f"perplexity {perplexity:g}", **line_style(index))
    axes.legend(frameon=False, fontsize=10.5)
    title = f"100 vectors that do nothing: a perplexity of 20 is printed as {printed(20.0, 100):.1f}"
    return label(axes, title, "vectors of the prompt", "printed / true").figure


def share(of_dense: float, moved: float = 0.16, own: float = 0.2) -> float:
    """The share that goes over, of gains in nats: a moved and an own prompt's, and the dense model's own."""
    plain, dense = torch.full((2,), 4.0), torch.full((2,), 3.0)
    return float(share_that_goes_over(plain, plain - own, plain - moved, dense, dense - of_dense)[0])


def shares() -> Figure:
    """The share that goes over for the same two gains, over what the dense model gains from a prompt of its own."""
    _, (axes,) = figure(width=7.6, height=3.4)
    gains = [step / 100 for step in range(17)]
    axes.plot(gains, [share(gain) for gain in gains], label="taken off both sides", **line_style(0))
    axes.axhline(share(0.0), label="not taken off", color=COLOURS[1], linestyle="--")
    axes.set_ylim(-0.05, 1)
    axes.legend(frameon=False, fontsize=10.5, loc="lower left")
    title = (
        f"Gains of 0.16 and 0.20 nats: {share(0.0):.2f} goes over, or {share(0.12):.2f} if the dense model gains 0.12"
    )
    return label(axes, title, "gain of the dense model, nats", "share that goes over").figure
