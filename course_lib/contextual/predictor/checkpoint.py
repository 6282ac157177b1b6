"""Training that can be killed at any step: learner, optimiser, generator and step are stored atomically in one file."""

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
    """The state of a training run. Two runs with equal states continue in the same way, to the last bit.

    Args:
        label: describes what is trained on which data; a file with another label belongs to another run.
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
        """Take one step down the gradient of a loss, and return the loss as a number.

        Args:
            rate: the learning rate of this step.
            most: the maximum norm of the gradient; a longer gradient is clipped.

        Raises:
            ValueError: the loss is NaN or infinite; the state has not changed then.
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
        """Write the state to a file in one step, so that after a kill the file has the old state or the new one."""
        buffer = io.BytesIO()
        state = {"label": self.label, "losses": self.losses, "generator": self.generator.get_state()}
        torch.save(state | {part: getattr(self, part).state_dict() for part in ("learner", "optimiser")}, buffer)
        write(buffer.getvalue(), path)

    def resume(self, path: Path, at: int | None = None) -> bool:
        """Load the state that `save` wrote, if the file exists; with a step in `at`, only a state of that step.

        Raises:
            ValueError: the file belongs to another run, or cannot be read.
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
