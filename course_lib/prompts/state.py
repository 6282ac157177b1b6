"""The state of a prompt-tuning run on the disk. It is written atomically, so that an interrupted run can resume."""

import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from course_lib.prompts.soft import SoftPrompt
from course_lib.pruning.stream.safetensors_io import whole

STATE = "prompt.pt"


@dataclass(frozen=True)
class Look:
    """An evaluation on held-out windows before a step: the mean loss of each window, in nats per token."""

    step: int
    losses: tuple[float, ...] = field(repr=False)

    @property
    def mean(self) -> float:
        return sum(self.losses) / len(self.losses)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained prompt.

    Args:
        losses: loss of the batch before each step, in nats per token.
        looks: evaluations on held-out windows, the last one after the final step.
    """

    prompt: SoftPrompt
    losses: list[float] = field(repr=False)
    looks: list[Look] = field(repr=False)


class NotFinite(RuntimeError):
    """The loss or its gradient is NaN or infinite. `trained` holds the vectors with the last finite loss."""

    def __init__(self, message: str, trained: Trained) -> None:
        super().__init__(message)
        self.trained = trained


@dataclass
class Run:
    """Everything that changes from step to step. Two runs with equal states continue bit-identically.

    Attributes:
        sound: the vectors with the last finite loss.
    """

    vectors: Tensor
    optimiser: torch.optim.Optimizer
    sound: Tensor
    losses: list[float] = field(default_factory=list)  # before each step so far
    looks: list[Look] = field(default_factory=list)

    def save(self, path: Path, identity: dict[str, str]) -> None:
        """Write the vectors, their two AdamW moments, the vectors of the last finite loss, and the losses so far."""
        state = {
            "identity": identity,
            "vectors": self.vectors.detach(),
            "sound": self.sound,
            "optimiser": self.optimiser.state_dict(),
            "losses": self.losses,
            "looks": [(look.step, look.losses) for look in self.looks],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as file:
            torch.save(state, file)

    def resume(self, path: Path, identity: dict[str, str]) -> None:
        """Restore the state that `save` wrote, if the file exists.

        Raises:
            ValueError: the file belongs to a run with other settings, or cannot be read.
        """
        if not path.exists():
            return
        if not zipfile.is_zipfile(path):  # torch.save writes a zip archive, whose directory comes last
            raise ValueError(f"got {path}, which cannot be read; remove it to start again.")
        state = torch.load(path, weights_only=True, map_location=self.vectors.device)
        stored_identity = state["identity"]
        if different := [key for key in identity if stored_identity.get(key) != identity[key]]:
            raise ValueError(
                f"got {path}, the state of a run with another {', '.join(different)}. Use another folder, or remove "
                "that file to start again."
            )
        with torch.no_grad():
            self.vectors.copy_(state["vectors"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.sound, self.losses = state["sound"], state["losses"]
        self.looks = [Look(step, tuple(losses)) for step, losses in state["looks"]]

    def trained(self, vectors: Tensor, learning: SoftPrompt) -> Trained:
        """Return the trained prompt with copies of the vectors, losses and evaluations."""
        prompt = replace(learning, vectors=vectors.detach().clone())
        return Trained(prompt, list(self.losses), list(self.looks))
