"""Train predictors as Deja Vu's code does: AdamW on a cross-entropy in which the few active neurons weigh more.

Dimension key: T tokens, D width, F neurons.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from course_lib.contextual.predictor.checkpoint import Run
from course_lib.contextual.predictor.collect import Collected
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.repetition import digest_of
from course_lib.settings import check_count, check_number, check_seed


@dataclass(frozen=True)
class PredictorSchedule:
    """The settings of the paper's code for OPT, which stops early when recall no longer increases.

    Deviation: there is no early stopping; training takes the requested number of epochs.
    """

    epochs: int = 20
    batch: int = 1024
    rate: float = 1e-3
    decay: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("batch", self.batch)
        check_number("rate", self.rate, above=True)
        check_number("decay", self.decay)
        check_seed("seed", self.seed)


def weighted_loss(logits: Float[Tensor, "T F"], labels: Bool[Tensor, "T F"]) -> Float[Tensor, ""]:
    """Return the mean of (y (1 − w) + w) · BCE(σ(z), y) with w = mean(y) + 0.005: active neurons weigh 1, others w.

    Few neurons are active, so without these weights a prediction of "never active" would have a low loss.
    """
    active = labels.to(logits.dtype)
    share = active.mean() + 0.005
    return binary_cross_entropy_with_logits(logits, active, weight=active * (1 - share) + share)


def train_predictor(
    predictor: Predictor,
    x: Float[Tensor, "T D"],
    labels: Bool[Tensor, "rows F"],
    schedule: PredictorSchedule,
    path: Path | None = None,
) -> list[float]:
    """Train the predictor in place, and return the loss before each step.

    Args:
        labels: one row for each row of x.
        path: the file for the state after each epoch. A training that was killed resumes from it with the same losses
            to the last bit, if the predictor has its initial weights again. The file remains after training. Each block
            needs its own file.

    Raises:
        ValueError: inputs, labels and predictor do not fit each other; inputs are NaN or infinite; the file belongs to
            a training with another initialisation, data or settings; or the loss is NaN or infinite, where the
            predictor is as it was before that step.
    """
    _check(predictor, x, labels)
    if not (path is None or isinstance(path, Path)):
        raise ValueError(f"got path {path!r}; expected a pathlib.Path.")
    optimiser = torch.optim.AdamW(predictor.parameters(), weight_decay=schedule.decay)
    first, data = digest_of(predictor.named_parameters()), digest_of([("x", x), ("labels", labels)])
    label = f"{schedule}, predictor {first}, {len(x)} tokens {data}"
    run = Run(predictor, optimiser, torch.Generator().manual_seed(schedule.seed), label)
    if path is not None:
        run.resume(path)
    n_steps_an_epoch = -(-len(x) // schedule.batch)
    while run.step < schedule.epochs * n_steps_an_epoch:
        for rows in torch.randperm(len(x), generator=run.generator).split(schedule.batch):
            run.update(weighted_loss(predictor(x[rows]), labels[rows]), schedule.rate)
        if path is not None:
            run.save(path)
    return run.losses


def train_predictors(collected: Collected, rank: int, schedule: PredictorSchedule) -> tuple[Predictor, ...]:
    """Train one predictor per block, for `DejaVu(predictors=…, lookahead=collected.lookahead)`."""
    predictors = []
    for block in range(collected.n_blocks):
        x, labels = collected.inputs(block), collected.labels(block)
        generator = torch.Generator().manual_seed(schedule.seed + block)
        predictor = Predictor(x.shape[1], rank, labels.shape[1], generator)
        train_predictor(predictor, x, labels, schedule)
        predictors.append(predictor.requires_grad_(False).eval())
    return tuple(predictors)


def _check(predictor: Predictor, x: Tensor, labels: Tensor) -> None:
    expected = (predictor.into.in_features, predictor.out.out_features)
    for name, value in {"x": x, "labels": labels}.items():
        if not isinstance(value, Tensor) or value.ndim != 2:
            what = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"got {name} {what}; expected a tensor with a row for each token, as collected.")
    if x.dtype != predictor.into.weight.dtype:
        raise ValueError(
            f"got x {x.dtype} and a predictor {predictor.into.weight.dtype}; expected one type. Convert x with x.to."
        )
    if len(x) == 0 or len(x) != len(labels) or (x.shape[1], labels.shape[1]) != expected:
        raise ValueError(
            f"got x {tuple(x.shape)} and labels {tuple(labels.shape)}; this predictor reads (tokens, {expected[0]}) "
            f"and says (tokens, {expected[1]}), of the same tokens, at least one. Collect both from one model."
        )
    if not bool(x.isfinite().all()):
        raise ValueError("got x with entries that are no numbers; look for what diverged in the model it is from.")
