"""Drawings for slides and sections of lesson 08: small examples, schemes, and what a sink looks like."""

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.drawn_tables import drawn_claims
from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS, of_samples
from course_lib.lessons.sinks import claims
from course_lib.lessons.sinks.experiments import first_tokens

SIZE, NEAR, FIRST = 12, 4, 2  # tokens, window and sinks of the schemes


def maps(weights: Float[Tensor, "L H T T"], layers: Sequence[int]) -> Figure:
    """Attention of a few layers, the mean over heads; darker is more."""
    fig, axes = figure(len(layers), width=2.6, height=3.0)
    for panel, layer in zip(axes, layers, strict=True):
        panel.imshow(weights[layer].mean(dim=0), cmap="Greys", vmin=0, vmax=0.5)
        panel.grid(visible=False)
        label(panel, f"layer {layer}: {100 * weights[layer, :, 4:, 0].mean():.0f} %", "token that is read")
    axes[0].set_ylabel("token that reads")
    fig.suptitle("What the first token gets", x=0.02, ha="left", fontsize=12)
    return fig


def four_patterns() -> Figure:
    """Which tokens each of four ways reads, and what it computes for the newest token."""
    fig, axes = figure(4, width=2.5, height=2.9)
    names = ("dense: T² pairs", "window: T L", "read afresh: T L²", "sinks + window: T L")
    for panel, name in zip(axes, names, strict=True):
        panel.set_xlim(0, SIZE)
        panel.set_ylim(SIZE, 0)
        panel.set_aspect("equal")
        panel.grid(visible=False)
        panel.set_xticks([])
        panel.set_yticks([])
        for query in range(SIZE):
            for key in range(query + 1):
                colour = _cell(name, query, key)
                if colour:
                    panel.add_patch(Rectangle((key, query), 0.92, 0.92, color=colour, linewidth=0))
        label(panel, name, "token that is read")
    axes[0].set_ylabel("token that reads")
    return fig


def _cell(name: str, query: int, key: int) -> str | None:
    """Dark: attention of the newest tokens; orange: first tokens that stay; light: computed anew for the newest one."""
    near = key > query - NEAR
    if name.startswith("dense"):
        return COLOURS[0]
    if name.startswith("window"):
        return COLOURS[0] if near else None
    if name.startswith("read afresh"):
        last = query >= SIZE - NEAR and key >= SIZE - NEAR
        return COLOURS[0] if query == SIZE - 1 and last else COLOURS[4] if last else None
    return COLOURS[3] if key < FIRST else COLOURS[0] if near else None


def one_leaves(weights: Sequence[float] = (0.6, 0.1, 0.1, 0.2)) -> Figure:
    """The weights of one query before and after its first token leaves."""
    fig, (left, right) = figure(2, width=4.0, height=3.0)
    after = [weight / sum(weights[1:]) for weight in weights[1:]]
    for panel, values, first in ((left, weights, 0), (right, after, 1)):
        places = range(first, len(weights))
        colours = [COLOURS[3] if place == 0 else COLOURS[0] for place in places]
        bars = panel.bar(places, values, 0.7, color=colours)
        panel.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=10)
        panel.set_xlim(-0.6, len(weights) - 0.4)
        panel.set_ylim(0, 0.75)
        panel.set_xticks(range(len(weights)), [f"token {place}" for place in range(len(weights))])
    label(left, "before: the sink has most", "", "attention of one query")
    label(right, f"after: all others {after[0] / weights[1]:.2f} times as much")
    return fig


def starts() -> Figure:
    """What simple ideas got in the open task, against the text's own first four tokens."""
    ideas = first_tokens.stored(load_measured("sinks", "first_tokens")["tables"]["ideas"])
    fig, (axes,) = figure(width=7.6, height=3.9)
    own, none = ideas.pop(first_tokens.OWN), ideas.pop(first_tokens.NONE)
    names = list(ideas)[::-1]
    for place, name in enumerate(names):
        lower, error = against(ideas[name].losses, own.losses)
        axes.errorbar(100 * lower, place, xerr=100 * ERRORS * error, capsize=3, **line_style(0))
    axes.axvline(0, color=COLOURS[1], linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), [f"{name}: {ideas[name].n_kept}" for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    better = [name for name in names if of_samples(own.losses - ideas[name].losses).holds]
    lost = -100 * against(none.losses, own.losses)[0]
    title = f"Clearly better than the text's own first 4 tokens: {len(better)} of {len(names)} starts;\n"
    title += f"none at all costs {lost:.0f} hundredths of a nat"
    label(axes, title, f"hundredths of a nat lower (bars: two standard errors, n = {len(own.losses)} texts)")
    axes.set_ylabel("what stays, and its slots")
    return fig


def take_home() -> Figure:
    """The claims to remember: the published number, ours, and the verdict."""
    return drawn_claims(claims.TAKE_HOME)
