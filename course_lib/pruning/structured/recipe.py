"""How a student learns: the settings of a distillation, what must fit before it begins, and which batch comes when."""

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
    """40 steps of 4 × 128 tokens, the rate rising to 3e-4 over 10 and falling to a tenth."""
    return Schedule(n_steps=40, batch=4, length=128, rate=3e-4, warm_up=10, decay=0.01)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings.

    Args:
        loss: "kl" from the teacher's probabilities, "next token" from the text alone, as a control.
        hidden: weight of the loss on hidden states, relative to that on the logits; 0 leaves it out.
        lora_rank: adapters of that rank on every linear learn in place of all weights; 0 for all weights.
        every: steps between two states on the disk.
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
    """The windows of a step: every epoch is an order of its own, drawn from the seed and the epoch alone."""
    size = recipe.schedule.batch
    epoch, place = divmod(step, len(windows) // size)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch))
    return windows[order[place * size : (place + 1) * size]]


def with_adapters(student: PreTrainedModel, recipe: Recipe) -> nn.Module:
    """The student itself, or the student with adapters that learn in its place."""
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
    """What must be the same for a run to go on, in digests.

    Args:
        of_teacher: the teacher's blocks that the student's are compared with; empty where none is.
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
    """Raises ValueError for what cannot be distilled."""
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
        raise ValueError("got no teacher for the loss 'kl'; give the model that was cut, or use loss='next token'.")
    ours, theirs = student.config.vocab_size, teacher.config.vocab_size
    if ours != theirs:
        raise ValueError(
            f"got a student of {ours} words and a teacher of {theirs}; expected one vocabulary. Distil from a model "
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
            "width. Set hidden=0 for a student that lost width."
        )
    n_ours, n_theirs = len(blocks(student)), len(blocks(teacher))
    if len(of_teacher) != n_ours or not all(_is_block(index, n_theirs) for index in of_teacher):
        raise ValueError(
            f"got of_teacher={of_teacher}; expected for each of the student's {n_ours} blocks which of the teacher's "
            f"{n_theirs} it was. Give kept.blocks.tolist() of the cut."
        )
