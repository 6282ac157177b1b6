"""Distillation, as in Minitron (Muralidharan and others, 2024, section 3): a student learns to say what a teacher says.

A run can be killed at any moment: what it needs to go on is written whole or not at all, and the same command gives the
same losses to the last bit on the same machine.

Dimension key: N windows, B of them in a batch, T tokens.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.training import groups
from course_lib.measure.progress import tracked
from course_lib.models import blocks
from course_lib.pruning.structured.losses import block_outputs, hidden_states, kl_divergence, next_token
from course_lib.pruning.structured.recipe import Recipe, batch_of, check, identity, with_adapters
from course_lib.pruning.structured.state import STATE, restore, save
from course_lib.repetition import seeded_step
from course_lib.settings import check_stop


class NotFinite(RuntimeError):
    """The loss or its gradient was no number. The student has the weights of the last sound step."""


def distil(
    student: PreTrainedModel,
    teacher: PreTrainedModel | None,
    windows: Int[Tensor, "N T"],
    recipe: Recipe | None = None,
    *,
    folder: Path | None = None,
    of_teacher: Sequence[int] = (),
    until: int | None = None,
    progress: bool = True,
) -> list[float]:
    """Train the student in place; the loss before each step, those of an interrupted run included.

    Args:
        teacher: stays as it is, and is asked in evaluation mode and without gradients; None where the loss asks nobody.
        windows: token ids (n, T); all come once before any comes again.
        folder: where the state of the run is kept; without one nothing can be resumed.
        of_teacher: which of the teacher's blocks each of the student's was, for the loss on their outputs.
        until: go no further than to this step of the schedule; the same call with a later one, and the student as it
            was at the beginning, goes on from the folder.

    Raises:
        ValueError: before any step, for models, windows or a state on the disk that do not go together.
        NotFinite: when a loss is NaN or infinite, or its gradient.
    """
    recipe = recipe or Recipe()
    check_stop(until, folder)
    check(student, teacher, windows, recipe, list(of_teacher))
    run = _Run(student, teacher, windows, recipe, folder, list(of_teacher))
    try:
        run.resume()
        end = run.end(until)
        for step in tracked(range(len(run.losses), end), "distilling", progress):
            run.step(step)
            if run.path is not None and (len(run.losses) % recipe.every == 0 or step + 1 == end):
                save(run.path, run.identity, run.model, run.optimiser, run.losses)
    finally:
        run.leave()
    return run.losses


class _Run:
    """A student on its way: what changes from step to step."""

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel | None,
        windows: Int[Tensor, "N T"],
        recipe: Recipe,
        folder: Path | None,
        of_teacher: list[int],
    ):
        self.student, self.teacher, self.windows, self.recipe = student, teacher, windows, recipe
        self.path, self.of_teacher = folder and Path(folder) / STATE, of_teacher
        self.losses: list[float] = []
        self.needed = {parameter: parameter.requires_grad for parameter in student.parameters()}
        self.modes = {} if teacher is None else {module: module.training for module in teacher.modules()}
        compares = recipe.loss == "kl" and recipe.hidden > 0
        self.compared = [list(blocks(model)) if compares else [] for model in (student, teacher)]
        pairs = self.of_teacher if compares else []
        self.identity = identity(student, teacher, windows, recipe, pairs) if self.path else {}
        self.model = with_adapters(student, recipe)
        optimiser = torch.optim.AdamW(groups(self.model, recipe.schedule.decay), betas=(0.9, 0.95))
        on_cpu = student.device.type == "cpu"
        self.accelerator = Accelerator(mixed_precision="no" if on_cpu else "bf16", cpu=on_cpu)
        self.learner, self.optimiser = self.accelerator.prepare(self.model, optimiser)
        if teacher is not None:
            teacher.eval()  # or its dropout would be learnt

    def end(self, until: int | None) -> int:
        """The step before which to stop."""
        if until is not None and until < len(self.losses):
            raise ValueError(
                f"got until={until}, and a run in {self.path.parent} that is at step {len(self.losses)} already; "
                "expected a later step. Use another folder to begin anew."
            )
        return self.recipe.schedule.n_steps if until is None else min(until, self.recipe.schedule.n_steps)

    def step(self, step: int) -> None:
        """One batch: the loss, its gradient, a step of AdamW."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.schedule.rate_at(step)
        self.learner.train()
        self.optimiser.zero_grad()
        with seeded_step(self.recipe.seed, step):  # the student's dropout
            loss = self._loss(batch_of(self.windows, self.recipe, step).to(self.student.device))
        self._must_be_finite("loss", loss, step)
        self.accelerator.backward(loss)
        self._must_be_finite("gradient", self.accelerator.clip_grad_norm_(self.learner.parameters(), 1.0), step)
        self.optimiser.step()
        self.losses.append(loss.item())

    def _loss(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        students_blocks, teachers_blocks = self.compared
        with block_outputs(students_blocks) as states:
            ours = self.learner(ids, use_cache=False)
        if self.recipe.loss == "next token":
            return next_token(ours.logits, ids)
        with torch.no_grad(), self.accelerator.autocast(), block_outputs(teachers_blocks) as their_states:
            theirs = self.teacher(ids, use_cache=False)
        loss = kl_divergence(ours.logits, theirs.logits, self.recipe.temperature)
        if states:
            beside = hidden_states(states, [their_states[index] for index in self.of_teacher])
            alpha = loss.detach() / beside.detach().clamp_min(1e-12)  # α = L_logits / L_states: both count alike
            loss = loss + self.recipe.hidden * alpha * beside
        return loss

    def _must_be_finite(self, what: str, value: Tensor, step: int) -> None:
        if not bool(value.isfinite()):
            raise NotFinite(
                f"the {what} of step {step + 1} is {value.item()}; the student has the weights of step {step}. Lower "
                f"the rate ({self.recipe.schedule.rate:g}), warm up for longer, or look for NaN in the teacher."
            )

    def leave(self) -> None:
        """Both models as they were before, but for what the student has learnt."""
        for module, was_training in self.modes.items():
            module.training = was_training
        if self.recipe.lora_rank:
            self.model.merge_and_unload()
        for parameter, needed in self.needed.items():
            parameter.requires_grad_(needed)
            parameter.grad = None
        self.student.eval()

    def resume(self) -> None:
        """Go on from what is on the disk, if there is something. Raises ValueError when it is of another run."""
        if self.path is not None and self.path.exists():
            self.losses = restore(self.path, self.identity, self.model, self.optimiser)
