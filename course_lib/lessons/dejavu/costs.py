"""What contextual sparsity costs and saves: seconds, weights that a token reads, and products that are computed.

Dimension key: B blocks, T tokens, n windows of N tokens, D width, r rank, F neurons.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from course_lib.contextual.execute.choices import everything, known, oracle_sets, predicted
from course_lib.contextual.execute.decode import Decoder
from course_lib.contextual.execute.gathered import by_rows, dense
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.race import Lap, race
from course_lib.contextual.execute.room import Room
from course_lib.contextual.execute.union import union_share
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selector import check_density, n_kept
from course_lib.contextual.sizes import sizes_of
from course_lib.models import architecture, blocks, head, heads, weight_of

DENSITIES = (1.0, 0.75, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)
PRODUCTS = {"dot": 0, "mv": 0, "mm": 0, "bmm": 0, "addmv": 1, "addmm": 1, "baddbmm": 1}  # place of the first factor


@dataclass(frozen=True)
class Timing:
    """Median seconds for one token through all MLPs."""

    dense: float
    gathered: dict[float, float]  # by density
    n_bytes: int  # of the dense weights

    def speedup(self, density: float) -> float:
        """How many times as fast as the dense MLPs."""
        return self.dense / self.gathered[density]


@torch.no_grad()
def time_gathered_mlps(
    model: PreTrainedModel, densities: Sequence[float], repetitions: int = 7, seed: int = 0
) -> Timing:
    """Time dense and gathered MLPs in turn, so that a busy moment affects all of them; random neurons in each block.

    Raises:
        ValueError: for a density outside (0, 1].
    """
    for density in densities:
        check_density(density)
    generator, room = torch.Generator().manual_seed(seed), Room()  # blocks run one after the other
    mlps = [NeuronMajor.of(each, room) for each in neurons_of(model)]
    token = torch.randn(mlps[0].width, generator=generator)
    orders = [torch.randperm(mlp.n, generator=generator) for mlp in mlps]

    def run_gathered(density: float) -> None:
        for mlp, order in zip(mlps, orders, strict=True):
            by_rows(token, mlp, order[: n_kept(density, mlp.n)])

    def run_dense() -> None:
        for mlp in mlps:
            dense(token, mlp)

    ways: dict[str | float, Callable[[], None]] = {"dense": run_dense}
    ways |= {density: lambda density=density: run_gathered(density) for density in densities}
    seconds: dict[str | float, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions + 1):
        for name, run in ways.items():
            seconds[name].append(_seconds(run))
    medians = {name: median(values[1:]) for name, values in seconds.items()}  # the first run warms up
    return Timing(medians.pop("dense"), medians, sum(mlp.n_bytes for mlp in mlps))


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def race_decoders(
    model: PreTrainedModel,
    windows: Int[Tensor, "n N"],
    predictors: Sequence[tuple[Float[Tensor, "r D"], Float[Tensor, "F r"]]],
    density: float,
) -> list[Lap]:
    """Decode windows with all neurons, with neurons that are known without cost, and with predicted neurons."""
    modules = [_module(*matrices) for matrices in predictors]
    decoder = Decoder(model, length=windows.shape[1])
    ways = {
        "all neurons": lambda ids: everything,
        f"{100 * density:.0f} % known": lambda ids: known(oracle_sets(decoder, ids, density)),
        f"{100 * density:.0f} % predicted": lambda ids: predicted(modules, density),
    }
    return race(decoder, windows, ways)


def _module(into: Float[Tensor, "r D"], out: Float[Tensor, "F r"]) -> Predictor:
    module = Predictor(into.shape[1], len(into), len(out))
    module.into.weight.data, module.out.weight.data = into, out
    return module.requires_grad_(False)


class WeightsRead(NamedTuple):
    """Sizes of the MLPs, and the numbers that a token reads outside of them: attention, KV cache and LM head."""

    width: int
    neurons: int
    blocks: int
    others: int


def weights_per_token(model: PreTrainedModel, n_cached: int) -> WeightsRead:
    """Count the numbers that a decoding step reads at batch size 1 with `n_cached` tokens in the cache."""
    sizes, of_heads = sizes_of(model), heads(model)
    attention = sum(
        weight_of(block.get_submodule(name)).numel()
        for block in blocks(model)
        for name in dict.fromkeys(architecture(block).attention)
    )
    cache = 2 * n_cached * of_heads.n_key_value * of_heads.size * sizes.n_blocks
    return WeightsRead(sizes.width, sizes.n_neurons, sizes.n_blocks, attention + cache + weight_of(head(model)).numel())


def measure_unions(
    kept: Mapping[str, Bool[Tensor, "B T F"]], batch_sizes: Sequence[int], seed: int = 0
) -> dict[str, list[float]]:
    """The fraction of the neurons that at least one of n tokens keeps, for each n; the tokens are in random order.

    Raises:
        ValueError: for a batch size above the number of tokens.
    """
    generator, unions = torch.Generator().manual_seed(seed), {}
    for name, masks in kept.items():
        mixed = masks[:, torch.randperm(masks.shape[1], generator=generator)]
        unions[name] = [fmean(union_share(mask, n) for mask in mixed) for n in batch_sizes]
    return unions


class ProductCount(TorchDispatchMode):
    """Counts products of two numbers, in products of matrices and vectors and elementwise."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name in PRODUCTS:
            left, right = args[PRODUCTS[name] :][:2]
            self.n += left.numel() * (right.shape[-1] if right.ndim > 1 else 1)
        elif name == "mul":
            self.n += out.numel()
        elif "embedding_bag" in name:
            self.n += args[1].numel() * args[0].shape[1]
        return out


@contextmanager
def count_products() -> Iterator[ProductCount]:
    """`with count_products() as products:` and after it `products.n`."""
    with ProductCount() as products:
        yield products
