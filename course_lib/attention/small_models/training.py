"""Train small language models from scratch: all variants get the same tokens in the same order and the same weights.

A token is a byte: this needs no trained tokenizer, and no large embedding table in a model with few weights.

Dimension key: B sequences, T tokens.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.attention.small_models.model import Shape, SinkLM
from course_lib.data.corpora import DOCUMENTS
from course_lib.repetition import seeded_step
from course_lib.settings import check_count, check_number

WEIGHTS = Path(__file__).with_name("weights")


@dataclass(frozen=True)
class Schedule:
    """AdamW with a learning rate that rises over `warm_up` steps and then falls along a cosine to a tenth."""

    n_steps: int = 4000
    batch: int = 8
    length: int = 256
    rate: float = 1.2e-2
    warm_up: int = 50
    decay: float = 0.1

    def __post_init__(self) -> None:
        for name, least in (("n_steps", 1), ("batch", 1), ("length", 0), ("warm_up", 0)):
            check_count(name, getattr(self, name), least)
        check_number("rate", self.rate, above=True)
        check_number("decay", self.decay)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.n_steps - self.warm_up)
        return self.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def training_texts() -> list[str]:
    """Return the documents of the calibration splits: Wikipedia articles and BoolQ paragraphs."""
    return [document for corpus in ("wikipedia", "boolq") for document in DOCUMENTS[corpus]("calibration")]


def running(texts: list[str]) -> Int[Tensor, "T"]:
    """Concatenate all texts as bytes, with an empty line between two texts."""
    return torch.frombuffer(bytearray("".join(f"{text}\n\n" for text in texts).encode()), dtype=torch.uint8).long()


def batch_at(tokens: Int[Tensor, "T"], schedule: Schedule, generator: torch.Generator) -> Int[Tensor, "B length"]:
    """Return samples that start at random places of the text, one token longer than the model's input."""
    starts = torch.randint(len(tokens) - schedule.length, (schedule.batch,), generator=generator)
    return tokens[starts[:, None] + torch.arange(schedule.length + 1)]


def losses(model: SinkLM, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T-1"]:
    """Return the negative log-likelihood of each token after the first, in nats."""
    logits, _ = model(ids[:, :-1])
    return cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def groups(model: nn.Module, decay: float) -> list[dict]:
    """Return parameter groups for AdamW: matrices decay, also stacked matrices of experts; vectors do not."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    return [
        {"params": [weight for weight in learning if weight.ndim >= 2], "weight_decay": decay},
        {"params": [weight for weight in learning if weight.ndim < 2], "weight_decay": 0.0},
    ]


def train(
    model: nn.Module,
    tokens: Int[Tensor, "T"],
    schedule: Schedule,
    seed: int,
    look: Callable[[int, float], None] = lambda step, loss: None,
    objective: Callable[[nn.Module, Tensor], Tensor] = losses,
) -> None:
    """Train the model in place. `look(step, loss)` is called after every step, with the loss before it.

    Args:
        objective: the loss of sequences (B, length + 1), whose mean is minimised.
    """
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(groups(model, schedule.decay), betas=(0.9, 0.95))
    for step in range(schedule.n_steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate_at(step)
        with seeded_step(seed, step):
            loss = objective(model, batch_at(tokens, schedule, generator)).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        look(step, loss.item())


def save(model: SinkLM, folder: Path) -> Path:
    """Write float16 weights and what `load` needs to build the model, completely or not at all."""
    metadata = {"variant": model.variant} | {name: str(size) for name, size in asdict(model.shape).items()}
    halves = {name: weight.detach().half().contiguous() for name, weight in model.named_parameters()}
    return write(as_bytes(halves, metadata), file_of(model.variant, folder))


def write(content: bytes, path: Path) -> Path:
    """Replace the file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    return temporary.replace(path)


def file_of(variant: str, folder: Path) -> Path:
    return folder / f"{variant.replace(' ', '_')}.safetensors"


def load(variant: str, folder: Path = WEIGHTS) -> SinkLM:
    """Load a trained model in float32: "vanilla", "zero sink" or "learnable sink"."""
    path = file_of(variant, folder)
    if not path.exists():
        raise ValueError(f"got {path}, which is not there; train the models with `course reproduce sink_pretraining`.")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    shape = Shape(**{field.name: int(metadata[field.name]) for field in fields(Shape)})
    model = SinkLM(shape, variant, torch.Generator())
    model.load_state_dict(load_file(path))  # float16 is copied into float32
    return model.eval()
