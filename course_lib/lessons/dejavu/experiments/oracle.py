"""Measure with an oracle: important neurons, kept neurons, changed depth, batches, and rounded weights.

Dimension key: T tokens, L blocks, F neurons, N windows.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.altered import halves_in_parallel, pairs_in_parallel, skipping
from course_lib.contextual.seen import Seen, importance_of, look_through
from course_lib.contextual.selector import NeuronSelector, n_kept
from course_lib.contextual.selectors.alone import TokenAlone
from course_lib.contextual.selectors.embedding import FromEmbedding
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.selectors.recorded import Recorded
from course_lib.contextual.selectors.static import Static
from course_lib.contextual.slow_change import slow_change
from course_lib.lessons.dejavu.experiments.ground import Row, Sizes, Subject, joined, loss_row, selected_row, subject
from course_lib.measure.experiment import Tables
from course_lib.models import blocks, layers_of, weight_of
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.ranking import keep_highest

ENERGY = 0.95  # of Σ (h_i ‖w_i‖)²


def dense(sizes: Sizes, name: str, seed: int) -> Tables:
    """Measure the perplexity with all neurons and all heads: the baseline."""
    return {"dense": [loss_row(subject(sizes, name, seed))]}


def active(sizes: Sizes, name: str, seed: int) -> Tables:
    """By block: both fractions, the mean of every window, and the fraction of neurons that no token uses."""
    of, by_block, used = subject(sizes, name, seed), {}, {}

    def look(block: int, seen: Seen) -> None:
        fires = seen.hidden != 0
        shares = fires.float().mean().item(), carrying(seen.neurons.importance(seen.hidden))
        by_block.setdefault(block, []).append(shares)
        used[block] = used.get(block, False) | fires.any(0)

    look_through(of.model, of.evaluation, look)
    rows = []
    for block, shares in by_block.items():
        nonzero, carry = zip(*shares, strict=True)
        row = {"model": name, "block": block, "never": round(1 - used[block].float().mean().item(), 4)}
        rows.append(row | {"nonzero": _short(nonzero), "carrying": _short(carry), "energy": ENERGY})
    return {"active": rows}


def carrying(importance: Float[Tensor, "T F"]) -> float:
    """Return the smallest fraction of the neurons that holds ENERGY of Σ importance², as a mean over tokens."""
    ordered = importance.double().square().sort(dim=1, descending=True).values.cumsum(1)
    short_of = ordered < ENERGY * ordered[:, -1:]
    return ((short_of.sum(1) + 1) / importance.shape[1]).mean().item()


def _short(shares: tuple[float, ...]) -> list[float]:
    return [round(share, 4) for share in shares]


ORACLE, RECORDED, STATIC = "oracle", "oracle, two passes", "static"
ALONE, EMBEDDING = "token alone", "map of the embedding"  # the paper's non-contextual choice, and one that was fitted
CHOICES = (ORACLE, RECORDED, ALONE, EMBEDDING, STATIC)
AT_ONCE = 4  # windows of a recording: 190 MB of the default model's neurons


def wanted(sizes: Sizes) -> list[tuple[str, float]]:
    """List (choice, density): the oracle at all densities, the others at a few."""
    return [(by, share) for by in CHOICES for share in (sizes.densities if by == ORACLE else sizes.few)]


@lru_cache(maxsize=1)
def fitted(sizes: Sizes, name: str, chosen_by: str, seed: int) -> NeuronSelector:
    """Fit a selector on the calibration windows if it needs text; consecutive densities share it."""
    of = subject(sizes, name, seed)
    selectors = {ORACLE: Oracle, ALONE: TokenAlone, EMBEDDING: FromEmbedding, STATIC: Static}
    return selectors[chosen_by]().fit(of.model, of.calibration)


def keep_neurons(sizes: Sizes, name: str, chosen_by: str, density: float, seed: int) -> Tables:
    """Measure the perplexity with this fraction of every block's neurons."""
    if chosen_by == RECORDED:
        row = recorded(sizes, name, density, seed)
    else:
        row = selected_row(subject(sizes, name, seed), fitted(sizes, name, chosen_by, seed), density)
    return {"neurons": [row | {"chosen_by": chosen_by}]}


def recorded(sizes: Sizes, name: str, density: float, seed: int) -> Row:
    """Test like the paper: the second pass has only neurons that mattered in a dense pass. A few windows at a time."""
    of = subject(sizes, name, seed)
    rows = []
    for some in of.evaluation.split(AT_ONCE):
        rows.append(selected_row(replace(of, evaluation=some), Recorded().fit(of.model, some), density))
    return joined(rows)


def every(n: int) -> Callable[[PreTrainedModel], AbstractContextManager]:
    """Skip every n-th block: the n-th, the 2n-th, ..."""
    return lambda model: skipping(model, range(n - 1, len(blocks(model)), n))


WAYS = {
    "attention and MLP in parallel": halves_in_parallel,
    "two blocks in parallel": pairs_in_parallel,
    "every fourth block skipped": every(4),
    "every second block skipped": every(2),
}


def change(sizes: Sizes, name: str, seed: int) -> Tables:
    """Return one row per block of the dense model: medians over the tokens of all evaluation windows."""
    of = subject(sizes, name, seed)
    found = slow_change(of.model, of.evaluation)
    medians = {
        "cosine": found.cosine.median(1).values,
        "size_ratio_attention": found.attention.median(1).values,
        "size_ratio_mlp": found.mlp.median(1).values,
    }
    rows = []
    for block in range(len(found.cosine)):
        row = {"model": name, "block": block}
        rows.append(row | {key: round(values[block].item(), 4) for key, values in medians.items()})
    return {"slow_change": rows}


def changed(sizes: Sizes, name: str, way: str, seed: int) -> Tables:
    """Measure the perplexity of the model altered in one of the WAYS, without training."""
    of = subject(sizes, name, seed)
    with WAYS[way](of.model):
        return {"depth": [loss_row(of) | {"way": way}]}


def batch_union(sizes: Sizes, name: str, density: float, seed: int) -> Tables:
    """Return one row per batch size: the fraction of neurons that any of B windows keeps at a position, by group.

    The windows come from different parts of the text, like independent requests. Mean over blocks and positions.
    """
    of, largest = subject(sizes, name, seed), max(sizes.batches)
    keep = torch.stack([needed(importance_of(of.model, ids), density) for ids in of.evaluation[:largest]])
    rows = []
    for batch in sizes.batches:
        shares = [group.any(0).float().mean().item() for group in keep.split(batch) if len(group) == batch]
        rows.append({"model": name, "density": density, "batch": batch, "shares": [round(each, 4) for each in shares]})
    return {"batch": rows}


def needed(importance: Float[Tensor, "L N F"], density: float) -> Bool[Tensor, "L N F"]:
    """Mark the most important neurons of each token; a neuron that is zero, as after a ReLU, is never marked."""
    each, n = importance.flatten(0, 1), importance.shape[-1]
    return keep_highest(each, n - n_kept(density, n)).view(importance.shape) & (importance > 0)


GRIDS = {"4 bits per row": Quantization(4), "3 bits in groups of 32": Quantization(3, 32)}


def rounded(sizes: Sizes, name: str, grid: str, density: float, seed: int) -> Tables:
    """Measure the perplexity with rounded weights, with all neurons (density 1) or some of them by the oracle."""
    of = on_grid(sizes, name, grid, seed)
    row = loss_row(of) | {"density": 1.0} if density == 1 else selected_row(of, Oracle(), density)
    return {"rounded": [row | {"grid": grid}]}


@lru_cache(maxsize=1)
def on_grid(sizes: Sizes, name: str, grid: str, seed: int) -> Subject:
    """Copy the model and round the weights of its blocks to nearest."""
    of = subject(sizes, name, seed)
    return Subject(name, _rounded(of.model, GRIDS[grid]), of.calibration, of.evaluation)


@torch.no_grad()
def _rounded(model: PreTrainedModel, quantization: Quantization) -> PreTrainedModel:
    copy = deepcopy(model)
    for layer in layers_of(copy):
        weight = weight_of(layer.module)
        weight.copy_(quantization.grid(weight).round(weight))
    return copy
