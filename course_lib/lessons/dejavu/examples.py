"""Figures on a small random MLP: its neurons for two tokens, three ways to choose among them, and two tests.

Dimension key: T tokens, D width, F neurons.
"""

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor

from course_lib.contextual.neurons import Neurons
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.dejavu.drawings import PALE, SAND, arrow, blank, box, cell
from course_lib.sparsity.ranking import keep_highest

KEPT = 4
TEXT = ("the", "bank", "of", "the", "river", "bank")
WIDTH = 16


def small_mlp(n_neurons: int, width: int, generator: torch.Generator) -> Neurons:
    """Make a random MLP with ReLU, whose columns of the last matrix differ in length."""
    up = torch.randn(n_neurons, width, generator=generator) / width**0.5
    lengths = torch.empty(n_neurons).uniform_(0.2, 1.8, generator=generator)
    down = torch.randn(width, n_neurons, generator=generator)
    return Neurons(gate=None, up=up, down=down / down.norm(dim=0) * lengths, activation="relu")


def importance_of(mlp: Neurons, inputs: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
    """|h| ‖w‖ of each neuron for each token."""
    return mlp.importance(mlp.values(inputs))


def keep_top(scores: Float[Tensor, "T F"], k: int) -> Bool[Tensor, "T F"]:
    """Keep the k highest scores of each row."""
    return keep_highest(scores, scores.shape[1] - k)


def title_picture() -> Figure:
    """Draw a network of sixteen neurons, of which a token uses four: for the first slide."""
    fig, (axes,) = figure(width=6.2, height=5.2)
    blank(axes, (-0.8, 8.8), (-0.6, 15.6))
    importance = _two_tokens()[0]
    ends = [2 * place + 0.5 for place in range(8)]
    for neuron, kept in enumerate(keep_top(importance[None], KEPT)[0].tolist()):
        if kept:
            for end in ends:
                axes.plot((0, 4), (end, neuron), color=COLOURS[0], linewidth=0.9, zorder=1)
                axes.plot((4, 8), (neuron, end), color=COLOURS[0], linewidth=0.9, zorder=1)
        look = {"facecolor": COLOURS[0] if kept else PALE, "edgecolor": COLOURS[0], "zorder": 2}
        axes.add_patch(Circle((4, neuron), 0.36, **look))
    for end in ends:
        for x in (0, 8):
            axes.add_patch(Circle((x, end), 0.36, facecolor="white", edgecolor=COLOURS[0], zorder=2))
    axes.set_aspect("equal")
    return fig


def two_tokens() -> Figure:
    """Plot the importance of sixteen neurons for two tokens; the four largest are dark."""
    fig, panels = figure(n_columns=2, width=4.8, height=3.2)
    importance = _two_tokens()
    n_neurons = importance.shape[1]
    keep = keep_top(importance, KEPT)
    for axes, values, kept, name in zip(panels, importance, keep, ("a", "b"), strict=True):
        axes.bar(range(n_neurons), values, 0.8, color=[COLOURS[0] if one else COLOURS[4] for one in kept.tolist()])
        axes.set_ylim(0, float(importance.max()) * 1.08)
        axes.set_xticks(range(0, n_neurons, 2))
        energy = float(values[kept].square().sum() / values.square().sum())
        active = f"{int((values > 0).sum())} of {n_neurons} are active"
        title = f"Token {name}: {active}; {KEPT} hold {100 * energy:.0f} % of the energy"
        label(axes, title, "neuron", "h ‖w‖")
    common = int((keep[0] & keep[1]).sum())
    title = f"The {KEPT} most important neurons of two tokens have {common} in common"
    fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def _two_tokens(seed: int = 3) -> Float[Tensor, "2 F"]:
    """|h_i| ‖w_i‖ of two random tokens."""
    generator = torch.Generator().manual_seed(seed)
    mlp = small_mlp(16, 8, generator)
    return importance_of(mlp, torch.randn(2, 8, generator=generator))


def three_levels() -> Figure:
    """Draw which of 14 neurons six tokens use, chosen once, by the embedding alone, and by the input."""
    fig, panels = figure(n_columns=3, width=3.5, height=3.4)
    choices, importance = choose()
    for axes, (name, keep) in zip(panels, choices.items(), strict=True):
        _draw_grid(axes, keep)
        energy = float(importance.where(keep, 0).square().sum() / importance.square().sum())
        sets = len({tuple(row) for row in keep.tolist()})
        counted = f"{sets} set{'s' if sets > 1 else ''}"
        axes.set_title(f"{name}: {counted}, {100 * energy:.0f} % of the energy", loc="left", fontsize=10.5)
    same = bool((choices["by embedding"][1] == choices["by embedding"][5]).all())
    common = int((choices["contextual"][1] & choices["contextual"][5]).sum())
    title = (
        f"Both tokens “bank” get {'one set' if same else 'two sets'} by embedding; in context they share "
        f"{common} of {KEPT} neurons"
    )
    fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def choose(seed: int = 4, n_neurons: int = 14) -> tuple[dict[str, Bool[Tensor, "T F"]], Float[Tensor, "T F"]]:
    """Choose in three ways for six tokens; also return |h| ‖w‖ of the inputs: embeddings mixed with the two before."""
    generator = torch.Generator().manual_seed(seed)
    mlp = small_mlp(n_neurons, WIDTH, generator)
    embedding = {word: torch.randn(WIDTH, generator=generator) for word in dict.fromkeys(TEXT)}
    embeddings = torch.stack([embedding[word] for word in TEXT])
    zero = torch.zeros(1, WIDTH)
    one_back, two_back = torch.cat([zero, embeddings[:-1]]), torch.cat([zero, zero, embeddings[:-2]])
    mixed = (one_back + two_back) @ torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    importance = importance_of(mlp, embeddings + mixed)
    once = importance.mean(0, keepdim=True).expand_as(importance)
    return {
        "static": keep_top(once, KEPT),
        "by embedding": keep_top(importance_of(mlp, embeddings), KEPT),
        "contextual": keep_top(importance, KEPT),
    }, importance


def _draw_grid(axes: Axes, keep: Bool[Tensor, "T F"]) -> None:
    n_neurons = keep.shape[1]
    blank(axes, (-3.6, n_neurons + 0.2), (-1.2, len(TEXT) + 0.2))
    for token, row in enumerate(keep.tolist()):
        low = len(TEXT) - 1 - token
        axes.text(-0.3, low + 0.45, TEXT[token], ha="right", va="center", fontsize=11)
        for neuron, kept in enumerate(row):
            cell(axes, (neuron, low), (0.9, 0.9), COLOURS[0] if kept else PALE)
    axes.text(n_neurons / 2, -0.8, "neurons; dark: used", ha="center", fontsize=10)


def random_blocks(seed: int = 0, n_blocks: int = 3) -> tuple[list[Neurons], Float[Tensor, "T D"]]:
    """Make random MLPs and inputs of the first one."""
    generator = torch.Generator().manual_seed(seed)
    mlps = [small_mlp(32, WIDTH, generator) for _ in range(n_blocks)]
    return mlps, torch.randn(64, WIDTH, generator=generator)


def chosen_twice(k: int = 8) -> tuple[list[Bool[Tensor, "T F"]], list[Bool[Tensor, "T F"]]]:
    """By block: what a dense pass records, and what a pass chooses on the fly that skips the other neurons."""
    mlps, dense = random_blocks()
    recorded, on_the_fly, sparse = [], [], dense
    for mlp in mlps:
        recorded.append(keep_top(importance_of(mlp, dense), k))
        on_the_fly.append(keep_top(importance_of(mlp, sparse), k))
        dense = dense + mlp.values(dense) @ mlp.down.T
        sparse = sparse + mlp.values(sparse).where(on_the_fly[-1], 0) @ mlp.down.T
    return recorded, on_the_fly


def two_passes() -> Figure:
    """Draw a dense pass that records, a second one that uses the record, and one pass that chooses on the fly."""
    fig, (axes,) = figure(width=10.2, height=4.2)
    blank(axes, (-2.6, 13.2), (-0.6, 7.0))
    recorded, on_the_fly = chosen_twice()
    passes = (
        ("first pass: dense", 5.2, PALE),
        ("second pass:\nrecorded neurons", 2.9, SAND),
        ("one pass: chosen\non the fly", 0.4, SAND),
    )
    for name, low, fill in passes:
        axes.text(-0.3, low + 0.6, name, ha="right", va="center", fontsize=11)
        arrow(axes, (-0.2, low + 0.6), (0.9, low + 0.6))
        for block in range(3):
            left = 1 + 4.1 * block
            box(axes, (left, low), (2.4, 1.2), f"MLP {block + 1}", fill, fontsize=12)
            arrow(axes, (left + 2.45, low + 0.6), (left + 4.0, low + 0.6))
    agreement = []
    for block in range(3):
        left = 1 + 4.1 * block
        arrow(axes, (left + 1.2, 5.15), (left + 1.2, 4.15))
        axes.text(left + 1.35, 4.65, "the largest", va="center", fontsize=10)
        curved = {"arrowstyle": "->", "connectionstyle": "arc3,rad=-1.2"}
        axes.annotate("", (left + 0.9, 1.65), (left + 0.3, 1.65), arrowprops=curved)
        agreement.append(float((recorded[block] & on_the_fly[block]).sum() / recorded[block].sum()))
        axes.text(left + 1.35, 2.25, f"same: {100 * agreement[-1]:.0f} %", va="center", fontsize=10)
    title = f"A quarter of the neurons kept, random weights: in block 3 the tests agree on {100 * agreement[-1]:.0f} %"
    axes.set_title(title, loc="left", fontsize=12)
    return fig
