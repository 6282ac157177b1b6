"""SparseGPT and two successors on the default model, in the windows and tasks of the Wanda experiment.

Frantar, Alistarh, 2023. https://arxiv.org/abs/2301.00774. The paper's questions at the scale of a laptop: patterns,
sparsities, block sizes, calibration sizes, which layers are sensitive, what it costs, and pruning joint with rounding.
Refit keeps SparseGPT's mask and finds the best weights on it; SparseSwaps looks for a better mask first, at several
times the cost, and so is measured at two patterns only.

Dense, magnitude and Wanda rows are those of `course reproduce wanda`: `tables()` joins the two, where both were
measured with the same windows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common import benchmarks
from course_lib.lessons.common.benchmarks import curve_perplexity, model_rows
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.sparsegpt.measure import relative_error
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import blocks, by_block, layers_of, linears, load_model, weight_of
from course_lib.pruning.allocation.base import UNIFORM, Allocation, Scan
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.block_inputs import first_inputs
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit, refit
from course_lib.pruning.methods.sparse_swaps import SparseSwaps
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.report import PruneReport
from course_lib.pruning.sequential import collect_and_advance, prune_model
from course_lib.quantization.gptq import RoundToNearest, gptq
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import dense_bytes, sparse_bytes
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured

METHODS: dict[str, Callable[[Pattern], LayerPruner]] = {
    "magnitude": Magnitude,
    "wanda": Wanda,
    "sparsegpt": SparseGPT,
    "sparsegpt + refit": partial(Refit, chooser=SparseGPT),
    "swaps + refit": partial(Refit, chooser=SparseSwaps),
}
NEW = ("sparsegpt", "sparsegpt + refit")  # magnitude and Wanda are measured by the Wanda experiment
USUAL_GROUP = {
    "magnitude": "layer",
    "wanda": "row",
    "sparsegpt": "layer",
    "sparsegpt + refit": "layer",
    "swaps + refit": "row",
}
PATTERNS = ("50%", "4:8", "2:4")
# On the windows of the curves, where the sweep has the other methods at 50 %.
SUCCESSORS = (("swaps + refit", "50%"), *((m, "2:4") for m in ("wanda", *NEW, "swaps + refit")))
THIRDS = ("early", "middle", "late")
ROUNDED: dict[str, Callable[[int | None], LayerPruner]] = {
    "4 bits": lambda group: gptq(Quantization(4, group)),
    "3 bits": lambda group: gptq(Quantization(3, group)),
    "3 bits, to nearest": lambda group: RoundToNearest(quantization=Quantization(3, group)),
    "50% + 4 bits": lambda group: SparseGPT(quantization=Quantization(4, group)),
    "2:4 + 4 bits": lambda group: SparseGPT(NofM(2, 4), quantization=Quantization(4, group)),
}


@dataclass(frozen=True)
class Sizes:
    """As in the Wanda experiment, so that rows compare, and what is only measured here."""

    shared: benchmarks.Sizes = field(default_factory=benchmarks.Sizes)
    block_sizes: tuple[int, ...] = (1, 16, 128, 512, 1536)  # the last holds all columns of every layer
    groups: tuple[int | None, ...] = (None, 64)  # columns that share a scale
    error_windows: int = 8
    seconds_windows: int = 32
    n_blocks: int | None = None  # the first blocks of the model alone, to see that every step works


QUICK = Sizes(benchmarks.QUICK, (1, 1536), (64,), 16, 2, 3)


def steps(sizes: Sizes) -> list[Step]:
    """All the work, in pieces of at most a quarter of an hour. Those that are timed come last."""
    plan = [
        Step(f"{method} {pattern}", partial(table_row, sizes, method, pattern))
        for pattern in PATTERNS
        for method in NEW
    ]
    for sparsity in sizes.shared.sparsities:
        plan += [Step(f"sweep: {m} {sparsity:.0%}", partial(sweep_point, sizes, m, sparsity)) for m in NEW]
    plan += [Step(f"block size {size}", partial(block_point, sizes, size)) for size in sizes.block_sizes]
    for n, n_samples in sizes.shared.calibration_curve:
        plan += [
            Step(f"calibration: {n} windows, sample {sample}", partial(calibration_point, sizes, n, sample))
            for sample in range(n_samples)
        ]
    for method, pattern in SUCCESSORS:
        plan.append(Step(f"successor: {method} {pattern}", partial(successor, sizes, method, pattern)))
    for pattern in ("50%", "2:4"):
        plan += [Step(f"third: {third} {pattern}", partial(third_point, sizes, third, pattern)) for third in THIRDS]
    plan += [Step(f"layer errors: {pattern}", partial(layer_errors, sizes, pattern)) for pattern in ("50%", "2:4")]
    for group in sizes.groups:
        plan += [Step(f"rounded: {name}, group {group}", partial(rounded, sizes, name, group)) for name in ROUNDED]
    return plan + [
        Step(f"seconds: {method} {pattern}", partial(seconds, sizes, method, pattern))
        for pattern in ("50%", "2:4")
        for method in ("wanda", "sparsegpt")
    ]


def tables() -> Tables:
    """This experiment's committed tables, with the dense, magnitude and Wanda rows of the Wanda experiment before them.

    Raises:
        ValueError: when the two were measured with different sizes or seeds, so that their rows do not compare.
    """
    here, there = load_measured("sparsegpt"), load_measured("wanda")
    if here["sizes"]["shared"] != there["sizes"] or here["seed"] != there["seed"]:
        raise ValueError(
            "got results of sparsegpt and wanda with different sizes or seeds; expected the same windows for both. "
            "Run `course reproduce wanda` and `course reproduce sparsegpt` again."
        )
    joined = ("perplexity", "zero_shot", "zero_shot_mean", "sweep")
    return {name: (there["tables"][name] if name in joined else []) + rows for name, rows in here["tables"].items()}


def pattern_of(method: str, name: str) -> Pattern:
    """ "50%" in the groups that the method's paper compares within, or kept N:M."""
    if name.endswith("%"):
        return Unstructured(float(name[:-1]) / 100, per=USUAL_GROUP[method])
    kept, size = map(int, name.split(":"))
    return NofM(kept, size)


def load(sizes: Sizes) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    model, tokenizer = load_model()
    if sizes.n_blocks:
        model.model.layers = model.model.layers[: sizes.n_blocks]
    return model, tokenizer


def pruned(
    sizes: Sizes, seed: int, pruner: LayerPruner, n_windows: int, allocation: Allocation = UNIFORM
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, PruneReport]:
    """A fresh model, pruned with calibration windows of Wikipedia."""
    model, tokenizer = load(sizes)
    ids = windows("wikipedia", n_windows, sizes.shared.length, tokenizer, seed=seed)
    return model, tokenizer, prune_model(model, pruner, ids, progress=False, allocation=allocation)


def table_row(sizes: Sizes, method: str, pattern: str, seed: int) -> Tables:
    """One model of the main table: perplexity on two domains, and every task."""
    label = {"method": method, "pattern": pattern}
    model, tokenizer, _ = pruned(sizes, seed, METHODS[method](pattern_of(method, pattern)), sizes.shared.calibration)
    return model_rows(label, model, tokenizer, sizes.shared, seed)


def successor(sizes: Sizes, method: str, pattern: str, seed: int) -> Tables:
    """One more method on the windows of the curves."""
    row = curve_point(sizes, METHODS[method](pattern_of(method, pattern)), seed)
    return {"successors": [{"method": method, "pattern": pattern} | row]}


def curve_point(
    sizes: Sizes,
    pruner: LayerPruner,
    seed: int,
    n_windows: int | None = None,
    sample: int = 0,
    allocation: Allocation = UNIFORM,
) -> dict[str, float]:
    """Perplexity after pruning, on the windows of the curves. Other samples calibrate with other seeds."""
    n_windows = n_windows or sizes.shared.curve_calibration
    model, tokenizer, _ = pruned(sizes, seed + sample, pruner, n_windows, allocation)
    return curve_perplexity(sizes.shared, model, tokenizer, seed)


def sweep_point(sizes: Sizes, method: str, sparsity: float, seed: int) -> Tables:
    pruner = METHODS[method](Unstructured(sparsity, per=USUAL_GROUP[method]))
    return {"sweep": [{"method": method, "sparsity": sparsity} | curve_point(sizes, pruner, seed)]}


def block_point(sizes: Sizes, block_size: int, seed: int) -> Tables:
    """SparseGPT at 50 %, choosing its mask for so many columns at a time."""
    return {"block_size": [{"block_size": block_size} | curve_point(sizes, SparseGPT(block_size=block_size), seed)]}


def calibration_point(sizes: Sizes, n_windows: int, sample: int, seed: int) -> Tables:
    """SparseGPT at 50 % with few or many windows; what it is evaluated on stays the same."""
    label = {"n_windows": n_windows, "sample": sample, "calibration_tokens": n_windows * sizes.shared.length}
    return {"calibration": [label | curve_point(sizes, SparseGPT(), seed, n_windows, sample)]}


@dataclass(frozen=True)
class Spared(Allocation):
    """Some layers lose nothing; the others lose what the pruner's pattern says."""

    layers: tuple[str, ...]

    def check(self, pattern: Pattern) -> None:
        return

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        return dict.fromkeys(self.layers, 0.0)

    def pattern(self, pattern: Pattern, sparsity: float) -> Pattern:
        return Unstructured(sparsity)


def third_point(sizes: Sizes, third: str, pattern: str, seed: int) -> Tables:
    """SparseGPT on one third of the blocks, the others dense."""
    model_blocks = blocks(load(sizes)[0])
    n_blocks = len(model_blocks)
    first, last = (n_blocks * (THIRDS.index(third) + i) // 3 for i in (0, 1))
    others = [i for i in range(n_blocks) if not first <= i < last]
    spared = Spared(tuple(f"blocks.{i}.{name}" for i in others for name in linears(model_blocks[i])))
    label = {"third": third, "pattern": pattern, "first_block": first, "last_block": last - 1}
    pruner = SparseGPT(pattern_of("sparsegpt", pattern))
    return {"thirds": [label | curve_point(sizes, pruner, seed, allocation=spared)]}


@torch.inference_mode()
def layer_errors(sizes: Sizes, pattern: str, seed: int) -> Tables:
    """Relative squared error of every layer of the dense model, on the inputs that it is calibrated with.

    All within rows, so that the methods have the same freedom; "refit" has the best weights on SparseGPT's mask.
    """
    model, tokenizer = load(sizes)
    ids = windows("wikipedia", sizes.error_windows, sizes.shared.length, tokenizer, seed=seed)
    batches, rows = first_inputs(model, ids), []
    within = Unstructured(0.5) if pattern == "50%" else pattern_of("sparsegpt", pattern)
    for layers in by_block(layers_of(model)).values():
        grams = collect_and_advance(layers, batches, "matrix", PruneReport(ids.numel()))
        for layer in layers:
            weight, gram = weight_of(layer.module), grams.pop(layer.name)
            solved = SparseGPT(within).prune(weight, gram)
            solutions = {
                "magnitude": Magnitude(within).prune(weight, gram),
                "wanda": Wanda(within).prune(weight, gram),
                "sparsegpt": solved,
                "refit": refit(weight, solved != 0, gram),
            }
            label = {"pattern": pattern, "layer": layer.name}
            rows.append(
                label | {method: relative_error(weight, solution, gram) for method, solution in solutions.items()}
            )
    return {"layer_errors": rows}


def rounded(sizes: Sizes, name: str, group: int | None, seed: int) -> Tables:
    """Perplexity and bytes of the blocks' matrices with few bits a weight, with and without zeros."""
    pruner = ROUNDED[name](group)
    model, tokenizer, report = pruned(sizes, seed, pruner, sizes.shared.curve_calibration)
    weights = [weight_of(module) for block in blocks(model) for module in linears(block).values()]
    label = {"name": name, "group": group, "bits": pruner.quantization.bits, "sparsity": report.total_sparsity}
    label["bytes"] = sum(stored_bytes(weight, pruner.quantization, pruner.pattern.sparsity) for weight in weights)
    label["bits_a_weight"] = 8 * label["bytes"] / sum(weight.numel() for weight in weights)
    return {"rounded": [label | curve_perplexity(sizes.shared, model, tokenizer, seed)]}


def stored_bytes(weight: torch.Tensor, quantization: Quantization, sparsity: float) -> int:
    """With a bitmap where weights were pruned, without one where none was."""
    rows, columns = weight.shape
    if not sparsity:
        return dense_bytes(rows, columns, quantization.bits, quantization.group)
    n_stored = rows * columns - round(rows * columns * sparsity)
    return sparse_bytes(rows, columns, n_stored, quantization.bits, quantization.group)


def seconds(sizes: Sizes, method: str, pattern: str, seed: int) -> Tables:
    """Where the time of pruning goes, and what was held at most. To be measured on a machine left alone."""
    pruner = METHODS[method](pattern_of(method, pattern))
    _, _, report = pruned(sizes, seed, pruner, sizes.seconds_windows)
    label: dict[str, Any] = {"method": method, "pattern": pattern, "calibration_tokens": report.n_tokens}
    return {"seconds": [label | report.seconds | {f"bytes_{what}": n for what, n in report.bytes.items()}]}


EXPERIMENT = Experiment("SparseGPT and two successors on the default model", Sizes(), QUICK, steps)
