"""The settings of a distillation, the checks before it starts, and the order of its batches."""

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Literal

import torch
from jaxtyping import Int
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.attention.small_models.training import Schedule
from course_lib.models import blocks, check_length
from course_lib.repetition import digest_of, seeded, settings_of
from course_lib.settings import check_count, check_number, check_option, check_seed


def short_schedule() -> Schedule:
    """40 steps of 4 × 128 tokens; the learning rate rises to 3e-4 in 10 steps and then falls to a tenth of that."""
    return Schedule(n_steps=40, batch=4, length=128, rate=3e-4, warm_up=10, decay=0.01)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a distillation.

    Args:
        loss: "kl" compares with the teacher's probabilities; "next token" uses only the text, as a control.
        hidden: weight of the loss on hidden states, relative to the loss on logits; 0 for no such loss.
        lora_rank: train adapters of this rank on every linear layer instead of all weights; 0 to train all weights.
        every: number of steps between two saved states.
    """

    schedule: Schedule = field(default_factory=short_schedule)
    loss: Literal["kl", "next token"] = "kl"
    temperature: float = 1.0
    hidden: float = 0.0
    lora_rank: int = 0
    seed: int = 0
    every: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise ValueError(f"got schedule {self.schedule!r}; expected a Schedule, such as short_schedule().")
        check_option("loss", self.loss, ("kl", "next token"))
        check_number("temperature", self.temperature, above=True)
        check_number("hidden", self.hidden)
        check_count("lora_rank", self.lora_rank, least=0)
        check_seed("seed", self.seed)
        check_count("every", self.every)


def batch_of(windows: Int[Tensor, "N T"], recipe: Recipe, step: int) -> Int[Tensor, "B T"]:
    """Return the windows of a step; each epoch has a random order that depends only on the seed and the epoch."""
    size = recipe.schedule.batch
    epoch, place = divmod(step, len(windows) // size)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch))
    return windows[order[place * size : (place + 1) * size]]


def with_adapters(student: PreTrainedModel, recipe: Recipe) -> nn.Module:
    """Return the student with all weights trainable, or with adapters as the only trainable weights."""
    if not recipe.lora_rank:
        return student.requires_grad_(True)
    settings = LoraConfig(r=recipe.lora_rank, lora_alpha=2 * recipe.lora_rank, target_modules="all-linear")
    with seeded(recipe.seed):
        return get_peft_model(student, settings)


def identity(
    student: PreTrainedModel,
    teacher: PreTrainedModel | None,
    windows: Tensor,
    recipe: Recipe,
    of_teacher: list[int],
) -> dict[str, str]:
    """Return digests of everything that must be the same for a run to be resumed.

    Args:
        of_teacher: for each block of the student the block of the teacher that it is compared with, or empty.
    """
    settings = hashlib.sha256(repr(asdict(recipe) | {"every": 0}).encode()).hexdigest()[:16]
    return {
        "student": digest_of(student.named_parameters()),
        "student configuration": settings_of(student),
        "teacher": digest_of([] if teacher is None else teacher.named_parameters()),
        "teacher configuration": "" if teacher is None else settings_of(teacher),
        "text": digest_of([("windows", windows)]),
        "recipe": settings,
        "of_teacher": repr(of_teacher),
    }


def check(
    student: PreTrainedModel, teacher: PreTrainedModel | None, windows: Tensor, recipe: Recipe, of_teacher: list[int]
) -> None:
    """Raise ValueError if student, teacher, windows and recipe do not fit each other."""
    if not isinstance(windows, Tensor):
        raise ValueError(f"got windows {type(windows).__name__}; expected a tensor of token ids (n, T).")
    if windows.ndim != 2 or windows.shape[1] < 2 or len(windows) < recipe.schedule.batch:
        raise ValueError(
            f"got windows of shape {tuple(windows.shape)}; expected at least {recipe.schedule.batch} of them, one "
            "batch, of at least two tokens. Use corpora.windows('wikipedia', 128, 128, ...)."
        )
    size = student.config.vocab_size
    if windows.is_floating_point() or int(windows.min()) < 0 or int(windows.max()) >= size:
        raise ValueError(
            f"got windows of {windows.dtype} from {windows.min().item()} to {windows.max().item()}; expected token "
            f"ids, 0 to {size - 1}. Make the windows with this model's tokenizer."
        )
    check_length(student, windows.shape[1])
    if recipe.loss == "next token":
        return
    if teacher is None:
        raise ValueError("got no teacher for the loss 'kl'; give the unpruned model, or use loss='next token'.")
    ours, theirs = student.config.vocab_size, teacher.config.vocab_size
    if ours != theirs:
        raise ValueError(
            f"got vocabularies of size {ours} and {theirs}; expected one vocabulary. Distil from a model "
            "with the same tokenizer."
        )
    check_length(teacher, windows.shape[1])
    if recipe.hidden > 0:
        _check_states(student, teacher, of_teacher)


def _is_block(index: object, n_blocks: int) -> bool:
    return hasattr(index, "__index__") and 0 <= index < n_blocks


def _check_states(student: PreTrainedModel, teacher: PreTrainedModel, of_teacher: list[int]) -> None:
    if student.config.hidden_size != teacher.config.hidden_size:
        raise ValueError(
            f"got hidden states of width {student.config.hidden_size} and {teacher.config.hidden_size}; expected one "
            "width. Set hidden=0 for a student whose width was pruned."
        )
    n_ours, n_theirs = len(blocks(student)), len(blocks(teacher))
    if len(of_teacher) != n_ours or not all(_is_block(index, n_theirs) for index in of_teacher):
        raise ValueError(
            f"got of_teacher={of_teacher}; expected for each of the student's {n_ours} blocks the index of its block "
            f"among the teacher's {n_theirs}. Give kept.blocks.tolist() of the pruned model."
        )
