"""Train a byte-level language model in pieces; each piece resumes from the end of the one before.

Dimension key: T bytes, B sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses
from course_lib.attention.small_models.training import Schedule, batch_at, groups
from course_lib.contextual.predictor.checkpoint import Run
from course_lib.repetition import digest_of, seeded_step
from course_lib.settings import check_count


@dataclass(frozen=True)
class Piece:
    """Steps `start` to `stop` of a training, without `stop`; `path` is the file for the state between two pieces."""

    start: int
    stop: int
    path: Path

    def __post_init__(self) -> None:
        check_count("start", self.start, least=0)
        check_count("stop", self.stop, least=self.start)
        if not isinstance(self.path, Path):
            raise ValueError(f"got path {self.path!r}; expected a pathlib.Path.")


def train_piece(
    model: PreTrainedModel,
    tokens: Int[Tensor, "T"],
    schedule: Schedule,
    seed: int,
    piece: Piece,
    look: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train in place, equal to `attention.small_models.training.train` in one run, to the last bit.

    If the state at `piece.start` is not on the disk, the steps before it are repeated without calling `look`.

    Args:
        model: with its initial weights.
        look: called after each step of the piece, with the loss before it.

    Raises:
        ValueError: the file belongs to a training with other initial weights, text, seed or settings.
    """
    model.train()
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(groups(model, schedule.decay), betas=(0.9, 0.95))
    first, text = digest_of(model.named_parameters()), digest_of([("bytes", tokens)])
    label = f"{schedule}, seed {seed}, {len(tokens)} bytes {text}, first weights {first}, {model.config.to_dict()}"
    run = Run(model, optimiser, generator, label)
    if piece.start:
        run.resume(piece.path, at=piece.start)

    while run.step < piece.stop:
        step = run.step
        with seeded_step(seed, step):
            loss = byte_losses(model, batch_at(tokens, schedule, generator)).mean()
        value = run.update(loss, schedule.rate_at(step), most=1.0)
        if step >= piece.start:
            look(step, value)
    run.save(piece.path)
