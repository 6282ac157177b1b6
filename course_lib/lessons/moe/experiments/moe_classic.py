"""Mixtures before transformers: vowels (1991), trees by EM (1994), experts between LSTMs (2017).

Tables:

    vowels       ten seeds of each learner: test accuracy, that of the likeliest expert alone, epochs to two accuracies
    arm          trees of three depths, five samples of data: log-likelihood and error after every EM step
    recurrent    bytes: loss by step and on held-out windows, loads at the end, three seeds

Six minutes with one thread.

Dimension key: N windows, L bytes in a window.
"""

from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.attention.small_models.byte_model import byte_windows
from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.moe.experiments.runs import text
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.paired import mean_and_error
from course_lib.moe.classic.arm import arm_samples
from course_lib.moe.classic.descent import report, vowel_samples
from course_lib.moe.classic.descent import train as descend
from course_lib.moe.classic.fit_tree import fit
from course_lib.moe.classic.learners import Learner, Mixture, Perceptron
from course_lib.moe.classic.recurrent import Dense, RecurrentLM, train
from course_lib.moe.classic.tree import linear_map, relative_error, with_one
from course_lib.moe.experts import random_experts
from course_lib.moe.layer import MoE
from course_lib.moe.losses import importance, load
from course_lib.moe.routed import Routing
from course_lib.moe.routers.noisy_top_k import NoisyTopK

LEARNERS: dict[str, Learner] = {
    "4 experts, cooperative": Mixture("cooperative"),
    "4 experts, competitive": Mixture("competitive"),
    "4 experts, mixture": Mixture("mixture"),
    "8 experts, mixture": Mixture("mixture", n_experts=8),
    "perceptron, 6 hidden": Perceptron(6),
    "perceptron, 12 hidden": Perceptron(12),
}
ACCURACIES = (0.88, 0.9)  # on the training samples, up to which we count epochs


def vowels(name: str, n_seeds: int, epochs: int, rate: float, seed: int) -> Tables:
    """Train with each seed; an accuracy that was never reached and values that only mixtures have can be None."""
    training, test = vowel_samples()
    seeds = range(seed, seed + n_seeds)
    trained = descend(LEARNERS[name], training, seeds, epochs, rate)
    found, reached = report(trained, test), {share: trained.epochs_to(share) for share in ACCURACIES}
    rows = []
    for i, each in enumerate(seeds):
        row = {"learner": name, "seed": each, "epochs": epochs}
        row |= {f"epochs_to_{100 * share:.0f}": reached[share][i] for share in ACCURACIES}
        for column, values in found._asdict().items():
            row[column] = None if values is None else round(values[i].item(), 4)
        rows.append(row | {"training_accuracy": round(trained.accuracy[-1, i].item(), 4)})
    return {"vowels": rows}


def arm(depth: int, n_training: int, n_test: int, em_steps: int, seed_of_run: int, seed: int) -> Tables:
    """Fit a tree: before EM and after each step, the log-likelihood in training and the relative error on new samples.

    Depth 0 is one linear map, fitted by least squares.
    """
    generator = torch.Generator().manual_seed(seed + seed_of_run)
    training, test = arm_samples(generator, n_training, n_test)
    inputs, new = with_one(training.inputs), with_one(test.inputs)
    row = {"depth": depth, "seed": seed + seed_of_run}
    if depth == 0:
        predicted = new @ linear_map(inputs, training.accelerations).mT
        return {"arm": [row | {"log_likelihood": None, "error": [relative_error(predicted, test.accelerations)]}]}
    likelihood, error = [], []
    for tree in islice(fit(inputs, training.accelerations, depth, generator), em_steps + 1):
        likelihood.append(tree.log_likelihood(inputs, training.accelerations))
        error.append(round(relative_error(tree.predict(new), test.accelerations), 5))
    return {"arm": [row | {"log_likelihood": likelihood, "error": error}]}


MIDDLES = ("dense", "4 of 16 experts", "4 of 16 experts, balanced")  # k = 4 as in the paper
N_EXPERTS, K = 16, 4


def middle(name: str, width: int, active: int, generator: torch.Generator) -> nn.Module:
    """Make the layer between the LSTMs: `active` ReLU neurons per byte, in one layer or in four experts."""
    if name == "dense":
        return Dense(width, active, generator)
    experts = random_experts(N_EXPERTS, width, active // K, "relu", std=width**-0.5, generator=generator)
    return MoE(experts, NoisyTopK(K))


def balanced(routing: Routing) -> Float[Tensor, ""]:
    """Return both balance losses of the paper, for importance and load, with its factor 0.1."""
    return importance(routing.weights) + load(routing.sent)


def recurrent(
    name: str, width: int, active: int, schedule: Schedule, windows: int, every: int, seed_of_run: int, seed: int
) -> Tables:
    """Train one model: mean loss of every few steps, loss on held-out windows, loads of the last steps."""
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
    """Return the loss of each window in nats per byte, without noise."""
    logits, _ = model(ids[:, :-1])
    return cross_entropy(logits.mT, ids[:, 1:], reduction="none").double().mean(dim=1)


@dataclass(frozen=True)
class Sizes:
    """Seeds, steps and samples."""

    starts: int = 10
    epochs: int = 2500
    rate: float = 0.5
    depths: tuple[int, ...] = (0, 2, 4)
    arm_training: int = 2000
    arm_test: int = 1000
    em_steps: int = 35
    draws: int = 5
    width: int = 128
    active: int = 512
    schedule: Schedule = field(default_factory=lambda: Schedule(400, 16, 128, 1e-2, 40, 0.01))
    every: int = 20
    windows: int = 96
    seeds: int = 3


QUICK = Sizes(
    2, 5, arm_training=60, arm_test=20, em_steps=2, draws=1, width=12, active=16,
    schedule=Schedule(4, 2, 16, 1e-2, 2, 0.01), every=2, windows=2, seeds=1,
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    plan = [Step(name, partial(vowels, name, sizes.starts, sizes.epochs, sizes.rate)) for name in LEARNERS]
    of_arm = (sizes.arm_training, sizes.arm_test, sizes.em_steps)
    for depth in sizes.depths:
        plan += [Step(f"arm: depth {depth}, draw {n}", partial(arm, depth, *of_arm, n)) for n in range(sizes.draws)]
    of_bytes = (sizes.width, sizes.active, sizes.schedule, sizes.windows, sizes.every)
    for seed in range(sizes.seeds):
        plan += [Step(f"LSTM, {name}, seed {seed}", partial(recurrent, name, *of_bytes, seed)) for name in MIDDLES]
    return plan


EXPERIMENT = Experiment("Mixtures before transformers", Sizes(), QUICK, steps)
