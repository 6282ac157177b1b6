"""Three parts of the model, each on 2, 3 or 4 bits: what each loses alone, and what a split of the bytes loses.

Rounded to nearest, in groups of 64. The default model's weights were 4-bit once, so that 4 bits lose next to nothing.

Dimension key: P parts, L levels, n windows of N tokens.
"""

from collections.abc import Iterator, Sequence
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

BITS, GROUP = (2, 3, 4), 64
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
def rounded(model: PreTrainedModel, bits: dict[str, int]) -> Iterator[None]:
    """Inside, parts of the model have so many bits; their weights come back at the end."""
    weights = [(weight, n) for part, n in bits.items() for weight in parts_of(model)[part]]
    before = [weight.detach().clone() for weight, _ in weights]
    try:
        with torch.no_grad():
            for weight, n in weights:
                weight.copy_(Quantization(n, GROUP).grid(weight).round(weight))
        yield
    finally:
        with torch.no_grad():
            for (weight, _), whole in zip(weights, before, strict=True):
                weight.copy_(whole)


def curves(model: PreTrainedModel, windows: Int[Tensor, "n N"]) -> Curves:
    """Measured one part at a time."""
    sizes, losses = [], []
    for part, weights in parts_of(model).items():
        sizes.append([sum(dense_bytes(*weight.shape, bits, GROUP) for weight in weights) for bits in BITS])
        losses.append([float(of_split(model, windows, {part: bits}).mean()) for bits in BITS])
    return Curves(tuple(parts_of(model)), torch.tensor(sizes), torch.tensor(losses))


def of_split(model: PreTrainedModel, windows: Int[Tensor, "n N"], bits: dict[str, int]) -> Float[Tensor, "n"]:
    """The loss of each window where parts have so many bits."""
    with rounded(model, bits):
        return window_losses(model, windows, progress=False)


def table(found: Curves, levels: Sequence[int]) -> str:
    """Bits of each part, with the megabytes, and what the part alone loses above the 4 bits."""
    lines = [f"{'part':<18}{'bits':>6}{'MB':>8}   nats a token more at 2 and 3 bits than at 4, alone"]
    for part, name in enumerate(found.names):
        more = "   ".join(f"{float(found.losses[part, level] - found.losses[part, -1]):+.3f}" for level in (0, 1))
        level = int(levels[part])
        lines.append(f"{name:<18}{BITS[level]:>6}{int(found.sizes[part, level]) / 1e6:>8.1f}   {more}")
    return "\n".join(lines)


def beside_uniform(
    model: PreTrainedModel, windows: Int[Tensor, "n N"], found: Curves, levels: Sequence[int], bits: int = 3
) -> str:
    """The split beside the same bits for every part, on held-out windows."""
    chosen = {name: BITS[int(level)] for name, level in zip(found.names, levels, strict=True)}
    losses = [of_split(model, windows, each) for each in (chosen, dict.fromkeys(found.names, bits))]
    size = sum(int(found.sizes[part, int(level)]) for part, level in enumerate(levels)) / 1e6
    same = float(found.sizes[:, BITS.index(bits)].sum()) / 1e6
    gain = of_samples(losses[1] - losses[0])
    return f"{size:.1f} MB split, {same:.1f} MB at {bits} bits each: the split loses {said(gain)} nats a token less"
