"""Upcycling: what copies of a dense model's MLPs compute, and whether they learn more than the dense model.

Tables:

    copies       the default model with each MLP as four equal experts: perplexity by router, difference of the logits
    gradients    the byte model at the start: norms of the task's gradient with respect to routers and experts
    models       before and after 200 steps, as in `course reproduce moe`, with the column steps
    held_out, loads    during training, as there

The dense byte model is the one of `course reproduce byte_model`. All models are trained on its bytes again, in the same
order for a seed. Two copies per byte need twice the multiplications of its MLPs; the FLOP are in the tables. 23 minutes
with one thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses, byte_windows, load_half
from course_lib.attention.small_models.training import Schedule, batch_at, train
from course_lib.data.corpora import windows
from course_lib.lessons.moe.experiments import runs
from course_lib.lessons.moe.experiments.runs import BALANCED, Row, looking, model_row, text
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.perplexity import perplexity
from course_lib.models import DEFAULT_MODEL, load_model
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routing import Router
from course_lib.moe.small_models.training import Seen, forget, read, routing, train_mixture
from course_lib.moe.upcycling.copies import Difference
from course_lib.moe.upcycling.mixtral import upcycled
from course_lib.moe.upcycling.swapping import layers_inside, routed_by

ROUTERS: dict[str, Router] = {
    "top-2, renormalised": Mixtral(2),
    "top-2, as they are": OLMoE(2),
    "top-1, as they are": OLMoE(1),
}


def copied(model: str, n_experts: int, n_windows: int, length: int, seed: int) -> Tables:
    """Measure the perplexity with each router over identical experts, and the difference of the logits.

    Two experts need twice the multiplications of the dense MLP, because each copy is as large as the MLP.
    """
    dense, tokenizer = load_model(model)
    ids = windows("wikipedia", n_windows, length, tokenizer, split="evaluation", seed=seed)
    with torch.no_grad():
        expected = dense(ids[:1], use_cache=False).logits
    rows = [row(dense, "dense", ids, expected)]
    mixture = upcycled(dense, n_experts, 2, generator=torch.Generator().manual_seed(seed))
    for name, router in ROUTERS.items():
        with routed_by(mixture, router):
            rows.append(row(mixture, name, ids, expected))
    return {"copies": rows}


def row(model: PreTrainedModel, name: str, ids: Int[Tensor, "N T"], expected: Float[Tensor, "1 T V"]) -> Row:
    result = perplexity(model, ids, progress=False)
    found = {"router": name, "parameters": sum(weight.numel() for weight in model.parameters())}
    found |= {"perplexity": result.value, "standard_error": result.standard_error}
    with torch.no_grad():
        difference = (model(ids[:1], use_cache=False).logits - expected).abs().max().item()
    found |= {"largest_difference": difference, "largest_logit": expected.abs().max().item()}
    return found | {"losses": [round(loss, 5) for loss in result.losses]}


DENSE = "dense, trained on"


@dataclass(frozen=True)
class Arm:
    """k of four copies per byte, and how the copies differ."""

    k: int
    difference: Difference = field(default_factory=Difference)


ARMS = {
    "copies, top-2": Arm(2),
    "copies with noise, top-2": Arm(2, Difference(noise=0.1)),
    "half redrawn, top-2": Arm(2, Difference(redrawn=0.5)),
    "copies, top-1": Arm(1),  # as many multiplications per byte as the dense model
}
NAMES = (DENSE, *ARMS)


def learnt(sizes: runs.Sizes, name: str, seed_of_run: int, seed: int) -> Tables:
    """Measure a model before and after the same steps on the same bytes, and a mixture's gradients at the start."""
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
    """Yield the trained dense model, or a mixture of its copies with its router, in training mode."""
    dense = load_half()
    if name == DENSE:
        yield dense.train(), []
        return
    arm = ARMS[name]
    mixture = upcycled(dense, 4, arm.k, arm.difference, torch.Generator().manual_seed(seed)).train()
    with routing(mixture, Mixtral(arm.k), seed) as seen:
        yield mixture, seen


def gradient_row(model: PreTrainedModel, seen: Seen, ids: torch.Tensor) -> Row:
    """Return norms of the gradient of the task's loss over all blocks, with respect to routers and to experts."""
    model.zero_grad()
    byte_losses(model, ids).mean().backward()
    layers = layers_inside(model)
    gates = torch.stack([layer.gate.grad.norm() for layer in layers]).norm()
    experts = torch.stack([layer.experts.into.grad.norm() for layer in layers]).norm()
    model.zero_grad()
    forget(seen)
    return {"gate_gradient": gates.item(), "expert_gradient": experts.item()}


BYTES = runs.Sizes(
    NAMES, n_experts=4, schedule=Schedule(200, 16, 128, 1e-3, 20, 0.1), looks=(25, 50, 100, 200),
    loads=(1, 10, 25, 50, 100, 200),
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Windows for the default model, and the training of the byte models."""

    model: str = DEFAULT_MODEL
    n_experts: int = 4
    windows: int = 20
    length: int = 256
    bytes: runs.Sizes = field(default_factory=lambda: BYTES)


QUICK = Sizes(
    windows=2, length=16,
    bytes=replace(
        BYTES, seeds=(0,), schedule=Schedule(2, 2, 16, 1e-3, 1, 0.1), texts=3, looks=(1, 2), loads=(1, 2), fewer=2,
        evaluation=3,
    ),
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    of_text = (sizes.n_experts, sizes.windows, sizes.length)
    plan = [Step("copies", partial(copied, sizes.model, *of_text))]
    for seed in sizes.bytes.seeds:
        plan += [Step(f"{name}, seed {seed}", partial(learnt, sizes.bytes, name, seed)) for name in sizes.bytes.kinds]
    return plan


EXPERIMENT = Experiment("Experts from a dense model", Sizes(), QUICK, steps)
