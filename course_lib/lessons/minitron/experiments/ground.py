"""How much lesson 05 measures, and what all steps share: texts, evidence for the scores, scores, perplexity rows."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.data.corpora import windows
from course_lib.lessons.common import losses
from course_lib.lessons.common.subject import loaded
from course_lib.models import DEFAULT_MODEL
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer
from course_lib.pruning.structured.scorers.llm_pruner import LLMPruner
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.scorers.output_energy import OutputEnergy
from course_lib.pruning.structured.scorers.weight_norm import WeightNorm

Row = dict[str, Any]

TASKS = ("sciq", "arc_easy", "lambada", "common_knowledge")  # on which the dense model is clearly above chance
PAPERS, BEST = "l2, mean", "l2, l2"  # aggregation over windows, over the tokens of a window
METHODS: dict[tuple[str, str], Scorer] = {
    ("activations", PAPERS): Minitron("l2", "mean"),
    ("activations", BEST): Minitron("l2", "l2"),
    ("activations", "mean, mean"): Minitron("mean", "mean"),
    ("activations", "mean, l2"): Minitron("mean", "l2"),
    ("output energy", ""): OutputEnergy(),
    ("LLM-Pruner", "param_first"): LLMPruner("param_first"),
    ("LLM-Pruner", "param_second"): LLMPruner("param_second"),
    ("LLM-Pruner", "param_mix"): LLMPruner("param_mix"),
    ("LLM-Pruner", "vectorize"): LLMPruner("vectorize"),
    ("weight norm", ""): WeightNorm(),
}


@dataclass(frozen=True)
class Sizes:
    """Amounts of text, shapes to prune to, steps of distillation.

    No document is used both for evaluation and for scoring or training. A smaller number of windows always means the
    first ones of the larger set.
    """

    model: str = DEFAULT_MODEL
    length: int = 256  # tokens per window, except in the training text
    calibration: int = 32
    fewer: int = 16  # of these, for scores that need a backward pass, and for the refit
    drops: int = 4  # of these, for the perplexity without each block
    evaluation: int = 20
    draws: int = 10
    draw_evaluation: int = 6
    block_evaluation: int = 4
    cuts: tuple[tuple[str, int], ...] = (
        ("neurons", 1126), ("neurons", 1024), ("groups", 2), ("heads", 6), ("width", 540), ("width", 504),
    )  # fmt: skip
    neurons: int = 1126  # as many parameters as with `blocks` blocks
    blocks: int = 24
    text: int = 1680  # windows of the training text
    batch: int = 4
    text_length: int = 128
    rate: float = 3e-4
    scratch_rate: float = 1e-3  # for random weights, which have further to go
    warm_up: int = 10
    short: int = 40  # steps
    # The steps after which a student is evaluated. A step of the other two runs costs 1 / 1.396 of a KL step.
    kl: tuple[int, ...] = (5, 10, 20, 40, 80, 120, 150, 200, 250, 300)
    next_token: tuple[int, ...] = (7, 14, 28, 56, 112, 168, 209, 279, 349, 419)
    scratch: tuple[int, ...] = (14, 28, 56, 112, 168, 209)
    dampings: tuple[float, ...] = (0.1, 1.0)
    questions: tuple[tuple[str, int], ...] = tuple((task, 60 if task == "common_knowledge" else 100) for task in TASKS)
    timed: int = 4  # steps
    # Shapes of the search, all with 113 million parameters; sizes that are not named are the dense model's.
    searched: tuple[tuple[tuple[str, int], ...], ...] = (
        (("neurons", 1126),),
        (("blocks", 24),),
        (("groups", 2), ("heads", 6), ("neurons", 1296)),
        (("width", 540), ("neurons", 1272)),
    )
    search_steps: int = 10
    search_evaluation: int = 10
    byte_candidates: int = 8
    byte_evaluation: int = 48


QUICK = Sizes(
    length=12, cuts=(("neurons", 140), ("width", 540)), calibration=2, fewer=1, drops=1, evaluation=2,
    draws=1, draw_evaluation=1, block_evaluation=1, text=4, batch=1, text_length=8, warm_up=1, short=1, kl=(1, 2),
    next_token=(1, 3), scratch=(1,), dampings=(1.0,), questions=tuple((task, 1) for task in TASKS[::2]), timed=1,
    neurons=140, blocks=1, searched=((("neurons", 140),), (("blocks", 1),)), search_steps=1, search_evaluation=1,
    byte_candidates=2, byte_evaluation=2,
)  # fmt: skip


@lru_cache(maxsize=2)
def evidence(sizes: Sizes, seed: int, gradients: bool = False) -> Evidence:
    """Return evidence on the calibration windows; on fewer of them if gradients are needed."""
    return Evidence(loaded(sizes.model)[0], calibration(sizes, seed)[: sizes.fewer if gradients else None], False)


@lru_cache(maxsize=4)
def calibration(sizes: Sizes, seed: int) -> Int[Tensor, "N T"]:
    return windows("wikipedia", sizes.calibration, sizes.length, loaded(sizes.model)[1], "calibration", seed)


@lru_cache(maxsize=4)
def text(sizes: Sizes, seed: int) -> Int[Tensor, "N T"]:
    """Return the training text of the students."""
    return windows("wikipedia", sizes.text, sizes.text_length, loaded(sizes.model)[1], "calibration", seed)


def scores(sizes: Sizes, seed: int, method: str = "activations", setting: str = BEST) -> Scores:
    """Return scores of all kinds that the method can score."""
    return METHODS[method, setting].score(evidence(sizes, seed, gradients=method == "LLM-Pruner"))


@lru_cache(maxsize=4)
def evaluation(sizes: Sizes, seed: int) -> Int[Tensor, "N T"]:
    return windows("wikipedia", sizes.evaluation, sizes.length, loaded(sizes.model)[1], "evaluation", seed)


def perplexity_row(sizes: Sizes, model: PreTrainedModel, seed: int, n: int | None = None) -> Row:
    """Evaluate on all windows or the first n, with the loss of each, so that models are compared in pairs."""
    return losses.perplexity_row(model, evaluation(sizes, seed)[:n])


def n_weights(model: PreTrainedModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def forget() -> None:
    """Release the model and everything measured on it, for steps that measure memory."""
    evidence.cache_clear()
    loaded.cache_clear()
