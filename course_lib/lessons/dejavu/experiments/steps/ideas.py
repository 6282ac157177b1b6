"""The open task of lesson 09: three tenths of the neurons, chosen by at most 5 % of the bytes of the MLPs.

A selector may hold what it likes within the budget, and read x, the embedding, what earlier MLPs read, and the lengths
of the rows of down. What it should predict, and the matrices that it should save, are hidden from it.

Dimension key: N windows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.contextual.apply import contextual
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.contextual.selectors.static import Static
from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import COMPARED, beside_the_first, compared_columns
from course_lib.lessons.common.table import Table, number
from course_lib.lessons.dejavu.experiments.steps.blind import Blind
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model

DENSITY, SHARE = 0.3, 0.05  # of the neurons; of the bytes of all MLPs
SLACK = 0.02  # of a threshold on other text
CALIBRATION, HELD_OUT = (16, 256), (8, 256)  # windows, tokens of each

IDEAS: dict[str, NeuronSelector] = {
    "one set for all tokens": Static(),
    "gate and up, rank 31": LowRank(rank=31),
    "gate and up, 2 bits, groups of 64": LowBit(bits=2, group=64),
    "gate and up, 2 bits, groups of 192": LowBit(bits=2, group=192),
    "gate and up, 2 bits, whole rows": LowBit(bits=2, group=576),
}


@dataclass(frozen=True)
class Attempt:
    """What came of a selector: the bytes that it holds, the share that it kept, the log-perplexity of every window."""

    bytes: int
    density: float
    losses: Float[Tensor, "N"]


def attempt(
    selector: object, loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None, seed: int = 0
) -> Attempt:
    """Let a selector learn from calibration text, and read the held-out windows with what it chooses.

    Args:
        selector: one that was not fitted yet, or needs no fitting; its density does not matter.
        loaded: the model and its tokenizer, where they are there already.

    Raises:
        ValueError: for one that holds more bytes than the budget, or looks at what it should predict.
    """
    if not isinstance(selector, NeuronSelector):
        raise ValueError(f"got {selector!r}; expected a NeuronSelector, such as LowBit(bits=2).")
    model, tokenizer = loaded or load_model()
    fitted = selector.fit(model, windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=seed))
    if fitted.reads_hidden:
        raise ValueError(f"got {type(selector).__name__}, which looks at h; expected one that predicts it.")
    budget = SHARE * mlp_bytes(model)
    if fitted.n_bytes > budget:
        raise ValueError(
            f"got a {type(selector).__name__} of {fitted.n_bytes:,} bytes; expected at most {budget:,.0f}, "
            f"{100 * SHARE:.0f} % of the MLPs'. Take a lower rank, fewer bits, or wider groups."
        )
    held_out = windows("wikipedia", *HELD_OUT, tokenizer, split="evaluation", seed=seed)
    with contextual(model, Blind(inner=fitted), DENSITY) as watch:
        losses = window_losses(model, held_out, progress=False)
    if watch.mean_density > DENSITY + SLACK:
        raise ValueError(f"got a selector that kept {watch.mean_density:.2f} of the neurons; expected {DENSITY}.")
    return Attempt(watch.bytes, watch.mean_density, losses)


def mlp_bytes(model: PreTrainedModel) -> int:
    """What the MLPs of all blocks take."""
    return sum(each.n_bytes for each in neurons_of(model))


def line(made: Attempt, model: PreTrainedModel, dense: Sequence[float], oracle: Sequence[float]) -> str:
    """Bytes beside the budget, and perplexity between those of all neurons and of an oracle, whose first windows are
    the same ones.
    """
    perplexities = [torch.tensor(list(losses)[: len(made.losses)]).mean().exp() for losses in (dense, oracle)]
    return (
        f"{made.bytes / 1e6:.1f} MB, {100 * made.bytes / mlp_bytes(model):.1f} % of the MLPs' (at most "
        f"{100 * SHARE:.0f} %), {100 * made.density:.0f} % of the neurons:\nperplexity {made.losses.mean().exp():.1f}; "
        f"all neurons {perplexities[0]:.1f}, {100 * DENSITY:.0f} % by oracle {perplexities[1]:.1f}"
    )


def stored(rows: list[dict]) -> dict[str, Attempt]:
    """The ideas that were measured, from the table of a result."""
    return {row["idea"]: Attempt(row["bytes"], row["density"], torch.tensor(row["losses"])) for row in rows}


def table(ideas: Mapping[str, Attempt], mine: Attempt | None = None) -> Table:
    """Every idea compared with the first of them; yours last."""
    same = next(iter(ideas.values()))
    return Table(
        [
            {"selector": name, "memory (MB)": made.bytes / 1e6} | compared_columns(made.losses, same.losses)
            for name, made in {**ideas, **({"yours": mine} if mine else {})}.items()
        ],
        caption="Selectors within the budget of bytes",
        formats={"memory (MB)": number(1)} | COMPARED,
        note="± one standard error over the windows.",
    )


def compared(ideas: Mapping[str, Attempt]) -> Figure:
    """By how much each idea's log-perplexity is lower than the first's, and two errors of it."""
    return beside_the_first({name: made.losses for name, made in ideas.items()})
