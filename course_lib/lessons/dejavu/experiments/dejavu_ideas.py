"""The open task of lesson 09 and simple ideas for it: 30 % of the neurons with at most 5 % of the MLPs' bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.contextual.apply import contextual
from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.contextual.selectors.static import Static
from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import COMPARED, beside_the_first, by_idea, compared_columns
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.table import Table, number
from course_lib.measure.experiment import Tables
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model


@dataclass(frozen=True, eq=False, kw_only=True)
class Blind(NeuronSelector):
    """Hide the hidden values and the matrices gate and up from another selector."""

    inner: NeuronSelector

    counts_exactly: ClassVar[bool] = False

    @property
    def n_bytes(self) -> int:
        return self.inner.n_bytes

    @property
    def lookahead(self) -> int:
        return self.inner.lookahead

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        return self.inner.score(hidden_from(seen), block)

    def keep(self, seen: Seen, block: int) -> Bool[Tensor, "T F"]:
        return replace(self.inner, density=self.density, by_block=self.by_block).keep(hidden_from(seen), block)


def hidden_from(seen: Seen) -> Seen:
    """Return the same with NaN instead of h, gate and up."""
    neurons = seen.neurons
    known = Neurons(
        gate=None if neurons.gate is None else torch.full_like(neurons.gate, torch.nan),
        up=torch.full_like(neurons.up, torch.nan), down=neurons.down, activation=neurons.activation,
        gate_bias=neurons.gate_bias, up_bias=neurons.up_bias, down_bias=neurons.down_bias,
    )  # fmt: skip
    return replace(seen, neurons=known, hidden=torch.full_like(seen.hidden, torch.nan))


DENSITY, SHARE = 0.3, 0.05  # of the neurons; of the bytes of all MLPs
SLACK = 0.02  # of a threshold on other text
CALIBRATION, HELD_OUT = (16, 256), (8, 256)  # windows, tokens of each

IDEAS: dict[str, NeuronSelector] = {
    "a static set": Static(),
    "gate and up, rank 31": LowRank(rank=31),
    "gate and up, 2 bits, groups of 64": LowBit(bits=2, group=64),
    "gate and up, 2 bits, groups of 192": LowBit(bits=2, group=192),
    "gate and up, 2 bits, whole rows": LowBit(bits=2, group=576),
}


@dataclass(frozen=True)
class Attempt:
    """The result of a selector: the bytes that it holds, the density that it kept, the loss of every window."""

    bytes: int
    density: float
    losses: Float[Tensor, "N"]


def attempt(
    selector: object, loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None, seed: int = 0
) -> Attempt:
    """Fit a selector on calibration text and evaluate the model on held-out windows with the neurons that it chooses.

    Args:
        selector: one that is not fitted yet, or needs no fitting; its density is ignored.
        loaded: the model and its tokenizer, if they are loaded already.

    Raises:
        ValueError: for a selector with more bytes than the budget, or one that reads h.
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
    """Count the bytes of the MLPs of all blocks."""
    return sum(each.n_bytes for each in neurons_of(model))


def stored_ideas() -> dict[str, Attempt]:
    """Load the ideas that `course reproduce dejavu_ideas` measured."""
    table = rows(load_measured("dejavu", "experiments/dejavu_ideas"), "ideas")
    return {row["idea"]: Attempt(row["bytes"], row["density"], torch.tensor(row["losses"])) for row in table}


def table(ideas: Mapping[str, Attempt], mine: Attempt | None = None) -> Table:
    """Return a table of all ideas compared with the first one; yours is last."""
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
    """Plot by how much the loss of each idea is lower than that of the first, with two standard errors."""
    return beside_the_first({name: made.losses for name, made in ideas.items()})


def one(idea: str, seed: int) -> Tables:
    made = attempt(IDEAS[idea], seed=seed)
    row = {"idea": idea, "bytes": made.bytes, "density": round(made.density, 4)}
    return {"ideas": [row | {"losses": [round(loss, 5) for loss in made.losses.tolist()]}]}


EXPERIMENT = by_idea("Selectors of equal bytes, 30 % of the neurons", IDEAS, ("a static set",), one)
