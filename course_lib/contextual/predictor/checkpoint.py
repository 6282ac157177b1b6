"""Training that may be killed at any step: learner, optimiser, generator and step in one file, whole or not at all."""

import io
import math
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.attention.small_models.training import write


@dataclass
class Run:
    """All that a training run changes. Two runs with equal states go on alike, to the last bit.

    Args:
        label: of what is trained on what; a file with another label belongs to another run.
    """

    learner: nn.Module
    optimiser: torch.optim.Optimizer
    generator: torch.Generator
    label: str
    losses: list[float] = field(default_factory=list)  # before each step so far

    @property
    def step(self) -> int:
        return len(self.losses)

    def update(self, loss: Tensor, rate: float, most: float | None = None) -> float:
        """One step down the gradient of a loss, which it gives back as a number.

        Args:
            rate: of this step.
            most: the length to which the gradient is cut.

        Raises:
            ValueError: for a loss that is no number; nothing has changed then.
        """
        value = loss.item()
        if not math.isfinite(value):
            raise ValueError(
                f"got a loss of {value} at step {self.step}; expected a number. The learner is as it was before this "
                "step; train with a lower rate, and look for inputs that are no numbers."
            )
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad()
        loss.backward()
        if most is not None:
            nn.utils.clip_grad_norm_(self.learner.parameters(), most)
        self.optimiser.step()
        self.losses.append(value)
        return value

    def save(self, path: Path) -> None:
        """The file changes in one step, so that a kill leaves the old state or the new one."""
        buffer = io.BytesIO()
        state = {"label": self.label, "losses": self.losses, "generator": self.generator.get_state()}
        torch.save(state | {part: getattr(self, part).state_dict() for part in ("learner", "optimiser")}, buffer)
        write(buffer.getvalue(), path)

    def resume(self, path: Path, at: int | None = None) -> bool:
        """Take over what `save` wrote, if it is there; where `at` says a step, only a state of that step.

        Raises:
            ValueError: for a file of another run, or one that cannot be read.
        """
        if not path.exists():
            return False
        if not zipfile.is_zipfile(path):  # what torch writes is one, to the last byte
            raise ValueError(f"got {path}, which cannot be read; delete it to start again.")
        state = torch.load(path, weights_only=True)
        if state.get("label") != self.label:
            raise ValueError(
                f"got {path} of another run, {state.get('label')!r}; expected {self.label!r}. Delete it, or take "
                "another file."
            )
        if at is not None and len(state["losses"]) != at:
            return False
        self.learner.load_state_dict(state["learner"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
        self.losses = state["losses"]
        return True
