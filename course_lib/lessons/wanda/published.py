"""Claims that the Wanda paper's own tables decide: mean accuracies on seven tasks, perplexities, and seconds."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from course_lib.lessons.common.claim import (
    COMPARABLE,
    DECENT,
    OTHER_DISTANCES,
    OTHER_FRACTIONS,
    PERCENT,
    POINTS,
    WHY_COMPARABLE,
    WHY_DECENT,
    Claim,
    Unit,
)
from course_lib.lessons.common.results import load_published, rows, spaced
from course_lib.lessons.common.verdicts import Effect

PAPER = "Sun, Liu, Bair and Kolter (2023), arXiv:2306.11695"
PATTERNS = ("50%", "4:8", "2:4")  # from the loosest to the tightest, all with half of the weights
FAMILIES = (("LLaMA-7B", "LLaMA-13B", "LLaMA-30B", "LLaMA-65B"), ("LLaMA-2-7B", "LLaMA-2-13B", "LLaMA-2-70B"))
MODELS = tuple(model for family in FAMILIES for model in family)
NAMES = {"wanda": "Wanda", "sparsegpt": "SparseGPT", "magnitude": "magnitude pruning"}

_table = partial(
    Claim, source=PAPER, unit=POINTS, basis="the paper's own table, mean accuracy of seven tasks", from_source=True
)


def published(table: str, column: str, model: str, **wanted: str) -> float:
    """One number of the paper's tables."""
    (row,) = rows(load_published("wanda"), table, model=model, **wanted)
    return row[column]


def published_accuracy(model: str, method: str, pattern: str) -> float:
    """Mean accuracy over the paper's seven tasks, as a fraction."""
    return published("zero_shot_mean", "accuracy", model, method=method, pattern=pattern)


def exact(value: float) -> Effect:
    """A number of a table, which is not a sample."""
    return Effect(value=value, error=0.0)


def kept_fractions(method: str, pattern: str) -> dict[str, Effect]:
    """The accuracy of the pruned model over that of the dense one, by model."""
    return {
        model: exact(published_accuracy(model, method, pattern) / published_accuracy(model, "dense", "dense"))
        for model in MODELS
    }


def _differences(better: str, worse: str, patterns: tuple[str, ...] = PATTERNS) -> dict[str, Effect]:
    """The accuracy with one method minus that with another, by model and pattern."""
    return {
        f"{model}, {spaced(pattern)}": exact(
            published_accuracy(model, better, pattern) - published_accuracy(model, worse, pattern)
        )
        for model in MODELS
        for pattern in patterns
    }


def _loss_by_size(method: str) -> dict[str, Effect]:
    """How much less accuracy each larger model of a family loses at 50 % than the next smaller one."""
    loss = {m: published_accuracy(m, "dense", "dense") - published_accuracy(m, method, "50%") for m in MODELS}
    return {
        f"{larger} after {smaller}": exact(loss[smaller] - loss[larger])
        for family in FAMILIES
        for smaller, larger in pairwise(family)
    }


def _pattern_steps() -> dict[str, Effect]:
    """How much less accurate a tighter pattern is than the looser one before it, by model, method and step."""
    return {
        f"{model}, {NAMES[method]}, {spaced(a)} to {spaced(b)}": exact(
            published_accuracy(model, method, a) - published_accuracy(model, method, b)
        )
        for model in MODELS
        for method in NAMES
        for a, b in pairwise(PATTERNS)
    }


def _larger_lose_less(method: str, name: str = "") -> Claim:
    return _table(
        id=f"wanda-published-{name}larger-lose-less",
        text=f"the larger the model, the less accuracy {NAMES[method]} costs at 50 %",
        measure=partial(_loss_by_size, method),
        quantity="accuracy lost by the next smaller model minus that lost by the larger one",
        refuted="a larger model of a family that loses more",
    )


LARGER_LOSE_LESS = _larger_lose_less("wanda")
LARGER_LOSE_LESS_SPARSEGPT = _larger_lose_less("sparsegpt", "sparsegpt-")
LARGER_LOSE_LESS_MAGNITUDE = _larger_lose_less("magnitude", "magnitude-")


def _above_magnitude(method: str, name: str) -> Claim:
    return _table(
        id=f"wanda-published-{name}above-magnitude",
        text=f"{NAMES[method]} is more accurate than magnitude pruning in each row and column of the paper's table",
        measure=partial(_differences, method, "magnitude"),
        quantity=f"{NAMES[method]}'s accuracy minus magnitude's, by model and pattern",
        refuted="a model and a pattern for which magnitude is as accurate",
    )


ALWAYS_ABOVE_MAGNITUDE = _above_magnitude("wanda", "")
SPARSEGPT_ABOVE_MAGNITUDE = _above_magnitude("sparsegpt", "sparsegpt-")
SPARSEGPT_ABOVE, SPARSEGPT_ABOVE_2_4 = (
    _table(
        id=f"wanda-published-sparsegpt-above-{name}",
        text=f"at {spaced(pattern)}, SparseGPT is more accurate than Wanda for each model of the paper's table",
        measure=partial(_differences, "sparsegpt", "wanda", (pattern,)),
        quantity="SparseGPT's accuracy minus Wanda's, by model",
        refuted="a model for which Wanda is as accurate",
    )
    for name, pattern in (("half", "50%"), ("2-4", "2:4"))
)
WITHIN_THREE_POINTS = _table(
    id="wanda-published-comparable",
    text="with each pattern and model of the paper's table, Wanda is within 3 percentage points of SparseGPT",
    measure=partial(_differences, "sparsegpt", "wanda"),
    below=COMPARABLE,
    because=WHY_COMPARABLE,
    other_thresholds=(0.02, *OTHER_DISTANCES),
    quantity="SparseGPT's accuracy minus Wanda's, by model and pattern",
    refuted="a model and a pattern for which Wanda is over 3 percentage points below",
)
TIGHTER_PATTERNS = _table(
    id="wanda-published-patterns",
    text="for each method and model of the paper's table, 4:8 is less accurate than 50 %, and 2:4 less than 4:8",
    measure=_pattern_steps,
    quantity="accuracy with a pattern minus that with the tighter one after it, by model, method and step",
    refuted="a tighter pattern that is as accurate",
)


def _keeps(measure: Callable[[], dict[str, Effect]], **record: str) -> Claim:
    return _table(
        measure=measure,
        above=DECENT,
        because=WHY_DECENT,
        other_thresholds=OTHER_FRACTIONS,
        unit=PERCENT,
        **record,
    )


KEEPS_MOST = _keeps(
    lambda: {
        f"{model}, {NAMES[method]}": effect
        for method in ("sparsegpt", "wanda")
        for model, effect in kept_fractions(method, "50%").items()
    },
    id="wanda-published-keep-nine-tenths",
    text="at 50 %, SparseGPT and Wanda keep over 90 % of the dense accuracy for each model of the paper's table",
    quantity="fraction of the dense accuracy, by model and method",
    refuted="a model and a method that keep less",
)
MAGNITUDE_KEEPS_MOST = _keeps(
    partial(kept_fractions, "magnitude", "50%"),
    id="wanda-published-magnitude-keeps",
    text="at 50 %, magnitude pruning keeps over 90 % of the dense accuracy for each model of the paper's table",
    quantity="fraction of the dense accuracy, by model",
    refuted="a model that keeps less",
)
SPARSEGPT_ABOVE_DENSE = _table(
    id="wanda-published-above-dense",
    text="at 50 %, SparseGPT's LLaMA-2-70B is more accurate than the dense one",
    measure=lambda: exact(
        published_accuracy("LLaMA-2-70B", "sparsegpt", "50%") - published_accuracy("LLaMA-2-70B", "dense", "dense")
    ),
    quantity="accuracy minus that of the dense model",
    refuted="a pruned model that is no more accurate",
)
SECONDS = Claim(
    id="wanda-published-seconds",
    text="SparseGPT's metric takes over 200 times as long as Wanda's for each model of the paper's table",
    source=PAPER,
    basis="the paper's own table, seconds without the forward passes",
    from_source=True,
    measure=lambda: {
        model: exact(
            published("seconds", "seconds", model, method="sparsegpt")
            / published("seconds", "seconds", model, method="wanda")
        )
        for model in FAMILIES[0]
    },
    above=200,
    because="the text says slower without a number; its table shows hundreds of times, that is, at least 200",
    other_thresholds=(1, 100, 300),
    unit=Unit("times"),
    quantity="seconds for SparseGPT's metric over those for Wanda's, by model",
    refuted="a model for which it takes at most 200 times as long",
)
PUBLISHED_CLAIMS = (
    LARGER_LOSE_LESS,
    LARGER_LOSE_LESS_SPARSEGPT,
    LARGER_LOSE_LESS_MAGNITUDE,
    ALWAYS_ABOVE_MAGNITUDE,
    SPARSEGPT_ABOVE_MAGNITUDE,
    SPARSEGPT_ABOVE,
    SPARSEGPT_ABOVE_2_4,
    WITHIN_THREE_POINTS,
    TIGHTER_PATTERNS,
    KEEPS_MOST,
    MAGNITUDE_KEEPS_MOST,
    SPARSEGPT_ABOVE_DENSE,
    SECONDS,
)
