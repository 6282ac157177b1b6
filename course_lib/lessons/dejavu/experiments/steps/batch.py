"""When several sequences are decoded at once, a neuron must be read if one of them needs it: how fast the union grows.

Dimension key: L blocks, N tokens of a window, F neurons, B sequences at once.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.contextual.seen import importance_of
from course_lib.contextual.selector import n_kept
from course_lib.lessons.dejavu.experiments.steps.ground import subject
from course_lib.lessons.dejavu.experiments.steps.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.sparsity.ranking import keep_highest


def union(sizes: Sizes, name: str, density: float, seed: int) -> Tables:
    """A row a batch: the share of the neurons that any of B windows keeps at one position, of every group of windows.

    Windows are of different places in the text, as requests of strangers are. The mean is over blocks and positions.
    """
    of, largest = subject(sizes, name, seed), max(sizes.batches)
    keep = torch.stack([needed(importance_of(of.model, ids), density) for ids in of.evaluation[:largest]])
    rows = []
    for batch in sizes.batches:
        shares = [group.any(0).float().mean().item() for group in keep.split(batch) if len(group) == batch]
        rows.append({"model": name, "density": density, "batch": batch, "shares": [round(each, 4) for each in shares]})
    return {"batch": rows}


def needed(importance: Float[Tensor, "L N F"], density: float) -> Bool[Tensor, "L N F"]:
    """The most important neurons of each token; what gives nothing, as behind ReLU, is not needed at any density."""
    each, n = importance.flatten(0, 1), importance.shape[-1]
    return keep_highest(each, n - n_kept(density, n)).view(importance.shape) & (importance > 0)
