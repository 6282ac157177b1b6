"""Byte models that the experiments of lesson 06 train: dense, and with experts and every router that we compare.

All models of a seed see the same bytes in the same order and need about as many multiplications per byte. Each run is
one step of an experiment: the model is trained, measured on the way and at the end, and not kept.

Dimension key: N windows, L bytes in a window.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses, byte_windows, configuration, schedule
from course_lib.attention.small_models.training import Schedule, running, train, training_texts
from course_lib.measure.experiment import Tables
from course_lib.measure.paired import mean_and_error
from course_lib.moe.routed import Routing
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.switch import Switch
from course_lib.moe.routing import Router
from course_lib.moe.small_models.byte_mixture import fresh, mixture_configuration, n_weights
from course_lib.moe.small_models.specialisation import by_chance, counted, known_share
from course_lib.moe.small_models.training import Balancing, Reading, Seen, read, routing, train_mixture


@dataclass(frozen=True)
class Kind:
    """k experts per byte; without a router it is the dense model. `speed` is the update speed of DeepSeek's bias."""

    router: Router | None = None
    k: int = 1
    balancing: Balancing = field(default_factory=Balancing)
    speed: float = 0.0


BALANCED = Balancing(alpha=0.01)
PLAIN_SWITCH = Switch(capacity_factor=None, jitter=0.0)
KINDS = {
    "dense": Kind(),
    "top-1": Kind(PLAIN_SWITCH, 1),
    "top-1, balanced": Kind(PLAIN_SWITCH, 1, BALANCED),
    "top-2": Kind(Mixtral(2), 2),
    "top-2, balanced": Kind(Mixtral(2), 2, BALANCED),
    "top-1, balanced, jitter": Kind(Switch(None, jitter=0.01), 1, BALANCED),
    "top-2, balanced, z-loss": Kind(Mixtral(2), 2, Balancing(alpha=0.01, z=1e-3)),
    "top-2, sigmoid": Kind(DeepSeek(2), 2),
    "top-2, sigmoid, bias": Kind(DeepSeek(2), 2, speed=1e-3),
    "expert choice": Kind(ExpertChoice(2.0), 2),
}


Row = dict[str, Any]


def held_out_row(found: Reading) -> Row:
    """Return the mean loss in nats per byte, and its standard error over windows."""
    loss, error = mean_and_error(found.losses)
    return {"loss": round(loss, 5), "standard_error": round(error, 5)}


def load_rows(routings: Sequence[Routing]) -> list[Row]:
    """Return for each block each expert's fraction of the choices, log Σ exp of the logits, and the largest logit."""
    rows = []
    for block, its in enumerate(routings):
        logits = its.logits.detach()
        rows.append(
            {
                "block": block,
                "load": [round(share, 4) for share in its.load.tolist()],
                "log_sum_exp": round(logits.logsumexp(dim=1).mean().item(), 4),
                "largest_logit": round(logits.abs().max().item(), 3),
            }
        )
    return rows


def specialisation_rows(routings: Sequence[Routing], ids: Int[Tensor, "N L"]) -> list[Row]:
    """Return for each block how much the byte determines the expert, and how much shuffled bytes seem to."""
    read, rows = ids[:, :-1].flatten(), []
    for block, its in enumerate(routings):
        known, chance = known_share(counted(read, its.chosen)), by_chance(read, its.chosen)
        rows.append({"block": block, "known": round(known, 4), "by_chance": round(chance, 4)})
    return rows


def model_row(model: PreTrainedModel, found: Reading, ids: Int[Tensor, "N L"]) -> Row:
    """Return a trained model's row: sizes, FLOP of training per byte, losses of all windows, loads, specialisation.

    FLOP: 6 for each weight that a byte is multiplied by, 2 forward and 4 backward. The products inside attention are
    left out, as they are the same in all models. Embedding and LM head are one matrix, and only the head multiplies.
    """
    total, met = n_weights(model)
    row = {"parameters": total, "met": met, "flops_a_byte": 6 * met}
    row |= held_out_row(found) | {"losses": [round(loss, 4) for loss in found.losses.tolist()]}
    loads, known = load_rows(found.routings), specialisation_rows(found.routings, ids)
    return row | {"blocks": [one | other for one, other in zip(loads, known, strict=True)]}


@dataclass(frozen=True)
class Sizes:
    """The models, their training and evaluation. A smaller set of windows is the start of a larger one."""

    kinds: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    n_experts: int = 8
    width: int = 128
    n_blocks: int = 4
    n_heads: int = 4
    active: int = 512
    schedule: Schedule = field(default_factory=schedule)
    texts: int | None = None  # documents to train on; all when None
    looks: tuple[int, ...] = (50, 100, 200, 400, 600, 800)  # steps after which held-out windows are evaluated
    loads: tuple[int, ...] = (1, 10, 20, 50, 100, 200, 400, 600, 800)  # steps whose loads are recorded
    fewer: int = 48  # held-out windows during training
    evaluation: int = 192  # and at the end


SIZES = Sizes(("dense", "top-1", "top-1, balanced", "top-2", "top-2, balanced"))
QUICK = replace(
    SIZES, seeds=(0, 1), width=16, n_blocks=2, n_heads=2, active=24, schedule=Schedule(4, 2, 32, 1e-2, 2, 0.1), texts=3,
    looks=(2, 4), loads=(1, 4), fewer=2, evaluation=3,
)  # fmt: skip


def made(sizes: Sizes, kind: Kind, seed: int) -> PreTrainedModel:
    """Make the model before training, with initial weights of the same distribution for all."""
    shape = (sizes.width, sizes.n_blocks, sizes.n_heads)
    if kind.router is None:
        return fresh(configuration(*shape, sizes.active), seed)
    return fresh(mixture_configuration(sizes.n_experts, kind.k, *shape, sizes.active), seed)


@lru_cache(maxsize=2)
def text(texts: int | None) -> Int[Tensor, "T"]:
    """Load the training text of all models."""
    return running(training_texts()[:texts])


@contextmanager
def trained(sizes: Sizes, name: str, seed: int, tables: Tables) -> Iterator[tuple[PreTrainedModel, Seen]]:
    """Yield a trained model with its router; rows that are measured during training are added to the tables."""
    kind = KINDS[name]
    model = made(sizes, kind, seed).train()
    look = looking(sizes, model, {"model": name, "seed": seed}, tables)
    if kind.router is None:
        train(model, text(sizes.texts), sizes.schedule, seed, lambda step, nats: look(step, nats, [], []), byte_losses)
        yield model.eval(), []
        return
    penalty = kind.balancing if kind.balancing != Balancing() else None
    with routing(model, kind.router, seed) as seen:
        options = {"penalty": penalty, "speed": kind.speed}
        train_mixture(model, seen, text(sizes.texts), sizes.schedule, seed, look=lambda *of: look(*of, seen), **options)
        yield model.eval(), seen


def looking(sizes: Sizes, model: PreTrainedModel, label: Row, tables: Tables) -> Callable[..., None]:
    """Make the function that is called after every step; its own seconds do not count."""
    clock: dict[str, Any] = {"begun": time.process_time(), "apart": 0.0, "nats": []}

    def look(step: int, nats: float, routings: list[Routing], seen: Seen) -> None:
        start, done = time.process_time(), step + 1
        clock["nats"].append(nats)
        if done in sizes.loads:
            tables.setdefault("loads", []).extend({**label, "step": done} | row for row in load_rows(routings))
        if done in sizes.looks:
            seconds = start - clock["begun"] - clock["apart"]
            recent = clock["nats"][-min(done, 20) :]
            row = {**label, "step": done, "processor_seconds": round(seconds, 2)}
            row |= {"training_loss": round(sum(recent) / len(recent), 5)}
            found = read(model, seen, byte_windows(sizes.fewer))
            tables.setdefault("held_out", []).append(row | held_out_row(found))
        clock["apart"] += time.process_time() - start

    return look


Look = Callable[[PreTrainedModel, Seen, Tensor], Tables]


def run(sizes: Sizes, name: str, seed_of_run: int, seed: int, also: Look | None = None) -> Tables:
    """Train one model from scratch and measure it.

    Args:
        seed: of the experiment, added to that of the run.
        also: further measurements at the end; their rows get the same labels.
    """
    tables: Tables = {}
    label, windows = {"model": name, "seed": seed + seed_of_run}, byte_windows(sizes.evaluation)
    with trained(sizes, name, label["seed"], tables) as (model, seen):
        tables["models"] = [label | model_row(model, read(model, seen, windows), windows)]
        for table, rows in (also(model, seen, windows) if also else {}).items():
            tables[table] = [label | row for row in rows]
    return tables
