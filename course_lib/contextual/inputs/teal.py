"""TEAL: thresholds on the inputs of all linears. Liu and others, TEAL, 2024, https://arxiv.org/abs/2408.14690

TEAL does not select neurons: it zeros entries in the input of each matrix, and each zero skips a column. On a GPU, a
pass over a single token does not read the columns of entries below the threshold.

Dimension key: P places (inputs that some linears of a block share), Q levels, n windows of N tokens, B sequences, I
inputs and O outputs of a linear.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.execute.on_kernels import in_columns
from course_lib.contextual.fitting.threshold import Sample, check_quantiles, threshold_at
from course_lib.contextual.selector import check_density
from course_lib.contextual.sizes import refuse_mixture, run_through
from course_lib.hooks import calling, hooking
from course_lib.kernels.dispatch import kernel_for
from course_lib.models import Layer, blocks, layers_of, weight_of

Tokens = Literal["all", "last half"]


@dataclass(frozen=True, eq=False)
class Teal:
    """s(x) = x · 1[|x| > t] (section 4.1), where t is the (1 − density)-quantile of |x| at this place in calibration.

    Every place has the same density; for the paper's greedy densities see greedy_levels.py.

    Args:
        places: the first linear that reads each input, such as "blocks.3.mlp.gate_proj".
    """

    places: tuple[str, ...]
    quantiles: Float[Tensor, "P Q"]

    def __post_init__(self) -> None:
        check_quantiles(self.quantiles)

    @classmethod
    def fit(cls, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "Teal":
        """Compute the quantiles of |x| at every place of the dense model.

        Raises:
            ValueError: the model is of an unknown family or has experts, or there are no windows.
        """
        refuse_mixture(model)
        firsts = [layer for layer in layers_of(model) if layer.is_first]
        samples = {layer.name: Sample(seed) for seed, layer in enumerate(firsts)}
        with reading(firsts, lambda layer, x: samples[layer.name].add(x.abs())):
            run_through(model, calibration)
        return cls(tuple(samples), torch.stack([sample.quantiles() for sample in samples.values()]))

    def thresholds(self, density: float) -> dict[str, float]:
        """Return the threshold of each place."""
        return {name: threshold_at(row, density) for name, row in zip(self.places, self.quantiles, strict=True)}


class TealWatch:
    """Counts of the entries that were read at each place."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}
        self._all: dict[str, int] = {}
        self._tallies: dict[str, Tensor] = {}

    def count(self, place: str, n_kept: int, n_all: int) -> None:
        """Add the entries of a pass; the entries that a kernel counts are in its tally."""
        self._kept[place] = self._kept.get(place, 0) + n_kept
        self._all[place] = self._all.get(place, 0) + n_all

    def tally(self, place: str, device: torch.device) -> Int[Tensor, "1"]:
        """Return the count that a kernel adds to; the host waits for the GPU only when it reads the density."""
        return self._tallies.setdefault(place, torch.zeros(1, dtype=torch.long, device=device))

    @property
    def density(self) -> dict[str, float]:
        """The fraction of entries that were read, by place; tokens that were left dense count as well."""
        counted = {place: int(tally) for place, tally in self._tallies.items()}
        return {place: (kept + counted.get(place, 0)) / self._all[place] for place, kept in self._kept.items()}

    @property
    def mean_density(self) -> float:
        """The mean over places; NaN before the first token."""
        return sum(self.density.values()) / len(self._all) if self._all else math.nan


@contextmanager
def teal(model: PreTrainedModel, thresholds: Teal, density: float = 0.5, tokens: Tokens = "all") -> Iterator[TealWatch]:
    """Set the inputs of every linear to zero at or below the threshold, inside the `with` block; restore on exit.

    Args:
        tokens: "all"; or "last half", as in the authors' evaluation: in a pass of several tokens the first half stays
            dense, so half of the keys and values that the scored tokens attend to are exact.

    Raises:
        ValueError: the density is outside (0, 1], the thresholds are of another model, or `tokens` is unknown.
    """
    check_density(density)
    refuse_mixture(model)
    if not hasattr(thresholds, "places") or not callable(getattr(thresholds, "thresholds", None)):
        raise ValueError(f"got thresholds {thresholds!r}; expected those of a fit, Teal.fit(model, calibration).")
    layers = layers_of(model)
    if tuple(layer.name for layer in layers if layer.is_first) != thresholds.places:
        raise ValueError(
            f"got thresholds of {len(thresholds.places)} places, from {thresholds.places[:1]} on, which are not those "
            "of this model; expected Teal.fit(model, calibration) of the same one."
        )
    if tokens not in get_args(Tokens):
        raise ValueError(f"got tokens {tokens!r}; expected one of {', '.join(get_args(Tokens))}.")
    above, watch, shape = thresholds.thresholds(density), TealWatch(), []

    def begin(_: nn.Module, args: tuple, kwargs: dict) -> None:
        shape[:] = (args[0] if args else kwargs["hidden_states"]).shape[:2]

    def drop(layer: Layer, x: Tensor) -> Tensor | None:
        if products.kernel(layer, x):
            return None
        keep = ~(x.abs() <= above[layer.group[0]])  # keeps NaN, so that it stays visible in the output
        if tokens == "last half" and shape[1] > 1:
            keep.view(*shape, -1)[:, : shape[1] - shape[1] // 2] = True
        if layer.is_first:
            if keep.is_cuda:
                watch.tally(layer.name, keep.device).add_(keep.sum())
            watch.count(layer.name, 0 if keep.is_cuda else int(keep.sum()), keep.numel())
        return x.masked_fill(~keep, 0)

    products = _Products(above, watch)
    with hooking() as handles, reading(layers, drop), products.instead(layers):
        handles.append(blocks(model)[0].register_forward_pre_hook(begin, with_kwargs=True))
        yield watch


@contextmanager
def reading(layers: list[Layer], read: Callable[[Layer, Tensor], Tensor | None]) -> Iterator[None]:
    """Replace the input of each layer by the result of `read`, inside the `with` block; None leaves it unchanged."""

    def hook_of(layer: Layer) -> Callable:
        def hook(_: nn.Module, args: tuple) -> tuple | None:
            found = read(layer, args[0])
            return None if found is None else (found, *args[1:])

        return hook

    with hooking() as handles:
        for layer in layers:
            handles.append(layer.module.register_forward_pre_hook(hook_of(layer)))
        yield


class _Products:
    """Multiply one token with the kernel, which does not read the columns of small entries, instead of the linears."""

    def __init__(self, above: dict[str, float], watch: TealWatch) -> None:
        self.above, self.watch, self.n_hooks = above, watch, {}

    def kernel(self, layer: Layer, x: Float[Tensor, "*tokens I"]) -> ModuleType | None:
        """Return the kernel that multiplies x; None if x is not a single token, or if the linear has to multiply it."""
        # Another hook expects to be run before the entries are left out.
        if x.numel() != x.shape[-1] or len(layer.module._forward_pre_hooks) != self.n_hooks.get(layer.name):
            return None
        columns, threshold = weight_of(layer.module).T, self.above[layer.group[0]]
        return kernel_for("per_token.threshold_matvec", x.reshape(-1), columns, threshold=threshold)

    @contextmanager
    def instead(self, layers: list[Layer]) -> Iterator[None]:
        """Store weights by column, as the kernel reads them, inside the `with` block; do nothing if it cannot run."""
        weight = weight_of(layers[0].module)
        x, column = weight.new_empty(weight.shape[1]), weight.new_empty(weight.shape[1], 1)
        if kernel_for("per_token.threshold_matvec", x, column, threshold=0.0) is None:
            yield
            return
        with in_columns([layer.module for layer in layers]), ExitStack() as stack:
            for layer in layers:
                self.n_hooks[layer.name] = len(layer.module._forward_pre_hooks)
                tally = self.watch.tally(layer.name, weight.device) if layer.is_first else None
                stack.enter_context(calling(layer.module, self._forward(layer, layer.module.forward, tally)))
            yield

    def _forward(self, layer: Layer, plain: Callable, tally: Tensor | None) -> Callable:
        def forward(x: Float[Tensor, "*tokens I"]) -> Float[Tensor, "*tokens O"]:
            kernel = self.kernel(layer, x)
            if kernel is None:
                return plain(x)
            if tally is not None:
                self.watch.count(layer.name, 0, x.numel())
            columns, bias = weight_of(layer.module).T, layer.module.bias
            y = kernel.launch(x.reshape(-1), columns, self.above[layer.group[0]], tally)
            return (y if bias is None else y + bias).view(*x.shape[:-1], -1)

        return forward
