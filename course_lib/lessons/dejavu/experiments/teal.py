"""Sparsity where no activation is zero: thresholds on the gate (CATS) or on what every matrix reads (TEAL), and ReLU in
the place of SiLU; each with the loss of the second half of the windows, which is where TEAL's authors look.

Dimension key: m windows of N tokens.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.contextual.altered import activated_by
from course_lib.contextual.apply import contextual
from course_lib.contextual.inputs.greedy_levels import GreedyTeal
from course_lib.contextual.inputs.teal import Teal
from course_lib.contextual.inputs.teal import teal as sparse_inputs
from course_lib.contextual.selectors.cats import CATS
from course_lib.lessons.dejavu.experiments.ground import GATED, Row, Sizes, Subject, losses_row, subject
from course_lib.measure.experiment import Tables
from course_lib.measure.likelihood import hidden_states, target_log_probs

DENSE, BY_GATE, BY_INPUT, SWAPPED = "dense", "CATS", "TEAL", "SiLU replaced by ReLU"
BY_LEVELS, LEVEL_WINDOWS = "TEAL, greedy levels", 2
ALL, SECOND_HALF = "all", "second half"
TOKENS = {ALL: "all", SECOND_HALF: "last half"}  # as the library calls them


def dense(sizes: Sizes, seed: int) -> Tables:
    """Evaluate the dense model, also on the second halves."""
    return _table(scored_row(subject(sizes, GATED, seed)), DENSE, None, None, None)


def cats(sizes: Sizes, density: float, seed: int) -> Tables:
    """Keep neurons whose gate is above the block's threshold, for all tokens."""
    of = subject(sizes, GATED, seed)
    with contextual(of.model, _gates(sizes, seed), density) as watch:
        row = scored_row(of)
    return _table(row, BY_GATE, density, watch.mean_density, ALL)


def teal(sizes: Sizes, density: float, tokens: str, seed: int) -> Tables:
    """Inputs above their threshold in every matrix of the blocks: of all tokens, or of the second half of windows only,
    which then reads exact keys and values of the first.
    """
    of = subject(sizes, GATED, seed)
    with sparse_inputs(of.model, _inputs(sizes, seed), density, TOKENS[tokens]) as watch:
        row = scored_row(of)
    return _table(row, BY_INPUT, density, watch.mean_density, tokens)


def greedy(sizes: Sizes, density: float, seed: int) -> Tables:
    """Like `teal` with a separate density for each input of each block, for all tokens."""
    of = subject(sizes, GATED, seed)
    with sparse_inputs(of.model, _levels(sizes, seed), density) as watch:
        row = scored_row(of)
    return _table(row, BY_LEVELS, density, watch.mean_density, ALL)


def swapped(sizes: Sizes, seed: int) -> Tables:
    """Measure the perplexity with max(0, x) instead of the activation, without training."""
    of = subject(sizes, GATED, seed)
    with activated_by(of.model, "relu"):
        return _table(scored_row(of), SWAPPED, None, None, None)


def scored_row(of: Subject) -> Row:
    """Return perplexity as in every other table, and the mean loss of the second half of each window."""
    losses = torch.stack([token_losses(of, ids) for ids in of.evaluation])
    length = of.evaluation.shape[1]
    row = {"model": of.name} | losses_row(losses.mean(1).tolist(), losses.numel())
    # TEAL makes the last N // 2 of N tokens sparse; each predicts the next one, except for the last.
    second_half = losses[:, length - length // 2 :].mean(1)
    return row | {"losses_second_half": [round(loss, 5) for loss in second_half.tolist()]}


@torch.no_grad()
def token_losses(of: Subject, ids: Tensor) -> Float[Tensor, "predicted"]:
    """Return −log p of every token except the first, in float64."""
    hidden = hidden_states(of.model, ids[None])[0, :-1]
    log_prob, _ = target_log_probs(of.model, hidden, torch.arange(len(hidden)), ids[1:])
    return -log_prob.double()


@lru_cache(maxsize=1)
def _gates(sizes: Sizes, seed: int) -> CATS:
    of = subject(sizes, GATED, seed)
    return CATS().fit(of.model, of.calibration)


@lru_cache(maxsize=1)
def _inputs(sizes: Sizes, seed: int) -> Teal:
    of = subject(sizes, GATED, seed)
    return Teal.fit(of.model, of.calibration)


@lru_cache(maxsize=1)
def _levels(sizes: Sizes, seed: int) -> GreedyTeal:
    of = subject(sizes, GATED, seed)
    windows, lowest = of.calibration[:LEVEL_WINDOWS], min(sizes.activations)
    return GreedyTeal.fit_levels(_inputs(sizes, seed), of.model, windows, lowest)


def _table(row: Row, method: str, density: float | None, reached: float | None, tokens: str | None) -> Tables:
    row |= {"method": method, "density": density, "tokens": tokens}
    return {"activations": [row | {"reached": None if reached is None else round(reached, 4)}]}
