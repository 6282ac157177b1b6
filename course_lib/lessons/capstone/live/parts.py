"""Three parts of the model on grids of three sizes: what each loses alone, and what a split of the bytes loses.

Rounded to nearest.

Dimension key: P parts, L levels, n windows of N tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.lessons.common.verdicts import of_samples, said
from course_lib.measure.perplexity import window_losses
from course_lib.models import blocks, linears
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import dense_bytes

LEVELS = {"3 bits, 64": Quantization(3, 64), "4 bits, rows": Quantization(4), "4 bits, 64": Quantization(4, 64)}
UNIFORM = 1  # the level of every part that a split is compared with
N_GROUPS = 2  # of neighbouring blocks


@dataclass(frozen=True)
class Curves:
    """Of each part at each level: bytes, and the loss in nats a token with that part alone rounded."""

    names: tuple[str, ...]
    sizes: Int[Tensor, "P L"]
    losses: Float[Tensor, "P L"]


def parts_of(model: PreTrainedModel) -> dict[str, list[nn.Parameter]]:
    """The embedding, which is the head as well, and halves of the blocks."""
    every, found = list(blocks(model)), {"embedding": [model.get_input_embeddings().weight]}
    n = len(every) // N_GROUPS
    for start in range(0, len(every), n):
        weights = [linear.weight for block in every[start : start + n] for linear in linears(block).values()]
        found[f"blocks {start + 1} to {start + n}"] = weights
    return found


@contextmanager
def rounded(model: PreTrainedModel, levels: Mapping[str, int]) -> Iterator[None]:
    """Inside, parts of the model are on grids of their level; their weights come back at the end."""
    grids = list(LEVELS.values())
    weights = [(weight, grids[level]) for part, level in levels.items() for weight in parts_of(model)[part]]
    before = [weight.detach().clone() for weight, _ in weights]
    try:
        with torch.no_grad():
            for weight, quantization in weights:
                weight.copy_(quantization.grid(weight).round(weight))
        yield
    finally:
        with torch.no_grad():
            for (weight, _), whole in zip(weights, before, strict=True):
                weight.copy_(whole)


def curves(model: PreTrainedModel, windows: Int[Tensor, "n N"]) -> Curves:
    """Measured one part at a time."""
    sizes, losses = [], []
    for part, weights in parts_of(model).items():
        sizes.append([sum(dense_bytes(*w.shape, each.bits, each.group) for w in weights) for each in LEVELS.values()])
        losses.append([float(of_split(model, windows, {part: level}).mean()) for level in range(len(LEVELS))])
    return Curves(tuple(parts_of(model)), torch.tensor(sizes), torch.tensor(losses))


def of_split(model: PreTrainedModel, windows: Int[Tensor, "n N"], levels: Mapping[str, int]) -> Float[Tensor, "n"]:
    """The loss of each window with parts at these levels."""
    with rounded(model, levels):
        return window_losses(model, windows, progress=False)


def table(found: Curves, levels: Sequence[int]) -> str:
    """The level of each part, its megabytes, and what it loses alone at each level beyond the largest."""
    names = list(LEVELS)
    lines = [f"{'part':<18}{'level':<14}{'MB':>6}   nats a token more, alone, at {' and '.join(names[:-1])}"]
    for part, name in enumerate(found.names):
        more = "   ".join(f"{float(loss - found.losses[part, -1]):+.3f}" for loss in found.losses[part, :-1])
        level = int(levels[part])
        lines.append(f"{name:<18}{names[level]:<14}{int(found.sizes[part, level]) / 1e6:>6.1f}   {more}")
    return "\n".join(lines)


def beside_uniform(model: PreTrainedModel, windows: Int[Tensor, "n N"], found: Curves, levels: Sequence[int]) -> str:
    """The split beside the same level for every part, on other windows."""
    chosen = {name: int(level) for name, level in zip(found.names, levels, strict=True)}
    losses = [of_split(model, windows, each) for each in (chosen, dict.fromkeys(found.names, UNIFORM))]
    size = sum(int(found.sizes[part, level]) for part, level in enumerate(chosen.values())) / 1e6
    same, name = float(found.sizes[:, UNIFORM].sum()) / 1e6, list(LEVELS)[UNIFORM]
    gain = of_samples(losses[1] - losses[0])
    return f"{size:.1f} MB split, {same:.1f} MB with {name} each: the split loses {said(gain)} nats a token less"
