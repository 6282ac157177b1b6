"""Activations of real models for the notebook of lesson 09: neurons, the residual stream, and the keys of a head.

Dimension key: L blocks, N windows, T tokens of all windows, D width, F neurons, S states of the residual stream, d size
of a head, M missing keys, P positions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.seen import Seen, look_through
from course_lib.contextual.selector import n_kept
from course_lib.lessons.common.verdicts import Effect, of_samples
from course_lib.models import architecture, blocks, heads, rotary_frequencies, weight_of
from course_lib.sparsity.ranking import keep_highest

LEFTOVER = 1e3  # a number that an answer may multiply by zero, and that would be seen in a key
Losses = Mapping[str, Mapping[float, Float[Tensor, "N"]]]  # by way to choose and fraction kept: the loss of each window
Recall = Callable[[Float[Tensor, "T F"], Float[Tensor, "D F"], Bool[Tensor, "T F"], Bool[Tensor, "T F"]], tuple]


@torch.no_grad()
def record_mlps(model: PreTrainedModel, windows: Int[Tensor, "N T"], numbers: Sequence[int]) -> list[Seen]:
    """Record the inputs and hidden values of the MLPs of some blocks, the tokens of all windows in one row.

    Raises:
        ValueError: for a block that the model does not have.
    """
    if not all(0 <= number < len(blocks(model)) for number in numbers):
        raise ValueError(f"got blocks {list(numbers)}; expected numbers from 0 to {len(blocks(model)) - 1}.")
    by_block: dict[int, list[Seen]] = {number: [] for number in numbers}

    def record(block: int, seen: Seen) -> None:
        if block in by_block:
            by_block[block].append(seen)

    look_through(model, windows, record)
    return [_joined(by_block[number]) for number in numbers]


def _joined(parts: list[Seen]) -> Seen:
    first = parts[0]
    rows = {name: torch.cat([getattr(part, name) for part in parts]) for name in ("x", "embedding", "hidden", "real")}
    ids = None if first.ids is None else torch.cat([part.ids for part in parts])
    return Seen(**rows, ids=ids, earlier={}, neurons=first.neurons, n_sequences=len(parts))


def importance(recorded: Seen) -> Float[Tensor, "T F"]:
    """|h_i| · ‖w_i‖: the length of the contribution of each neuron."""
    return recorded.neurons.importance(recorded.hidden)


def fraction_for(curve: Float[Tensor, "F"], energy: float) -> float:
    """The smallest fraction of the neurons that holds this fraction of the energy."""
    return min(int((curve < energy).sum()) + 1, len(curve)) / len(curve)


class Quality(NamedTuple):
    """Recall and energy of a set with this fraction of the neurons."""

    fraction: float
    recall: float
    energy: float


def keep_fraction(score: Float[Tensor, "T F"], fraction: float) -> Bool[Tensor, "T F"]:
    """Keep this fraction of each token's neurons, those with the highest scores."""
    return keep_highest(score, score.shape[1] - n_kept(fraction, score.shape[1]))


def score_predictions(
    scores: Mapping[str, Float[Tensor, "T F"]], recorded: Seen, fractions: Sequence[float], recall_and_energy: Recall
) -> dict[str, list[Quality]]:
    """Measure recall and energy of the neurons with the highest scores, for every way to score and every fraction."""
    hidden, down = recorded.hidden.double(), recorded.neurons.down.double()  # millions of squares are added
    active, quality = hidden != 0, {}
    for name, score in scores.items():
        quality[name] = []
        for fraction in fractions:
            recall, energy = recall_and_energy(hidden, down, active, keep_fraction(score, fraction))
            quality[name].append(Quality(fraction, float(recall), float(energy)))
    return quality


def recall_by_window(
    logits: Float[Tensor, "T F"], active: Bool[Tensor, "T F"], fraction: float, n_windows: int
) -> Float[Tensor, "N"]:
    """The fraction of the active neurons among the highest logits, window by window.

    Raises:
        ValueError: for tokens that cannot be divided into windows of equal length.
    """
    if len(logits) % n_windows:
        raise ValueError(f"got {len(logits)} tokens for {n_windows} windows; expected as many in each.")
    found, all_active = (
        each.reshape(n_windows, -1).sum(dim=1).double() for each in (active & keep_fraction(logits, fraction), active)
    )
    return found / all_active.clamp(min=1)


def loss_difference(better: Float[Tensor, "N"], worse: Float[Tensor, "N"]) -> Effect:
    """The loss of the second minus that of the first in nats per token, window by window."""
    return of_samples((worse - better).tolist())


@torch.no_grad()
def residual_stream(model: PreTrainedModel, windows: Int[Tensor, "N t"]) -> Float[Tensor, "S T D"]:
    """Record the residual stream in order: the embedding, then after attention and after the MLP of each block."""
    states: list[Tensor] = []
    handles = []
    for number, block in enumerate(blocks(model)):
        if number == 0:
            handles.append(block.register_forward_pre_hook(_record_input(states), with_kwargs=True))
        norm_before_mlp = block.get_submodule(architecture(block).norms[1])
        handles.append(norm_before_mlp.register_forward_pre_hook(_record_input(states), with_kwargs=True))
        handles.append(block.register_forward_hook(lambda _, __, output: states.append(_flat(_first(output)))))
    try:
        model.base_model(windows, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(states)


def _record_input(states: list[Tensor]) -> Callable[[nn.Module, tuple, dict], None]:
    return lambda _, args, kwargs: states.append(_flat(args[0] if args else kwargs["hidden_states"]))


def _first(output: Tensor | tuple) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _flat(hidden: Tensor) -> Float[Tensor, "T D"]:
    return hidden.reshape(-1, hidden.shape[-1])


class MissingKeys(NamedTuple):
    """The cache of a head that was skipped at some tokens; the rows of these tokens hold leftover numbers."""

    keys: Float[Tensor, "T d"]
    values: Float[Tensor, "T d"]
    position: Int[Tensor, "T"]
    missing: Int[Tensor, "M"]
    stored: Float[Tensor, "M D"]
    key_weight: Float[Tensor, "d D"]
    value_weight: Float[Tensor, "d D"]
    cos: Float[Tensor, "P d"]
    sin: Float[Tensor, "P d"]


@torch.no_grad()
def head_with_missing_keys(
    model: PreTrainedModel, block: int, head: int, ids: Int[Tensor, "T"], every: int
) -> tuple[tuple[Float[Tensor, "T d"], Float[Tensor, "T d"]], MissingKeys]:
    """Return keys and values of a key-value head, and its cache with every so many tokens missing, from the last."""
    names, size, inputs = architecture(blocks(model)[block]).attention, heads(model).size, []
    query, key, value = (blocks(model)[block].get_submodule(name) for name in names[:3])
    handle = query.register_forward_pre_hook(lambda _, args: inputs.append(args[0][0]))
    try:
        cache = model.base_model(ids[None], use_cache=True).past_key_values
    finally:
        handle.remove()
    keys, values = (tensor[0, head] for tensor in (cache.layers[block].keys, cache.layers[block].values))
    missing = torch.arange(len(ids) - 1, -1, -every).flip(0)
    rows = slice(head * size, (head + 1) * size)
    angle = torch.arange(len(ids))[:, None] * torch.cat([rotary_frequencies(model)] * 2)
    incomplete = MissingKeys(
        keys=keys.index_fill(0, missing, LEFTOVER),
        values=values.index_fill(0, missing, LEFTOVER),
        position=torch.arange(len(ids)),
        missing=missing,
        stored=inputs[0][missing],
        key_weight=weight_of(key)[rows],
        value_weight=weight_of(value)[rows],
        cos=angle.cos(),
        sin=angle.sin(),
    )
    return (keys, values), incomplete
