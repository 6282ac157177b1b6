"""Shazeer and others, 2017: experts between two LSTMs on bytes, with their two losses of balance and without.

Dimension key: N windows, L bytes in a window.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.attention.small_models.byte_model import byte_windows
from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.moe.experiments.steps.runs import text
from course_lib.measure.experiment import Tables
from course_lib.measure.paired import mean_and_error
from course_lib.moe.classic.recurrent import Dense, RecurrentLM, train
from course_lib.moe.experts import random_experts
from course_lib.moe.layer import MoE
from course_lib.moe.losses import importance, load
from course_lib.moe.routed import Routing
from course_lib.moe.routers.noisy_top_k import NoisyTopK

MIDDLES = ("dense", "4 of 16 experts", "4 of 16 experts, balanced")  # k = 4 as in the paper
N_EXPERTS, K = 16, 4


def middle(name: str, width: int, active: int, generator: torch.Generator) -> nn.Module:
    """`active` ReLU neurons for a byte, in one layer or in four experts."""
    if name == "dense":
        return Dense(width, active, generator)
    experts = random_experts(N_EXPERTS, width, active // K, "relu", std=width**-0.5, generator=generator)
    return MoE(experts, NoisyTopK(K))


def balanced(routing: Routing) -> Float[Tensor, ""]:
    """Importance and load, each times 0.1, as in the paper."""
    return importance(routing.weights) + load(routing.sent)


def recurrent(
    name: str, width: int, active: int, schedule: Schedule, windows: int, every: int, seed_of_run: int, seed: int
) -> Tables:
    """The mean loss of every few steps, that on held-out windows, and the loads of the last steps."""
    run_seed = seed + seed_of_run
    one, other = (torch.Generator().manual_seed(2 * run_seed + part) for part in (0, 1))
    model = RecurrentLM(middle(name, width, active, one), width, other)
    nats, shares = [], []

    def look(step: int, value: float, routing: Routing | None) -> None:
        nats.append(value)
        if routing is not None and step >= schedule.n_steps - every:
            shares.append(routing.load)

    train(model, text(None), schedule, run_seed, balanced if name.endswith("balanced") else None, look)
    losses = held_out(model, byte_windows(windows))
    loss, error = mean_and_error(losses)
    curve = [round(sum(nats[i : i + every]) / every, 4) for i in range(0, len(nats), every)]
    row = {"model": name, "seed": run_seed, "every": every, "curve": curve, "loss": loss, "standard_error": error}
    row |= {"losses": [round(each, 4) for each in losses.tolist()]}
    return {"recurrent": [row | {"load": torch.stack(shares).mean(0).tolist() if shares else None}]}


@torch.no_grad()
def held_out(model: RecurrentLM, ids: Int[Tensor, "N L"]) -> Float[Tensor, "N"]:
    """Nats a byte of each window, without noise."""
    logits, _ = model(ids[:, :-1])
    return cross_entropy(logits.mT, ids[:, 1:], reduction="none").double().mean(dim=1)
