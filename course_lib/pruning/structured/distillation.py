"""Distillation of a pruned student from its teacher. Minitron, Muralidharan and others, 2024,
https://arxiv.org/abs/2407.14679 (section 3)

A run can be interrupted at any time. Its state is written atomically, and a resumed run has the same losses, bit for
bit, as an uninterrupted one on the same machine.

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
    """The loss or its gradient is NaN or infinite. The student has the weights after the last successful step."""


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
    """Train the student in place. Returns the loss before each step, including those of an interrupted run.

    Args:
        teacher: runs in evaluation mode without gradients, and is not changed. None for the loss "next token".
        windows: token ids (N, T). Each epoch takes whole batches of them in a new random order.
        folder: directory for the state of the run. Without one, the run cannot be resumed.
        of_teacher: for each block of the student, the index of the teacher's block that it comes from. Only the loss on
            hidden states needs it.
        until: stop before this step of the schedule. To continue from the folder, repeat the call with a later step and
            with the student in its initial state.

    Raises:
        ValueError: before any step, for models, windows or a stored state that do not fit together.
        NotFinite: when a loss or its gradient is NaN or infinite.
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
    """A run of distillation: student, teacher, optimiser and the losses so far."""

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
        uses_states = recipe.loss == "kl" and recipe.hidden > 0
        self.compared = [list(blocks(model)) if uses_states else [] for model in (student, teacher)]
        pairs = self.of_teacher if uses_states else []
        self.identity = identity(student, teacher, windows, recipe, pairs) if self.path else {}
        self.model = with_adapters(student, recipe)
        optimiser = torch.optim.AdamW(groups(self.model, recipe.schedule.decay), betas=(0.9, 0.95))
        on_cpu = student.device.type == "cpu"
        self.accelerator = Accelerator(mixed_precision="no" if on_cpu else "bf16", cpu=on_cpu)
        self.learner, self.optimiser = self.accelerator.prepare(self.model, optimiser)
        if teacher is not None:
            teacher.eval()  # otherwise the student would learn from outputs with dropout noise

    def end(self, until: int | None) -> int:
        """Return the step before which to stop."""
        if until is not None and until < len(self.losses):
            raise ValueError(
                f"got until={until}, and a run in {self.path.parent} that is at step {len(self.losses)} already; "
                "expected a later step. Use another folder to start again."
            )
        return self.recipe.schedule.n_steps if until is None else min(until, self.recipe.schedule.n_steps)

    def step(self, step: int) -> None:
        """Train on one batch: loss, gradient (clipped to norm 1), AdamW step."""
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
        """Compute the next-token loss, or L_logits + hidden · α · L_states.

        α = L_logits / L_states is treated as a constant, so both terms are equal in size for hidden = 1.
        """
        student_blocks, teacher_blocks = self.compared
        with block_outputs(student_blocks) as states:
            student_output = self.learner(ids, use_cache=False)
        if self.recipe.loss == "next token":
            return next_token(student_output.logits, ids)
        with torch.no_grad(), self.accelerator.autocast(), block_outputs(teacher_blocks) as teacher_states:
            teacher_output = self.teacher(ids, use_cache=False)
        loss = kl_divergence(student_output.logits, teacher_output.logits, self.recipe.temperature)
        if states:
            state_loss = hidden_states(states, [teacher_states[index] for index in self.of_teacher])
            alpha = loss.detach() / state_loss.detach().clamp_min(1e-12)
            loss = loss + self.recipe.hidden * alpha * state_loss
        return loss

    def _must_be_finite(self, what: str, value: Tensor, step: int) -> None:
        if not bool(value.isfinite()):
            raise NotFinite(
                f"the {what} of step {step + 1} is {value.item()}; the student has the weights of step {step}. Lower "
                f"the rate ({self.recipe.schedule.rate:g}), warm up for longer, or look for NaN in the teacher."
            )

    def leave(self) -> None:
        """Restore modes and flags of both models, merge the adapters, and put the student in evaluation mode."""
        for module, was_training in self.modes.items():
            module.training = was_training
        if self.recipe.lora_rank:
            self.model.merge_and_unload()
        for parameter, requires_grad in self.needed.items():
            parameter.requires_grad_(requires_grad)
            parameter.grad = None
        self.student.eval()

    def resume(self) -> None:
        """Restore the stored state, if there is one. Raises ValueError for the state of another run."""
        if self.path is not None and self.path.exists():
            self.losses = restore(self.path, self.identity, self.model, self.optimiser)
