"""What each sparsity pattern costs the default model: magnitude pruning without calibration, the same for all."""

from dataclasses import dataclass
from functools import partial

from course_lib.data.corpora import windows
from course_lib.lessons.common.losses import perplexity_row
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.patterns.measure import one_of_each, pruned_by_magnitude
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.perplexity import Perplexity
from course_lib.models import load_model
from course_lib.sparsity.patterns import Unstructured


@dataclass(frozen=True)
class Sizes:
    """How many windows of how many tokens to evaluate on, at which sparsities (multiples of a quarter)."""

    evaluation: int = 8
    length: int = 512
    sparsities: tuple[float, ...] = (0.25, 0.5)


QUICK = Sizes(2, 32, (0.5,))


def steps(sizes: Sizes) -> list[Step]:
    """The dense model once, then each pattern at each sparsity."""
    plan = [Step("dense", partial(row, sizes, "dense", 0.0))]
    return plan + [
        Step(f"{name} at {sparsity:.0%}", partial(row, sizes, name, sparsity))
        for sparsity in sizes.sparsities
        for name in one_of_each(sparsity)
    ]


def row(sizes: Sizes, pattern: str, sparsity: float, seed: int) -> Tables:
    """Perplexity with one pattern."""
    model, tokenizer = load_model()
    ids = windows("wikipedia", sizes.evaluation, sizes.length, tokenizer, "evaluation", seed)
    chosen = Unstructured(0.0) if pattern == "dense" else one_of_each(sparsity)[pattern]
    with pruned_by_magnitude(model, chosen):
        numbers = perplexity_row(model, ids)
    return {"perplexity": [{"pattern": pattern, "sparsity": sparsity} | numbers]}


def measured() -> dict[float, dict[str, Perplexity]]:
    """The committed result, by sparsity and pattern, the dense model among the patterns of each sparsity."""
    perplexities: dict[float, dict[str, Perplexity]] = {}
    for record in load_measured("patterns")["tables"]["perplexity"]:
        value = Perplexity(
            record["perplexity"], record["standard_error"], record["n_tokens"], tuple(record.get("losses", ()))
        )
        perplexities.setdefault(record["sparsity"], {})[record["pattern"]] = value
    dense = perplexities.pop(0.0)
    return {sparsity: dense | by_pattern for sparsity, by_pattern in perplexities.items()}


EXPERIMENT = Experiment("Magnitude pruning by pattern", Sizes(), QUICK, steps)
