"""What all steps share: the model, the text, evidence for the scores, the scores, and rows of perplexity."""

from functools import lru_cache
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.data.corpora import windows
from course_lib.lessons.common import losses
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer
from course_lib.pruning.structured.scorers.llm_pruner import LLMPruner
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.scorers.output_energy import OutputEnergy
from course_lib.pruning.structured.scorers.weight_norm import WeightNorm

Row = dict[str, Any]

PAPERS, BEST = "l2, mean", "l2, l2"  # over windows, over the tokens of a window
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


@lru_cache(maxsize=2)
def evidence(sizes: Sizes, seed: int, gradients: bool = False) -> Evidence:
    """Of the calibration windows; of fewer of them where gradients are asked for."""
    return Evidence(loaded(sizes.model)[0], calibration(sizes, seed)[: sizes.fewer if gradients else None], False)


@lru_cache(maxsize=4)
def calibration(sizes: Sizes, seed: int) -> Int[Tensor, "N T"]:
    return windows("wikipedia", sizes.calibration, sizes.length, loaded(sizes.model)[1], "calibration", seed)


@lru_cache(maxsize=4)
def text(sizes: Sizes, seed: int) -> Int[Tensor, "N T"]:
    """What students learn from."""
    return windows("wikipedia", sizes.text, sizes.text_length, loaded(sizes.model)[1], "calibration", seed)


def scores(sizes: Sizes, seed: int, method: str = "activations", setting: str = BEST) -> Scores:
    """Of every kind that the method scores."""
    return METHODS[method, setting].score(evidence(sizes, seed, gradients=method == "LLM-Pruner"))


@lru_cache(maxsize=4)
def evaluation(sizes: Sizes, seed: int) -> Int[Tensor, "N T"]:
    return windows("wikipedia", sizes.evaluation, sizes.length, loaded(sizes.model)[1], "evaluation", seed)


def perplexity_row(sizes: Sizes, model: PreTrainedModel, seed: int, n: int | None = None) -> Row:
    """On the evaluation windows, or on the first n of them: with the loss of each, to compare models in pairs."""
    return losses.perplexity_row(model, evaluation(sizes, seed)[:n])


def n_weights(model: PreTrainedModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def forget() -> None:
    """Let go of the model and of what was measured on it, for what looks at the memory."""
    evidence.cache_clear()
    loaded.cache_clear()
