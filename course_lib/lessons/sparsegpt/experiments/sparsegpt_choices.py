"""Choices of SparseGPT: columns per mask, the amount of calibration text, and which transformer blocks are pruned."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.common import benchmarks
from course_lib.lessons.sparsegpt.experiments import sparsegpt
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import blocks, linears
from course_lib.pruning.allocation.base import Allocation, Scan
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.sparsity.patterns import Pattern, Unstructured

THIRDS = ("early", "middle", "late")


@dataclass(frozen=True)
class Sizes(sparsegpt.Sizes):
    """The numbers of columns whose mask is chosen together; the last one covers all columns of every layer."""

    block_sizes: tuple[int, ...] = (1, 16, 128, 512, 1536)


QUICK = Sizes(benchmarks.QUICK, 3, (1, 1536))


def steps(sizes: Sizes) -> list[Step]:
    plan = [Step(f"block size {size}", partial(block_point, sizes, size)) for size in sizes.block_sizes]
    for pattern in ("50%", "2:4"):
        plan += [Step(f"third: {third} {pattern}", partial(third_point, sizes, third, pattern)) for third in THIRDS]
    for n, n_samples in sizes.shared.calibration_curve:
        plan += [
            Step(f"calibration: {n} windows, sample {sample}", partial(calibration_point, sizes, n, sample))
            for sample in range(n_samples)
        ]
    return plan


def block_point(sizes: Sizes, block_size: int, seed: int) -> Tables:
    """Measure SparseGPT at 50 % with the mask chosen for so many columns together."""
    return {
        "block_size": [
            {"block_size": block_size} | sparsegpt.curve_point(sizes, SparseGPT(block_size=block_size), seed)
        ]
    }


def calibration_point(sizes: Sizes, n_windows: int, sample: int, seed: int) -> Tables:
    """Measure SparseGPT at 50 % with so many calibration windows; the evaluation set is always the same."""
    label = {"n_windows": n_windows, "sample": sample, "calibration_tokens": n_windows * sizes.shared.length}
    return {"calibration": [label | sparsegpt.curve_point(sizes, SparseGPT(), seed, n_windows, sample)]}


@dataclass(frozen=True)
class Spared(Allocation):
    """Keep some layers dense and prune the others with the pruner's pattern."""

    layers: tuple[str, ...]

    def check(self, pattern: Pattern) -> None:
        return

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        return dict.fromkeys(self.layers, 0.0)

    def pattern(self, pattern: Pattern, sparsity: float) -> Pattern:
        return Unstructured(sparsity)


def third_point(sizes: Sizes, third: str, pattern: str, seed: int) -> Tables:
    """Prune one third of the transformer blocks with SparseGPT and keep the others dense."""
    model_blocks = blocks(sparsegpt.load(sizes)[0])
    n_blocks = len(model_blocks)
    first, last = (n_blocks * (THIRDS.index(third) + i) // 3 for i in (0, 1))
    others = [i for i in range(n_blocks) if not first <= i < last]
    spared = Spared(tuple(f"blocks.{i}.{name}" for i in others for name in linears(model_blocks[i])))
    label = {"third": third, "pattern": pattern, "first_block": first, "last_block": last - 1}
    pruner = SparseGPT(sparsegpt.pattern_of("sparsegpt", pattern))
    return {"thirds": [label | sparsegpt.curve_point(sizes, pruner, seed, allocation=spared)]}


EXPERIMENT = Experiment("What SparseGPT was free to choose", Sizes(), QUICK, steps)
