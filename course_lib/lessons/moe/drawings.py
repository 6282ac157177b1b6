"""Drawings of the core path of lesson 06, which measure nothing: the layer, the gate, dispatch, capacity and balance.

Dimension key: T tokens, E experts.
"""

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from course_lib.lessons.common.results import listed
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.moe.dispatch import pairs
from course_lib.moe.losses import balance
from course_lib.moe.routed import Routing
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch
from course_lib.moe.routing import Router

PALE = "#e3e7ec"
SAND = "#f6e7c4"
ARROW = {"arrowstyle": "->", "linewidth": 1.4, "color": COLOURS[0], "shrinkA": 0, "shrinkB": 0}
LAYER_LOGITS = (0.2, 1.9, -0.5, 0.4, 1.2, -1.0, 0.1, -0.3)  # of one token, for eight experts
WIDTH, NEURONS = 576, 1536  # of an MLP of SmolLM2-135M, which is one expert here
WIDE, TALL = WIDTH / 100, NEURONS / 100  # as drawn
APART = 3 * WIDE + 2.2
TOKEN_LOGITS = (2.0, 1.5, 0.5, 0.0)  # of one token, for four experts
KINDS: dict[str, Router] = {
    "softmax, then top-1": OLMoE(k=1),
    "top-1, then softmax": Mixtral(k=1),
    "softmax, then top-2": OLMoE(k=2),
    "top-2, then softmax": Mixtral(k=2),
}
FILLS = (PALE, SAND, "white", "#c9d6e2")
# Four tokens that choose two of four experts each; none of them chooses expert 2.
SORTED = torch.tensor([[2.0, 1.0, -3.0, 0.0], [0.0, 1.0, -3.0, 2.0], [2.0, 0.0, -3.0, 1.0], [1.0, 2.0, -3.0, 0.0]])
# Eight tokens, four experts: expert 0 has the highest logit for half of the tokens; token f has no clear favourite.
ROUTED = torch.tensor(
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
Layer = tuple[Float[Tensor, "T E"], Bool[Tensor, "T E"]]  # probabilities and choices
Number = float | int
Point = tuple[Number, Number]


def one_layer() -> Figure:
    """Eight MLPs of SmolLM2 as experts and their router, to scale; the two that the token uses are dark."""
    fig, (axes,) = figure(width=10.4, height=4.5)
    blank(axes, (-1, 8 * APART - 1), (-15.5, 36))
    middle = 4 * APART - 1
    axes.text(middle, 34, "token x", ha="center", fontsize=12)
    arrow(axes, (middle, 33), (middle, 30.7))
    axes.add_patch(Rectangle((middle - WIDE / 2, 30), WIDE, 8 / 100, facecolor="black", edgecolor="black"))
    axes.text(middle + 5, 30, "router: 8 rows of 576, to scale", va="center", fontsize=10.5)
    routing = routed()
    for expert in range(8):
        _expert(axes, expert, routing)
    axes.text(middle, -14.6, "y = Σ p E(x) over the two", ha="center", fontsize=12)
    used = int(routing.keep.sum())
    stored, router = 8 * 3 * WIDTH * NEURONS, 8 * WIDTH
    title = (
        f"Eight experts: {stored / 1e6:.1f} M weights are stored, {used * stored / 8e6:.1f} M are used per token; "
        f"the router has {router:,}"
    )
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def routed() -> Routing:
    """The top 2 of eight experts, with their probabilities as weights."""
    return OLMoE(k=2).route(torch.tensor([LAYER_LOGITS]))


def _expert(axes: Axes, number: int, routing: Routing) -> None:
    """Draw its three matrices side by side (the last one transposed), below its probability."""
    left, middle = number * APART, number * APART + 1.5 * WIDE
    chosen, p = bool(routing.keep[0, number]), float(routing.probs[0, number])
    for matrix, name in enumerate(("gate", "up", "down")):
        look = {"facecolor": COLOURS[0] if chosen else PALE, "edgecolor": COLOURS[4], "linewidth": 0.8}
        axes.add_patch(Rectangle((left + matrix * WIDE, 0), WIDE, TALL, **look))
        ink = "white" if chosen else "black"
        axes.text(left + (matrix + 0.5) * WIDE, TALL / 2, name, rotation=90, ha="center", va="center", color=ink)
    low = TALL + 1.5
    axes.add_patch(
        Rectangle((middle - 2, low), 4, 20 * p, facecolor=COLOURS[1] if chosen else PALE, edgecolor=COLOURS[0])
    )
    axes.text(middle, low + 20 * p + 0.5, f"{p:.2f}", ha="center", va="bottom", fontsize=10.5)
    if chosen:
        arrow(axes, (4 * APART - 1, 29.6), (middle, low + 20 * p + 3.4))
        arrow(axes, (middle, -0.6), (4 * APART - 1, -11.8))
        axes.text(middle + 1.5, -4.5, f"× {p:.2f}", ha="left", fontsize=11)


def top_k_then_softmax() -> Figure:
    """The weights of one token with the softmax over all experts, and over the chosen ones."""
    fig, panels = figure(n_columns=2, width=4.4, height=3.1)
    for axes, (name, router) in zip(panels, list(KINDS.items())[2:], strict=True):
        routing = router.route(torch.tensor([TOKEN_LOGITS]))
        weights, probs = routing.weights[0], routing.probs[0]
        axes.bar(range(4), probs, 0.7, facecolor="none", edgecolor=COLOURS[4], linestyle="--", label="p, over all 4")
        axes.bar(range(4), weights, 0.5, color=COLOURS[0], label="weight")
        for expert, weight in enumerate(weights.tolist()):
            if weight:
                axes.annotate(f"{weight:.2f}", (expert, max(weight, float(probs[expert]))), ha="center", va="bottom")
        axes.set_xticks(range(4), [f"expert {e}\nlogit {x:g}" for e, x in enumerate(TOKEN_LOGITS)], fontsize=9.5)
        axes.set_ylim(0, 0.75)
        label(axes, f"{name[0].upper()}{name[1:]}: the weights add up to {weights.sum():.2f}", "", "weight")
    panels[0].legend(frameon=False)
    return fig


def dispatch() -> Figure:
    """Pairs of a token and an expert: ordered by token, sorted by expert, and added up again."""
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
        (8.95, "each expert runs once"),
        (12.95, "added up per token"),
    ):
        axes.text(x, n_pairs + 0.35, text, ha="center", fontsize=11.5)
    n_used = int(routing.keep.any(0).sum())
    idle = [f"expert {e}" for e, used in enumerate(routing.keep.any(0).tolist()) if not used]
    title = f"{len(names)} tokens, 2 experts each: {n_pairs} pairs, {n_used} experts run; {listed(idle)} is skipped"
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def _offsets(axes: Axes, routing: Routing, n_pairs: int) -> None:
    """Mark where the rows of each expert end; two equal ends are an expert without tokens."""
    ends = routing.keep.sum(0).cumsum(0).tolist()
    for expert, end in enumerate(ends):
        if end == (ends[expert - 1] if expert else 0):
            continue
        axes.plot((3.9, 10.2), (n_pairs - end, n_pairs - end), color=COLOURS[0], linewidth=0.8, linestyle=":")
    axes.text(4.9, -0.75, f"ends: {', '.join(map(str, ends))}", ha="center", fontsize=11)


def capacity_and_overflow() -> Figure:
    """Top-1 of eight tokens with a capacity of two per expert: later tokens are dropped."""
    fig, (axes,) = figure(width=9.6, height=3.9)
    router = Switch(capacity_factor=1.0)
    routing = router.route(ROUTED)
    n_tokens, n_experts = ROUTED.shape
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
    axes.text(1.1, n_experts + 0.25, f"capacity {places}", ha="center", fontsize=11.5)
    axes.text(4.2, n_experts + 0.25, "dropped: only the residual stream is left", fontsize=11.5)
    axes.text(-2.0, -0.7, f"tokens in the order of the text: {' '.join(names)}", fontsize=11)
    title = f"Capacity factor 1.0: {routing.n_dropped} of {n_tokens} tokens are dropped, while {empty} slots stay empty"
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def token_choice_and_expert_choice() -> Figure:
    """The same probabilities with token choice (by row) and expert choice (by column)."""
    fig, panels = figure(n_columns=2, width=4.6, height=4.4)
    by_token, by_expert = OLMoE(k=2).route(ROUTED), ExpertChoice(capacity_factor=2.0).route(ROUTED)
    _choices(panels[0], by_token)
    _choices(panels[1], by_expert)
    loads = [int(n) for n in by_token.keep.sum(0)]
    panels[0].set_title(f"Each token takes its top 2: experts get {listed(loads)}", loc="left", fontsize=11)
    (equal,) = {int(n) for n in by_expert.keep.sum(0)}
    own = by_expert.keep.sum(1)
    panels[1].set_title(
        f"Each expert takes its top {equal}: tokens get {int(own.min())} to {int(own.max())}", loc="left", fontsize=11
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


def by_layer() -> Figure:
    """Two layers that use different halves of four experts, and the pooled loads of both."""
    first, second = collapsed((0, 1)), collapsed((2, 3))
    averaged = tuple(torch.cat(parts) for parts in zip(first, second, strict=True))
    named = {"layer 1": first, "layer 2": second, "pooled": averaged}
    losses = {name: float(balance(*layer, alpha=1.0)) for name, layer in named.items()}
    fig, panels = figure(n_columns=3, width=3.0, height=3.5)
    for axes, (name, (probs, chosen)) in zip(panels, named.items(), strict=True):
        load, mean = chosen.sum(0) / chosen.sum(), probs.mean(0)
        axes.bar([e - 0.2 for e in range(4)], load, 0.38, color=COLOURS[0], label="f, fraction of choices")
        axes.bar([e + 0.2 for e in range(4)], mean, 0.38, color=COLOURS[3], hatch="//", label="P, mean probability")
        axes.set_xticks(range(4))
        axes.set_ylim(0, 0.75)
        label(axes, f"{name}: E Σ f P = {losses[name]:.1f}", "expert", "fraction")
    panels[0].legend(frameon=False, fontsize=9.5)
    mean = (losses["layer 1"] + losses["layer 2"]) / 2
    fig.suptitle(
        f"Per layer the loss is {mean:.1f}; with loads pooled over the layers it is "
        f"{losses['pooled']:.1f}, as at balance",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    return fig


def collapsed(experts: tuple[int, ...], n_experts: int = 4, n_tokens: int = 8) -> Layer:
    """All tokens take these experts, with all of their probability on them."""
    chosen = torch.zeros(n_tokens, n_experts, dtype=torch.bool)
    chosen[:, list(experts)] = True
    return chosen / len(experts), chosen


def blank(axes: Axes, x: Point, y: Point) -> Axes:
    """Remove frame and grid, and set the limits."""
    axes.axis("off")
    axes.set(xlim=x, ylim=y)
    return axes


def box(
    axes: Axes,
    corner: Point,
    size: Point,
    text: str = "",
    fill: str = "white",
    dashed: bool = False,
    fontsize: int = 11,
) -> None:
    """Draw a rounded box with a text in its middle (white on a dark fill), from its lower left corner."""
    (left, low), (width, height) = corner, size
    look = {"facecolor": fill, "edgecolor": COLOURS[0], "linestyle": "--" if dashed else "-"}
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.08", **look))
    ink = "white" if fill == COLOURS[0] else "black"
    axes.text(left + width / 2, low + height / 2, text, ha="center", va="center", fontsize=fontsize, color=ink)


def arrow(axes: Axes, start: Point, end: Point, **look: object) -> None:
    """Draw an arrow between two points."""
    axes.annotate("", end, start, arrowprops=ARROW | look, zorder=1)


def row(tokens: int) -> list[str]:
    """Names of tokens: a, b, c and so on."""
    return [chr(ord("a") + number) for number in range(tokens)]
