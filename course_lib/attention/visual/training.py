"""Train the small vision-language model, store and load its weights.

First the encoder is trained by itself: it predicts for each patch its digit, or clutter, or blank. Large models start
with an encoder that was trained on captions. Then the whole model is trained on all questions about a canvas, so each
encoded image has the training signal of five questions. `course reproduce visual_model` trains it.

Dimension key: B canvases, P pixels of a side, N patches, Q questions, W words of a question.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from jaxtyping import Float, Int, UInt8
from safetensors import safe_open
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.attention.small_models.training import Schedule, write
from course_lib.attention.visual.canvas import CLUTTER, Canvases, question_ids
from course_lib.attention.visual.model import Shape, SmallVLM

WEIGHTS = Path(__file__).with_name("weights") / "visual_model.safetensors"


# The shared loop samples the numbers of canvases as sequences of length 1: length 0 after the first token.
ENCODER = Schedule(n_steps=300, batch=32, length=0, rate=3e-3, warm_up=40, decay=0.1)
WHOLE = Schedule(n_steps=700, batch=32, length=0, rate=2e-3, warm_up=100, decay=0.1)


class Namer(nn.Module):
    """The encoder, and a classification head that is only needed for its training."""

    def __init__(self, model: SmallVLM, generator: torch.Generator):
        super().__init__()
        self.model = model
        self.head = nn.Linear(model.shape.width, CLUTTER + 1, bias=False)
        nn.init.normal_(self.head.weight, std=model.shape.width**-0.5, generator=generator)

    def forward(self, images: UInt8[Tensor, "B P P"]) -> Float[Tensor, "B N names"]:
        return self.head(self.model.visual(images))


@dataclass(frozen=True)
class Naming:
    """Training data of the encoder: for canvases with given numbers, the object of each patch."""

    canvases: Canvases

    def __call__(self, namer: Namer, numbers: Int[Tensor, "B 1"]) -> Float[Tensor, "B N"]:
        """Return the loss of each patch, in nats."""
        images, belongs = self.canvases.images[numbers[:, 0]], self.canvases.belongs[numbers[:, 0]]
        return cross_entropy(namer(images).transpose(1, 2), belongs, reduction="none")


@dataclass(frozen=True)
class Answering:
    """Training data of the whole model: for canvases with given numbers, the answer to every question."""

    canvases: Canvases

    def __call__(self, model: SmallVLM, numbers: Int[Tensor, "B 1"]) -> Float[Tensor, "B Q"]:
        """Return the loss of each answer, in nats."""
        images, answers = self.canvases.images[numbers[:, 0]], self.canvases.answers[numbers[:, 0]]
        logits = model(images, question_ids().expand(len(images), -1, -1))
        return cross_entropy(logits.transpose(1, 2), answers, reduction="none")


@torch.no_grad()
def right(model: SmallVLM, canvases: Canvases, size: int = 200) -> Float[Tensor, "B Q"]:
    """Return 1 for each right answer, otherwise 0."""
    said = [model(images, question_ids().expand(len(images), -1, -1)) for images in canvases.images.split(size)]
    return (torch.cat(said).argmax(dim=2) == canvases.answers).float()


def save(model: SmallVLM, path: Path = WEIGHTS) -> Path:
    """Write float16 weights and the sizes that `load` needs, completely or not at all."""
    halves = {name: weight.detach().half().contiguous() for name, weight in model.named_parameters()}
    return write(as_bytes(halves, {name: str(size) for name, size in asdict(model.shape).items()}), path)


def load(path: Path = WEIGHTS) -> SmallVLM:
    """Load the trained model in float32, in evaluation mode.

    Raises:
        ValueError: there is no such file.
    """
    if not path.exists():
        raise ValueError(f"got {path}, which is not there; train the model with `course reproduce visual_model`.")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    model = SmallVLM(Shape(**{field.name: int(metadata[field.name]) for field in fields(Shape)}), torch.Generator())
    model.load_state_dict(load_file(path))  # float16 is copied into float32
    return model.eval()
