"""What learning a prompt leaves on the disk so that it can be killed at any moment: written whole or not at all."""

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
    """Held-out windows before a step: the mean loss of each, in nats a token."""

    step: int
    losses: tuple[float, ...] = field(repr=False)

    @property
    def mean(self) -> float:
        return sum(self.losses) / len(self.losses)


@dataclass(frozen=True, eq=False)
class Trained:
    """A prompt that has learned.

    Args:
        losses: of the batch before each step.
        looks: before a step each, and one after the last.
    """

    prompt: SoftPrompt
    losses: list[float] = field(repr=False)
    looks: list[Look] = field(repr=False)


class NotFinite(RuntimeError):
    """A loss or its gradient was no number; `trained` has the vectors of the last loss that was one."""

    def __init__(self, message: str, trained: Trained) -> None:
        super().__init__(message)
        self.trained = trained


@dataclass
class Run:
    """All that changes from step to step; two runs with equal states go on alike, to the last bit.

    Attributes:
        sound: the vectors of the last loss that was a number.
    """

    vectors: Tensor
    optimiser: torch.optim.Optimizer
    sound: Tensor
    losses: list[float] = field(default_factory=list)  # before each step so far
    looks: list[Look] = field(default_factory=list)

    def save(self, path: Path, identity: dict[str, str]) -> None:
        """Three numbers for each of the vectors', and the losses so far."""
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
        """Take over what `save` wrote, if it is there.

        Raises:
            ValueError: for a file of another run, or one that cannot be read.
        """
        if not path.exists():
            return
        if not zipfile.is_zipfile(path):  # what torch writes is one, to the last byte
            raise ValueError(f"got {path}, which cannot be read; remove it to begin anew.")
        state = torch.load(path, weights_only=True, map_location=self.vectors.device)
        kept = state["identity"]
        if different := [key for key in identity if kept.get(key) != identity[key]]:
            raise ValueError(
                f"got {path}, the state of a run with another {', '.join(different)}. Use another folder, or remove "
                "that file to begin anew."
            )
        with torch.no_grad():
            self.vectors.copy_(state["vectors"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.sound, self.losses = state["sound"], state["losses"]
        self.looks = [Look(step, tuple(losses)) for step, losses in state["looks"]]

    def trained(self, vectors: Tensor, learning: SoftPrompt) -> Trained:
        """What has become of a prompt, in copies."""
        prompt = replace(learning, vectors=vectors.detach().clone())
        return Trained(prompt, list(self.losses), list(self.looks))
