"""Upcycled or trained on? The dense model of bytes and mixtures of its copies learn on, from the same tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses, byte_windows, load_half
from course_lib.attention.small_models.training import batch_at, train
from course_lib.lessons.moe.experiments.steps.kinds import BALANCED
from course_lib.lessons.moe.experiments.steps.looks import Row, model_row
from course_lib.lessons.moe.experiments.steps.runs import Sizes, looking, text
from course_lib.measure.experiment import Tables
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.small_models.training import Seen, forget, read, routing, train_mixture
from course_lib.moe.upcycling.copies import Difference
from course_lib.moe.upcycling.mixtral import upcycled
from course_lib.moe.upcycling.swapping import layers_inside

DENSE = "dense, trained on"


@dataclass(frozen=True)
class Arm:
    """k of four copies a byte, and in what they differ."""

    k: int
    difference: Difference = field(default_factory=Difference)


ARMS = {
    "copies, top-2": Arm(2),
    "copies with noise, top-2": Arm(2, Difference(noise=0.1)),
    "half redrawn, top-2": Arm(2, Difference(redrawn=0.5)),
    "copies, top-1": Arm(1),  # as many products a byte as the dense model
}
NAMES = (DENSE, *ARMS)


def learnt(sizes: Sizes, name: str, seed_of_run: int, seed: int) -> Tables:
    """Before, and after the same steps on the same bytes; of a mixture also what reaches its gate at the start."""
    run_seed = seed + seed_of_run
    tables: Tables = {"models": []}
    label, windows = {"model": name, "seed": run_seed}, byte_windows(sizes.evaluation)
    with inside(name, run_seed) as (model, seen):
        if seen:
            batch = batch_at(text(sizes.texts), sizes.schedule, torch.Generator().manual_seed(run_seed))
            tables["gradients"] = [label | gradient_row(model, seen, batch)]
        before = model_row(model, read(model, seen, windows), windows)
        look = looking(sizes, model, label, tables)
        if seen:
            arguments = (model, seen, text(sizes.texts), sizes.schedule, run_seed, BALANCED)
            train_mixture(*arguments, look=lambda *of: look(*of, seen))
        else:
            arguments = (model, text(sizes.texts), sizes.schedule, run_seed)
            train(*arguments, lambda step, nats: look(step, nats, [], []), byte_losses)
        after = model_row(model.eval(), read(model, seen, windows), windows)
    steps = {"steps": 0}, {"steps": sizes.schedule.n_steps}
    tables["models"] = [label | step | row for step, row in zip(steps, (before, after), strict=True)]
    return tables


@contextmanager
def inside(name: str, seed: int) -> Iterator[tuple[PreTrainedModel, Seen]]:
    """The trained dense model, or its copies by their router, ready to learn."""
    dense = load_half()
    if name == DENSE:
        yield dense.train(), []
        return
    arm = ARMS[name]
    mixture = upcycled(dense, 4, arm.k, arm.difference, torch.Generator().manual_seed(seed)).train()
    with routing(mixture, Mixtral(arm.k), seed) as seen:
        yield mixture, seen


def gradient_row(model: PreTrainedModel, seen: Seen, ids: torch.Tensor) -> Row:
    """Norms of the gradient of the task's loss alone, over all blocks: of the gates, and of the experts."""
    model.zero_grad()
    byte_losses(model, ids).mean().backward()
    layers = layers_inside(model)
    gates = torch.stack([layer.gate.grad.norm() for layer in layers]).norm()
    experts = torch.stack([layer.experts.into.grad.norm() for layer in layers]).norm()
    model.zero_grad()
    forget(seen)
    return {"gate_gradient": gates.item(), "expert_gradient": experts.item()}
