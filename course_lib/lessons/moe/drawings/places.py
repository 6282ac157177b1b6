"""Drawings of tokens and the experts they go to: sorted, one too many, and chosen from the other side.

Dimension key: T tokens, E experts.
"""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.lessons.common.results import listed
from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.moe.drawings.parts import PALE, SAND, arrow, blank, box, row
from course_lib.moe.dispatch import pairs
from course_lib.moe.routed import Routing
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch

FILLS = (PALE, SAND, "white", "#c9d6e2")
# Four tokens that ask for two of four experts, and nobody for expert 2.
SORTED = torch.tensor([[2.0, 1.0, -3.0, 0.0], [0.0, 1.0, -3.0, 2.0], [2.0, 0.0, -3.0, 1.0], [1.0, 2.0, -3.0, 0.0]])
# Eight tokens, four experts: the first is the best for half of them, and f has no favourite.
WANTED = torch.tensor(
    [
        [2.2, 1.5, -1.0, -0.6],
        [1.4, -0.7, 0.9, 0.7],
        [2.1, 1.6, -0.9, -1.2],
        [1.9, -0.8, -1.1, 1.3],
        [-0.2, 1.5, 0.9, 1.1],
        [0.4, 0.2, -0.1, -0.2],
        [1.1, 1.4, 0.9, -0.9],
        [0.2, -0.9, 1.0, 1.4],
    ]
)


def dispatch() -> Figure:
    """Pairs of a token and an expert in the order of tokens, then of experts, and what comes back."""
    fig, (axes,) = figure(width=10.4, height=4.3)
    routing = OLMoE(k=2).route(SORTED)
    experts, tokens = (each.tolist() for each in pairs(routing.keep))
    names, n_pairs = row(len(SORTED)), len(experts)
    blank(axes, (-0.6, 14.6), (-1.0, n_pairs + 0.9))
    for token, name in enumerate(names):
        y = n_pairs - 2 * token - 1.5
        box(axes, (0, y), (1.1, 1.0), name)
        box(axes, (12.4, y), (1.1, 1.0), name)
    for place, (expert, token) in enumerate(zip(experts, tokens, strict=True)):
        y, y_token = n_pairs - 1 - place, n_pairs - 2 * token - 1.0
        box(axes, (4.4, y + 0.1), (1.0, 0.8), names[token], FILLS[expert])
        box(axes, (8.0, y + 0.1), (1.9, 0.8), f"{routing.weights[token, expert]:.2f} · E{expert}", FILLS[expert])
        arrow(axes, (1.15, y_token), (4.35, y + 0.5), linewidth=0.9)
        arrow(axes, (5.45, y + 0.5), (7.95, y + 0.5), linewidth=0.9)
        arrow(axes, (9.95, y + 0.5), (12.35, y_token), linewidth=0.9)
    _offsets(axes, routing, n_pairs)
    for x, text in (
        (0.55, "tokens"),
        (4.9, "sorted by expert"),
        (8.95, "each expert once"),
        (12.95, "put back, added"),
    ):
        axes.text(x, n_pairs + 0.35, text, ha="center", fontsize=11.5)
    awake = int(routing.keep.any(0).sum())
    idle = [f"expert {e}" for e, used in enumerate(routing.keep.any(0).tolist()) if not used]
    title = f"{len(names)} tokens, 2 experts each: {n_pairs} pairs, {awake} experts at work; {listed(idle)} is not read"
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def _offsets(axes: Axes, routing: Routing, n_pairs: int) -> None:
    """Where the rows of each expert end; equal ends are an idle expert."""
    ends = routing.keep.sum(0).cumsum(0).tolist()
    for expert, end in enumerate(ends):
        if end == (ends[expert - 1] if expert else 0):
            continue
        axes.plot((3.9, 10.2), (n_pairs - end, n_pairs - end), color=COLOURS[0], linewidth=0.8, linestyle=":")
    axes.text(4.9, -0.75, f"ends: {', '.join(map(str, ends))}", ha="center", fontsize=11)


def capacity_and_overflow() -> Figure:
    """Top-1 of eight tokens, two places an expert: who comes too late goes past the experts."""
    fig, (axes,) = figure(width=9.6, height=3.9)
    router = Switch(capacity_factor=1.0)
    routing = router.route(WANTED)
    n_tokens, n_experts = WANTED.shape
    places = router.capacity(n_tokens, n_experts)
    blank(axes, (-2.2, 8.6), (-1.0, n_experts + 0.8))
    names, empty = row(n_tokens), 0
    for expert in range(n_experts):
        y = n_experts - 1 - expert
        axes.text(-0.3, y + 0.45, f"expert {expert}", ha="right", va="center", fontsize=11.5)
        inside = [name for name, here in zip(names, routing.keep[:, expert].tolist(), strict=True) if here]
        outside = [
            name
            for name, wants, here in zip(
                names, routing.chosen[:, expert].tolist(), routing.keep[:, expert].tolist(), strict=True
            )
            if wants and not here
        ]
        for place in range(places):
            name = inside[place] if place < len(inside) else ""
            box(axes, (place * 1.2, y), (1.05, 0.85), name, COLOURS[0] if name else "white", dashed=not name)
            empty += not name
        for place, name in enumerate(outside):
            box(axes, (4.2 + place * 1.2, y), (1.05, 0.85), name, SAND, dashed=True)
    axes.text(1.1, n_experts + 0.25, f"{places} places each", ha="center", fontsize=11.5)
    axes.text(4.2, n_experts + 0.25, "no place: weight 0, the residual carries them on", fontsize=11.5)
    axes.text(-2.0, -0.7, f"in the order of the text: {' '.join(names)}", fontsize=11)
    title = f"Factor 1.0: {routing.n_dropped} of {n_tokens} tokens find no place, while {empty} places stay empty"
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def token_choice_and_expert_choice() -> Figure:
    """The same probabilities, chosen by row and by column."""
    fig, panels = figure(n_columns=2, width=4.6, height=4.4)
    by_token, by_expert = OLMoE(k=2).route(WANTED), ExpertChoice(capacity_factor=2.0).route(WANTED)
    _choices(panels[0], by_token)
    _choices(panels[1], by_expert)
    loads = [int(n) for n in by_token.keep.sum(0)]
    panels[0].set_title(f"Each token its best 2: experts get {listed(loads)}", loc="left", fontsize=11)
    (equal,) = {int(n) for n in by_expert.keep.sum(0)}
    own = by_expert.keep.sum(1)
    panels[1].set_title(
        f"Each expert its best {equal}: tokens get {int(own.min())} to {int(own.max())}", loc="left", fontsize=11
    )
    return fig


def _choices(axes: Axes, routing: Routing) -> None:
    n_tokens, n_experts = routing.keep.shape
    axes.imshow(routing.probs, cmap="Greys", vmin=0, vmax=1.6, aspect="auto")
    for token in range(n_tokens):
        for expert in range(n_experts):
            chosen = bool(routing.keep[token, expert])
            text = f"{float(routing.probs[token, expert]):.2f}"
            weight = "bold" if chosen else "normal"
            axes.text(expert, token, text, ha="center", va="center", fontsize=10, weight=weight)
            if chosen:
                look = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 2.2}
                axes.add_patch(Rectangle((expert - 0.46, token - 0.44), 0.92, 0.88, **look))
    axes.set_xticks(range(n_experts), [f"expert {e}" for e in range(n_experts)], fontsize=10)
    axes.set_yticks(range(n_tokens), row(n_tokens), fontsize=11)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
