"""SparseGPT, with and without a refit of its weights, on the windows and tasks of the Wanda experiment.

Frantar, Alistarh, 2023. https://arxiv.org/abs/2301.00774. The paper's questions at the scale of a laptop: patterns and
sparsities here; choices of the method, errors by layer, rounding, successors and cost in the other modules.

`course reproduce wanda` measured the rows of the dense model, magnitude and Wanda. `tables()` joins all results, after
it has checked that they were measured on the same windows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common import benchmarks
from course_lib.lessons.common.benchmarks import curve_perplexity, model_rows
from course_lib.lessons.common.results import load_measured
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model
from course_lib.pruning.allocation.base import UNIFORM, Allocation
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit
from course_lib.pruning.methods.sparse_swaps import SparseSwaps
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.report import PruneReport
from course_lib.pruning.sequential import prune_model
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
PARTS = ("sparsegpt_choices", "sparsegpt_layers", "sparsegpt_rounded", "sparsegpt_successors", "sparsegpt_seconds")


@dataclass(frozen=True)
class Sizes:
    """The sizes of the Wanda experiment, so that rows can be compared."""

    shared: benchmarks.Sizes = field(default_factory=benchmarks.Sizes)
    n_blocks: int | None = None  # only so many blocks from the start, for a quick run


QUICK = Sizes(benchmarks.QUICK, 1)


def steps(sizes: Sizes) -> list[Step]:
    plan = [
        Step(f"{method} {pattern}", partial(table_row, sizes, method, pattern))
        for pattern in PATTERNS
        for method in NEW
    ]
    for sparsity in sizes.shared.sparsities:
        plan += [Step(f"sweep: {m} {sparsity:.0%}", partial(sweep_point, sizes, m, sparsity)) for m in NEW]
    return plan


def tables() -> Tables:
    """Load the stored tables of this lesson; the dense, magnitude and Wanda rows of the Wanda experiment come first.

    Raises:
        ValueError: when they were measured with different sizes or seeds, so that their rows cannot be compared.
    """
    main, wanda = load_measured("sparsegpt"), load_measured("wanda")
    parts = [load_measured("sparsegpt", part) for part in PARTS]
    for part in (main, *parts):
        if part["sizes"].get("shared", wanda["sizes"]) != wanda["sizes"] or part["seed"] != wanda["seed"]:
            raise ValueError(
                f"got results of {part['experiment']} and wanda with different sizes or seeds; expected the same "
                f"windows for both. Run `course reproduce wanda` and `course reproduce {part['experiment']}` again."
            )
    joined = {name: wanda["tables"][name] + rows for name, rows in main["tables"].items()}
    return joined | {name: rows for part in parts for name, rows in part["tables"].items()}


def pattern_of(method: str, name: str) -> Pattern:
    """Return the pattern called "50%", with the comparison group of the method's paper, or an N:M pattern."""
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
    """Load the model and prune it, with calibration windows of Wikipedia."""
    model, tokenizer = load(sizes)
    ids = windows("wikipedia", n_windows, sizes.shared.length, tokenizer, seed=seed)
    return model, tokenizer, prune_model(model, pruner, ids, progress=False, allocation=allocation)


def table_row(sizes: Sizes, method: str, pattern: str, seed: int) -> Tables:
    """Measure one model of the main table: perplexity on two domains, and every task."""
    label = {"method": method, "pattern": pattern}
    model, tokenizer, _ = pruned(sizes, seed, METHODS[method](pattern_of(method, pattern)), sizes.shared.calibration)
    return model_rows(label, model, tokenizer, sizes.shared, seed)


def curve_point(
    sizes: Sizes,
    pruner: LayerPruner,
    seed: int,
    n_windows: int | None = None,
    sample: int = 0,
    allocation: Allocation = UNIFORM,
) -> dict[str, float]:
    """Measure the perplexity after pruning on the windows of the curves; each sample has its own calibration seed."""
    n_windows = n_windows or sizes.shared.curve_calibration
    model, tokenizer, _ = pruned(sizes, seed + sample, pruner, n_windows, allocation)
    return curve_perplexity(sizes.shared, model, tokenizer, seed)


def sweep_point(sizes: Sizes, method: str, sparsity: float, seed: int) -> Tables:
    pruner = METHODS[method](Unstructured(sparsity, per=USUAL_GROUP[method]))
    return {"sweep": [{"method": method, "sparsity": sparsity} | curve_point(sizes, pruner, seed)]}


EXPERIMENT = Experiment("SparseGPT and two successors on the default model", Sizes(), QUICK, steps)
