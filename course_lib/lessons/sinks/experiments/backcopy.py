"""Make a sink form within minutes: one-layer models on bigram-backcopy, with and without a slot for unused attention.

Guo and others, 2024, https://arxiv.org/abs/2410.13835, section 2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.attention.small_models.backcopy import Language, attention_of, excess, value_norms
from course_lib.attention.small_models.model import VARIANTS, Shape, SinkLM
from course_lib.attention.small_models.streaming import first_slots
from course_lib.attention.small_models.training import Schedule, train, training_texts
from course_lib.measure.experiment import Experiment, Step, Tables


@dataclass(frozen=True)
class Sizes:
    """The models, their training, and what is evaluated."""

    shape: Shape = field(default_factory=lambda: Shape(32, 32, 1, 1, 8))
    schedule: Schedule = field(default_factory=lambda: Schedule(1500, 64, 64, 1e-2, 50, 0.0))
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    texts: int = 300  # documents for counting letters
    training_tokens: int = 2**19
    window: int = 32
    caches: tuple[int, ...] = (0, 1, 2, 4)  # sinks among the slots
    sequences: int = 32  # streamed
    length: int = 256
    look_every: int = 50
    hidden: tuple[int, ...] = (16, 64)
    sample: int = 28  # letters whose attention is stored for a figure


QUICK = Sizes(
    Shape(12, 8, 1, 1, 4), Schedule(6, 4, 16, 1e-2, 2, 0.0), (0,), 3, 400, 8, caches=(0, 1), sequences=3, length=24,
    look_every=3, hidden=(8,),
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    """List the steps: every variant with every seed, then wider MLPs after the head, which could undo its output."""
    plan = [
        Step(f"{variant}, seed {n}", partial(trained, sizes, variant, n)) for n in sizes.seeds for variant in VARIANTS
    ]
    return plan + [
        Step(f"{hidden} hidden units, seed {n}", partial(widened, sizes, hidden, n))
        for hidden in sizes.hidden
        for n in sizes.seeds
    ]


def language(sizes: Sizes) -> Language:
    return Language.of("\n".join(training_texts()[: sizes.texts]), sizes.shape.vocabulary)


def trained(sizes: Sizes, variant: str, offset: int, seed: int) -> Tables:
    """Train one model: when a sink appears, the final attention, and the cost of a stream without first slots."""
    spoken, label = language(sizes), {"variant": variant, "seed": seed + offset}
    ids = evaluated(sizes, spoken, seed + offset)
    seen = []

    def look(model: SinkLM, step: int, loss: float) -> None:
        if (step + 1) % sizes.look_every == 0:
            first = first_slots(model, ids[:, : sizes.schedule.length], 1, sizes.schedule.length // 4)
            norms = value_norms(model, ids)
            norm = (norms[0] / norms[1:].mean()).item()
            share = {"first_slot": first[0, 0, 0].item(), "nowhere": first[0, 0, 1].item(), "first_value": norm}
            seen.append(label | {"step": step + 1, "loss": loss} | share)

    model = made(sizes, sizes.shape, spoken, variant, seed + offset, look)
    cells = []
    for sinks in sizes.caches:
        by_kind = excess(model, spoken, ids, sinks, sizes.window)
        row = label | {"sinks": sinks, "recent": sizes.window - sinks}
        for kind, more in by_kind.items():
            row |= {kind: more.mean().item(), f"{kind}_error": (more.std() / len(more) ** 0.5).item()}
        cells.append(row)
    looks = [label | busy_and_idle(model, spoken, ids, sizes)]
    sample = ids[0, : sizes.sample]
    weights = [[round(weight, 4) for weight in row] for row in attention_of(model, sample).tolist()]
    line = label | {"text": spoken.read(sample), "weights": weights}
    return {"emergence": seen, "streaming": cells, "attention": looks, "sample": [line]}


def widened(sizes: Sizes, hidden: int, offset: int, seed: int) -> Tables:
    """Repeat the learnable sink with more hidden units in the MLP after the head."""
    spoken, shape = language(sizes), replace(sizes.shape, hidden=hidden)
    ids = evaluated(sizes, spoken, seed + offset)
    model = made(sizes, shape, spoken, "learnable sink", seed + offset)
    row = {"hidden": hidden, "seed": seed + offset} | busy_and_idle(model, spoken, ids, sizes)
    for sinks in (0, 1):
        row[f"others_{sinks}"] = excess(model, spoken, ids, sinks, sizes.window)["others"].mean().item()
    return {"widths": [row]}


def evaluated(sizes: Sizes, spoken: Language, seed: int) -> Int[Tensor, "B T"]:
    """Generate sequences that no model was trained on."""
    return spoken.draw(sizes.sequences, sizes.length, torch.Generator().manual_seed(2 * seed + 1))


def made(
    sizes: Sizes,
    shape: Shape,
    spoken: Language,
    variant: str,
    seed: int,
    look: Callable[[SinkLM, int, float], None] = lambda model, step, loss: None,
) -> SinkLM:
    """Train a model; `look` is called after every step."""
    tokens = spoken.draw(max(1, sizes.training_tokens // 512), 512, torch.Generator().manual_seed(2 * seed)).flatten()
    model = SinkLM(shape, variant, torch.Generator().manual_seed(seed))
    train(model, tokens, sizes.schedule, seed, partial(look, model))
    return model


@torch.no_grad()
def busy_and_idle(model: SinkLM, spoken: Language, ids: Int[Tensor, "B T"], sizes: Sizes) -> dict[str, float]:
    """Compute the attention on the first slot and on none, at triggers and elsewhere, after the first quarter."""
    ids = ids[:, : sizes.schedule.length]
    block, first = model.blocks[0], ids.shape[1] // 4
    weights = block.attention.weights(block.norm(model.embedded(ids)))[:, 0, -ids.shape[1] :][:, first:]
    at_trigger, shares = spoken.triggers[ids[:, first:]], {}
    for kind, queries in (("busy", at_trigger), ("idle", ~at_trigger)):
        shares[f"{kind}_first_slot"] = weights[..., 0][queries].mean().item()
        shares[f"{kind}_nowhere"] = (1 - weights.sum(dim=2))[queries].mean().item()
    return shares


EXPERIMENT = Experiment("A head that is idle most of the time", Sizes(), QUICK, steps)
