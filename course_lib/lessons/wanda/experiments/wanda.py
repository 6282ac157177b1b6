"""Wanda and magnitude pruning of the default model: patterns, sparsities, calibration sizes, comparison groups.

Sun, Liu, Bair, Kolter, 2023. https://arxiv.org/abs/2306.11695. The paper's questions at the scale of a laptop. As in
the paper, magnitude ranks over a layer and Wanda within each output, unless the comparison group is what is varied.
"""

from functools import partial

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.benchmarks import QUICK, Sizes, curve_perplexity, model_rows
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import PruneReport, prune_model
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured

METHODS = {"magnitude": Magnitude, "wanda": Wanda}
USUAL_GROUP = {"magnitude": "layer", "wanda": "row"}
GROUPS = {
    "layer": ("layer", 1),
    "(input, 1)": ("column", 1),
    "(input, 128)": ("column", 128),
    "(output, 1)": ("row", 1),
    "(output, 128)": ("row", 128),
}


def steps(sizes: Sizes) -> list[Step]:
    """List the steps, each of at most a few minutes."""
    plan = [Step("dense", partial(table_row, sizes, "dense", "dense"))]
    for pattern in ("50%", "4:8", "2:4"):
        plan += [Step(f"{method} {pattern}", partial(table_row, sizes, method, pattern)) for method in METHODS]
    plan.append(Step("sweep: dense", partial(sweep_point, sizes, "dense", 0.0)))
    for sparsity in sizes.sparsities:
        plan += [Step(f"sweep: {m} {sparsity:.0%}", partial(sweep_point, sizes, m, sparsity)) for m in METHODS]
    for n, n_samples in sizes.calibration_curve:
        plan += [
            Step(f"calibration: {n} windows, sample {sample}", partial(calibration_point, sizes, n, sample))
            for sample in range(n_samples)
        ]
    for group in GROUPS:
        plan += [Step(f"groups: {method} {group}", partial(group_point, sizes, method, group)) for method in METHODS]
    plan += [
        Step(f"seconds: {method} {pattern}", partial(seconds, sizes, method, pattern))
        for pattern in ("50%", "2:4")
        for method in METHODS
    ]
    return plan


def pattern_of(method: str, name: str) -> Pattern:
    if name == "50%":
        return Unstructured(0.5, per=USUAL_GROUP[method])
    kept, size = map(int, name.split(":"))
    return NofM(kept, size)


def pruned(
    sizes: Sizes, seed: int, method: str, pattern: Pattern, n_windows: int | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, PruneReport]:
    """Load the model and prune it, with calibration windows of Wikipedia."""
    model, tokenizer = load_model()
    ids = windows("wikipedia", n_windows or sizes.calibration, sizes.length, tokenizer, seed=seed)
    return model, tokenizer, prune_model(model, METHODS[method](pattern), ids, progress=False)


def table_row(sizes: Sizes, method: str, pattern: str, seed: int) -> Tables:
    """Measure one model of the main table: perplexity on two domains, and every task."""
    label = {"method": method, "pattern": pattern}
    if method == "dense":
        model, tokenizer = load_model()
    else:
        model, tokenizer, _ = pruned(sizes, seed, method, pattern_of(method, pattern))
    return model_rows(label, model, tokenizer, sizes, seed)


def sweep_point(sizes: Sizes, method: str, sparsity: float, seed: int) -> Tables:
    if method == "dense":
        model, tokenizer = load_model()
    else:
        model, tokenizer, _ = pruned(
            sizes, seed, method, Unstructured(sparsity, per=USUAL_GROUP[method]), sizes.curve_calibration
        )
    return {"sweep": [{"method": method, "sparsity": sparsity} | curve_perplexity(sizes, model, tokenizer, seed)]}


def calibration_point(sizes: Sizes, n_windows: int, sample: int, seed: int) -> Tables:
    """Measure Wanda at 50 % by number of windows. Samples differ in their seed; the evaluation text is the same."""
    model, tokenizer, report = pruned(sizes, seed + sample, "wanda", Unstructured(0.5), n_windows)
    label = {"n_windows": n_windows, "sample": sample, "calibration_tokens": report.n_tokens}
    return {"calibration": [label | curve_perplexity(sizes, model, tokenizer, seed)]}


def group_point(sizes: Sizes, method: str, group: str, seed: int) -> Tables:
    per, size = GROUPS[group]
    model, tokenizer, _ = pruned(sizes, seed, method, Unstructured(0.5, per=per, size=size), sizes.curve_calibration)
    return {"groups": [{"method": method, "group": group} | curve_perplexity(sizes, model, tokenizer, seed)]}


def seconds(sizes: Sizes, method: str, pattern: str, seed: int) -> Tables:
    """Measure the time of each phase of pruning. These steps come last, so that nothing else runs meanwhile."""
    _, _, report = pruned(sizes, seed, method, pattern_of(method, pattern))
    label = {"method": method, "pattern": pattern, "calibration_tokens": report.n_tokens}
    return {"seconds": [label | report.seconds]}


EXPERIMENT = Experiment("Wanda and magnitude pruning of the default model", Sizes(), QUICK, steps)
