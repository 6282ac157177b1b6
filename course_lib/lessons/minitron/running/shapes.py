"""The open task of lesson 05: the shape of at most 100 million parameters whose cut model reads best.

Dimension key: N windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import COMPARED, beside_the_first, compared_columns
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.common.table import Table, number
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.shape import Shape, n_parameters, shape_of
from course_lib.pruning.structured.surgery import cut

BUDGET = 100_000_000
CALIBRATION, HELD_OUT = (8, 256), (8, 256)  # windows, tokens of each

# What differs from the whole model: {"neurons": 870} keeps everything else.
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
    """What came of a shape: its parameters, and the log-perplexity of every window."""

    sizes: dict[str, int]
    parameters: int
    losses: Float[Tensor, "N"]


def attempt(
    sizes: object,
    loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
    scores: Scores | None = None,
    seed: int = 0,
) -> Attempt:
    """Cut the default model to a shape, and read the held-out windows.

    Args:
        loaded: the model and its tokenizer, where they are there already.
        scores: of what stays; Minitron's activations and the influence of blocks where it is None, or lacks a kind.

    Raises:
        ValueError: for sizes that are none, or make no model, or one above the budget.
    """
    model, tokenizer = loaded or load_model()
    target = shape_within(sizes, model)
    text = windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=seed)
    if scores is None or _lacks(scores, target, shape_of(model)):
        evidence = Evidence(model, text, progress=False)
        usual = Minitron().score(evidence) | BlockInfluence().score(evidence)
        scores = usual if scores is None else scores | usual
    held_out = windows("wikipedia", *HELD_OUT, tokenizer, split="evaluation", seed=seed)
    losses = window_losses(cut(model, target, scores), held_out, progress=False)
    return Attempt(dict(sizes), n_parameters(model, target), losses)


def shape_within(sizes: object, model: PreTrainedModel) -> Shape:
    """The model's shape but for these sizes.

    Raises:
        ValueError: for unknown names, or more parameters than the budget allows.
    """
    names = [field.name for field in fields(Shape)]
    if not isinstance(sizes, Mapping) or set(sizes) - set(names):
        raise ValueError(f"got {sizes!r}; expected a dictionary of sizes by name, of {', '.join(names)}.")
    target = replace(shape_of(model), **sizes)
    n = n_parameters(model, target)
    if n > BUDGET:
        raise ValueError(
            f"got {target}: {n:,} parameters; expected at most {BUDGET:,}. Take {n - BUDGET:,} more out somewhere."
        )
    return target


def _lacks(scores: Scores, target: Shape, now: Shape) -> bool:
    changed = (field.name for field in fields(Shape) if getattr(target, field.name) < getattr(now, field.name))
    return any(scores.of(kind) is None for kind in changed)


def stored(rows: list[dict]) -> dict[str, Attempt]:
    """The ideas that were measured, from the table of a result."""
    return {row["idea"]: Attempt(row["sizes"], row["parameters"], torch.tensor(row["losses"])) for row in rows}


def table(ideas: dict[str, Attempt], mine: Attempt | None = None) -> Table:
    """Every idea compared with the first of them; yours last."""
    same = next(iter(ideas.values()))
    return Table(
        [
            {"shape": name, "parameters": made.parameters} | compared_columns(made.losses, same.losses)
            for name, made in {**ideas, **({"yours": mine} if mine else {})}.items()
        ],
        caption="Models of at most 100 million parameters",
        formats={"parameters": number()} | COMPARED,
        note="± one standard error over the windows.",
    )


def compared(ideas: dict[str, Attempt] | None = None) -> Figure:
    """By how much each idea's log-perplexity is lower than the first's, and two errors of it."""
    ideas = ideas or stored(load_measured("minitron", "shapes")["tables"]["ideas"])
    return beside_the_first({name: made.losses for name, made in ideas.items()})
