"""The open task of lesson 05: a shape of at most 100 million parameters with low perplexity right after pruning.

Dimension key: N windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import by_idea
from course_lib.measure.experiment import Tables
from course_lib.measure.perplexity import window_losses
from course_lib.models import Part, load_model
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.shape import Shape, n_parameters, shape_of
from course_lib.pruning.structured.surgery import cut

BUDGET = 100_000_000
CALIBRATION, EVALUATION = (8, 256), (8, 256)  # windows, tokens of each

# Sizes that differ from the dense model: {"neurons": 870} keeps everything else.
Sizes = Mapping[str, int]

IDEAS: dict[str, Sizes] = {
    "fewer neurons": {"neurons": 870},
    "fewer blocks": {"blocks": 20},
    "less width": {"width": 423},
    "two groups, fewer neurons": {"groups": 2, "heads": 6, "neurons": 1039},
    "25 blocks, fewer neurons": {"blocks": 25, "neurons": 1146},
    "a little of each": {"width": 540, "blocks": 27, "neurons": 1166},
}


@dataclass(frozen=True)
class Attempt:
    """The result of a shape: its sizes, its parameters, and the loss of every window."""

    sizes: dict[str, int]
    parameters: int
    losses: Float[Tensor, "N"]


def measure(
    sizes: object, loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None, seed: int = 0
) -> Attempt:
    """Prune the default model (or a loaded one) to a shape by activations and block influence, and evaluate it.

    Raises:
        ValueError: for sizes that describe no model, or one above the budget.
    """
    model, tokenizer = loaded or load_model()
    target = shape_within(sizes, model)
    evidence = Evidence(model, windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=seed), False)
    scores = Minitron().score(evidence) | BlockInfluence().score(evidence)
    evaluation = windows("wikipedia", *EVALUATION, tokenizer, split="evaluation", seed=seed)
    losses = window_losses(cut(model, target, scores), evaluation, progress=False)
    return Attempt(dict(sizes), n_parameters(model, target), losses)


def shape_within(sizes: object, model: PreTrainedModel) -> Shape:
    """Return the model's shape with these sizes.

    Raises:
        ValueError: for unknown names, or more parameters than the budget allows.
    """
    names = [field.name for field in fields(Shape)]
    if not isinstance(sizes, Mapping) or set(sizes) - set(names):
        raise ValueError(f"got {sizes!r}; expected a dictionary of sizes by name, of {', '.join(names)}.")
    target = replace(shape_of(model), **sizes)
    n = n_parameters(model, target)
    if n > BUDGET:
        raise ValueError(f"got {target}: {n:,} parameters; expected at most {BUDGET:,}. Remove {n - BUDGET:,} more.")
    return target


def stored(table: list[dict]) -> dict[str, Attempt]:
    """Return the measured ideas, from the table of a result."""
    return {row["idea"]: Attempt(row["sizes"], row["parameters"], torch.tensor(row["losses"])) for row in table}


def idea_row(idea: str, seed: int) -> Tables:
    """Measure one idea."""
    attempt = measure(IDEAS[idea], seed=seed)
    losses = [round(loss, 5) for loss in attempt.losses.tolist()]
    return {"ideas": [{"idea": idea, "sizes": attempt.sizes, "parameters": attempt.parameters, "losses": losses}]}


EXPERIMENT = replace(
    by_idea("Shapes of 100 million parameters, pruned from the default model", IDEAS, ("less width",), idea_row),
    quick_part=Part(width=None),
)
