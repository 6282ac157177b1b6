"""Models of bytes that learn: dense, and with experts behind every kind of router that is compared.

All read the same bytes in the same order for a seed, and make as many products for a byte. Each run is one step of an
experiment: it is trained, looked at on the way, and not kept.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses, byte_windows, configuration, schedule
from course_lib.attention.small_models.training import Schedule, running, train, training_texts
from course_lib.lessons.moe.experiments.steps.kinds import KINDS, Kind
from course_lib.lessons.moe.experiments.steps.looks import Row, held_out_row, load_rows, model_row
from course_lib.measure.experiment import Tables
from course_lib.moe.routed import Routing
from course_lib.moe.small_models.byte_mixture import fresh, mixture_configuration
from course_lib.moe.small_models.training import Balancing, Seen, read, routing, train_mixture


@dataclass(frozen=True)
class Sizes:
    """The models, their training, and what is evaluated. Fewer windows are always the first of more."""

    kinds: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    n_experts: int = 8
    width: int = 128
    n_blocks: int = 4
    n_heads: int = 4
    active: int = 512
    schedule: Schedule = field(default_factory=schedule)
    texts: int | None = None  # documents to train on; all when None
    looks: tuple[int, ...] = (50, 100, 200, 400, 600, 800)  # steps after which held-out windows are read
    loads: tuple[int, ...] = (1, 10, 20, 50, 100, 200, 400, 600, 800)  # steps whose loads are written down
    fewer: int = 48  # windows that nothing is trained on, at a look
    evaluation: int = 192  # and in the end


SIZES = Sizes(("dense", "top-1", "top-1, balanced", "top-2", "top-2, balanced"))
QUICK = replace(
    SIZES, seeds=(0, 1), width=16, n_blocks=2, n_heads=2, active=24, schedule=Schedule(4, 2, 32, 1e-2, 2, 0.1), texts=3,
    looks=(2, 4), loads=(1, 4), fewer=2, evaluation=3,
)  # fmt: skip


def made(sizes: Sizes, kind: Kind, seed: int) -> PreTrainedModel:
    """The first weights, drawn alike for all."""
    shape = (sizes.width, sizes.n_blocks, sizes.n_heads)
    if kind.router is None:
        return fresh(configuration(*shape, sizes.active), seed)
    return fresh(mixture_configuration(sizes.n_experts, kind.k, *shape, sizes.active), seed)


@lru_cache(maxsize=2)
def text(texts: int | None) -> Int[Tensor, "T"]:
    """What all read."""
    return running(training_texts()[:texts])


@contextmanager
def trained(sizes: Sizes, name: str, seed: int, tables: Tables) -> Iterator[tuple[PreTrainedModel, Seen]]:
    """A model after its run, inside its own router; what was seen on the way is added to the tables."""
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
    """Called after every step; its own seconds do not count."""
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
    """One model from nothing, and what it is in the end.

    Args:
        seed: of the experiment, which is added to that of the run.
        also: what else to look at in the end; its rows are labelled as the others.
    """
    tables: Tables = {}
    label, windows = {"model": name, "seed": seed + seed_of_run}, byte_windows(sizes.evaluation)
    with trained(sizes, name, label["seed"], tables) as (model, seen):
        tables["models"] = [label | model_row(model, read(model, seen, windows), windows)]
        for table, rows in (also(model, seen, windows) if also else {}).items():
            tables[table] = [label | row for row in rows]
    return tables
