"""Measurements that the pruning lessons share: perplexity on two domains, and zero-shot accuracy."""

import math
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.assets.catalogue import BENCHMARK_FILES
from course_lib.data.benchmarks import WANDA_TASKS
from course_lib.data.corpora import windows
from course_lib.lessons.common.losses import perplexity_row
from course_lib.measure.accuracy import choice_accuracy
from course_lib.measure.experiment import Tables

SIGNAL = 2.0  # standard errors above chance: a task on which the dense model scores less cannot show what pruning costs


@dataclass(frozen=True)
class Sizes:
    """How much is measured: windows of `length` tokens. The curves use the first evaluation windows of the table."""

    length: int = 512
    calibration: int = 16
    evaluation: dict[str, int] = field(default_factory=lambda: {"wikipedia": 16, "boolq": 8})
    curve_calibration: int = 16
    curve_evaluation: int = 12
    questions: dict[str, int] = field(
        default_factory=lambda: (
            dict.fromkeys(BENCHMARK_FILES, 50)
            | dict.fromkeys(("sciq", "arc_easy", "lambada"), 100)
            | dict.fromkeys(("common_knowledge", "hellaswag"), 60)
        )
    )
    sparsities: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7)
    # (windows, number of random samples of that size): small samples vary more, large ones take longer
    calibration_curve: tuple[tuple[int, int], ...] = ((1, 2), (2, 2), (4, 2), (8, 2), (16, 1), (32, 1))


QUICK = Sizes(
    length=64,
    calibration=2,
    evaluation={"wikipedia": 2, "boolq": 2},
    curve_calibration=2,
    curve_evaluation=2,
    questions=dict.fromkeys(BENCHMARK_FILES, 1),
    sparsities=(0.5,),
    calibration_curve=((1, 2), (2, 1)),
)


def amounts(sizes: dict[str, Any]) -> str:
    """Describe the sizes of a stored result in words."""
    return (
        f"{sizes['calibration']} × {sizes['length']} calibration tokens; evaluated on "
        f"{sizes['evaluation']['wikipedia']} × {sizes['length']} tokens of held-out Wikipedia; "
        f"curves: {sizes['curve_calibration']} and {sizes['curve_evaluation']} windows"
    )


def model_rows(
    label: dict[str, str], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sizes: Sizes, seed: int
) -> Tables:
    """Return a model's rows of the main tables: perplexity by corpus, accuracy by task, mean of the paper's tasks."""
    tasks = [label | accuracy_of(model, tokenizer, task, n, seed) for task, n in sizes.questions.items()]
    return {
        "perplexity": [
            label | {"corpus": corpus} | perplexity_of(model, tokenizer, corpus, n, sizes.length, seed)
            for corpus, n in sizes.evaluation.items()
        ],
        "zero_shot": tasks,
        "zero_shot_mean": [label | mean_accuracy(tasks)],
    }


def perplexity_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, corpus: str, n: int, length: int, seed: int
) -> dict[str, Any]:
    """Measure perplexity on n held-out windows of a corpus; return the columns of a row."""
    return perplexity_row(model, windows(corpus, n, length, tokenizer, "evaluation", seed))


def curve_perplexity(
    sizes: Sizes, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int
) -> dict[str, Any]:
    """Measure perplexity on the Wikipedia windows that the curves use."""
    return perplexity_of(model, tokenizer, "wikipedia", sizes.curve_evaluation, sizes.length, seed)


def accuracy_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: str, n: int, seed: int
) -> dict[str, float | str]:
    """Measure accuracy on n questions of a task; return the columns of a row."""
    result = choice_accuracy(model, tokenizer, task, n, seed, progress=False)
    return {
        "task": task,
        "accuracy": result.value,
        "normalised": result.normalised,
        "chance": result.chance,
        "standard_error": result.standard_error,
        "n": result.n,
        "right": "".join(str(int(is_right)) for is_right in result.right),
    }


def mean_accuracy(rows: list[dict]) -> dict[str, float]:
    """Average the paper's seven tasks with equal weights.

    The tasks are independent samples, so the standard error of the mean is √(Σ eᵢ²) / 7.
    """
    selected = [row for row in rows if row["task"] in WANDA_TASKS]
    return {
        "accuracy": sum(row["accuracy"] for row in selected) / len(selected),
        "standard_error": math.hypot(*(row["standard_error"] for row in selected)) / len(selected),
        "chance": sum(row["chance"] for row in selected) / len(selected),
    }


def has_signal(dense: dict[str, Any]) -> bool:
    """Return whether the dense model is more than SIGNAL standard errors above chance on a task."""
    return dense["accuracy"] - dense["chance"] > SIGNAL * dense["standard_error"]
