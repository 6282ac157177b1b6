"""Greedy densities for each input of each block. Liu and others, TEAL, 2024, https://arxiv.org/abs/2408.14690

Dimension key: P places (inputs that some linears of a block share), p those of one block, Q levels, S steps, L blocks,
n windows of N tokens.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.fitting.threshold import threshold_at
from course_lib.contextual.inputs.teal import Teal, reading
from course_lib.hooks import hooking
from course_lib.models import Layer, blocks, layers_of, weight_of
from course_lib.settings import is_real


@dataclass(frozen=True, eq=False)
class GreedyTeal(Teal):
    """TEAL with its own density for every place: algorithm 1, block by block.

    The search starts with all entries. Each step removes a fraction `step` of the block's weights at one input: where
    the block's output for dense inputs changes least. For input i, which F_i of the block's F weights read, this
    removes a fraction F / F_i · step of its entries.
    Deviation: matrices that read one input share its density, since they share its threshold; the authors' code
    (teal/greedyopt.py) has a separate density for each of the seven matrices.
    Deviation: the error is the norm over all tokens; that code takes the last quarter of a window, the norm of each
    channel over tokens, and the mean of these norms.

    Args:
        densities: the densities of each block after 0, 1, ... steps.
    """

    step: float
    densities: Float[Tensor, "L S p"]

    @classmethod
    def fit_levels(
        cls, plain: Teal, model: PreTrainedModel, windows: Int[Tensor, "n N"], lowest: float = 0.5, step: float = 0.025
    ) -> "GreedyTeal":
        """Search levels down to a density of `lowest`; the thresholds of `plain` are already fitted.

        Raises:
            ValueError: the step or density is outside (0, 1), some number of steps leaves an input without entries,
                there are no windows, or the model outputs NaN.
        """
        if not (is_real(step) and is_real(lowest)) or not 0 < step < 1 or not 0 < lowest < 1:
            raise ValueError(f"got step {step!r} down to density {lowest!r}; expected both above 0 and below 1.")
        if windows.ndim != 2 or windows.numel() == 0:
            raise ValueError(f"got windows of shape {tuple(windows.shape)}; expected (n, tokens).")
        found, n_steps = [], math.ceil((1 - lowest) / step - 1e-9)
        quantiles = dict(zip(plain.places, plain.quantiles, strict=True))
        with hooking() as handles:
            for block in blocks(model):
                search = _Search([layer for layer in layers_of(model) if layer.block is block], quantiles)
                handles.append(block.register_forward_hook(_searching(search, n_steps, step, found), with_kwargs=True))
            with torch.no_grad():
                model.base_model(windows.to(model.device), use_cache=False)
        return cls(plain.places, plain.quantiles, step, torch.stack(found))

    def thresholds(self, density: float) -> dict[str, float]:
        """Return the thresholds for the densities of all places, interpolated linearly between two steps.

        Raises:
            ValueError: the density is below the one after the last step.
        """
        place = (1 - density) / self.step
        last = self.densities.shape[1] - 1
        if place > last + 1e-6:
            raise ValueError(f"got density {density}; levels were found down to {1 - last * self.step:.3f}. Fit more.")
        low = min(int(place), last - 1)
        own = torch.lerp(self.densities[:, low], self.densities[:, low + 1], min(place - low, 1.0)).flatten()
        return _thresholds(dict(zip(self.places, self.quantiles, strict=True)), own.tolist())


class _Search:
    """One block whose inputs are sparsified by the thresholds `above`; the block's own hooks do not run."""

    def __init__(self, layers: list[Layer], quantiles: dict[str, Tensor]) -> None:
        self.layers, self.quantiles = layers, quantiles
        self.places = [layer.name for layer in layers if layer.is_first]
        weights = dict.fromkeys(self.places, 0)
        for layer in layers:
            weights[layer.group[0]] += weight_of(layer.module).numel()
        self.shares = [n / sum(weights.values()) for n in weights.values()]

    def output(self, block: nn.Module, args: tuple, kwargs: dict, densities: list[float]) -> Tensor:
        """Return the output of the block with these densities."""
        above = _thresholds({name: self.quantiles[name] for name in self.places}, densities)
        with reading(self.layers, lambda layer, x: x.masked_fill(x.abs() <= above[layer.group[0]], 0)):
            return _hidden(block.forward(*args, **kwargs))


def _searching(search: _Search, n_steps: int, step: float, found: list[Tensor]) -> Callable:
    """Return a hook that searches the levels of a block when the dense pass reaches it."""

    def hook(block: nn.Module, args: tuple, kwargs: dict, output: Tensor | tuple) -> None:
        dense, densities, path = _hidden(output), [1.0] * len(search.places), [[1.0] * len(search.places)]
        for _ in range(n_steps):
            errors = {}
            for index, share in enumerate(search.shares):
                tried = [*densities]
                tried[index] -= step / share
                if tried[index] > 1e-6:  # nothing would be left of this input
                    errors[index] = (search.output(block, args, kwargs, tried) - dense).norm().item(), tried
            if not errors or any(math.isnan(error) for error, _ in errors.values()):
                got = "NaN in the block's output" if errors else f"step {step}, after which no input has entries left"
                raise ValueError(
                    f"got {got}; expected numbers, and a density of at least one step at some input. Raise `lowest`, "
                    "take smaller steps, or look for NaN in the model."
                )
            densities = min(errors.values(), key=lambda pair: pair[0])[1]
            path.append(densities)
        found.append(torch.tensor(path))

    return hook


def _thresholds(quantiles: dict[str, Tensor], densities: list[float]) -> dict[str, float]:
    return {name: threshold_at(quantiles[name], each) for name, each in zip(quantiles, densities, strict=True)}


def _hidden(output: Tensor | tuple) -> Tensor:
    return output[0] if isinstance(output, tuple) else output
