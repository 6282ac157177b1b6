"""Train language models from scratch with and without a sink, and measure what a streaming cache does to each.

The table of StreamingLLM (Xiao and others, 2023, https://arxiv.org/abs/2309.17453, section 3.3) at the scale of a
laptop. Training writes the weights into attention/small_models/weights; everything else is measured on those files.
Shorter trainings at several rates show when a sink forms (Gu and others, 2024, https://arxiv.org/abs/2410.10781, study
this for larger models); their weights are not kept.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.attention.small_models.model import VARIANTS, Shape, SinkLM
from course_lib.attention.small_models.registers import HIGH, accuracy, class_attention, digits, patch_norms
from course_lib.attention.small_models.registers import trained as trained_vit
from course_lib.attention.small_models.streaming import first_slots, recomputed_losses, streaming_losses
from course_lib.attention.small_models.training import (
    WEIGHTS,
    Schedule,
    load,
    losses,
    running,
    save,
    train,
    training_texts,
)
from course_lib.data.corpora import DOCUMENTS
from course_lib.measure.experiment import QUICK_RESULTS, Experiment, Step, Tables

FIXED_TEXT = (
    "The capital of France is Paris, and the capital of Italy is Rome. "
    "The Roman Empire was one of the largest empires in history."
)
REGISTERS = (0, 4)
# How the learning rate was chosen: by hand, not by a rule, from trainings that were not kept.
PICKED = {
    "rate": 1.2e-2,
    "among": [8e-3, 1e-2, 1.2e-2, 2e-2],
    "how": "by hand, before this measurement, on models of two and three layers",
    "because": "at this rate the learned token keeps its attention and the text is still read tolerably",
}
LOOKED_AT = (1, 50, 100, 200, 300, 400, 600, 800, 1200, 1600, 2000, 2500, 3000, 3500, 4000)


@dataclass(frozen=True)
class Sizes:
    """The model, its training, and what is evaluated."""

    shape: Shape = field(default_factory=Shape)
    schedule: Schedule = field(default_factory=Schedule)
    texts: int | None = None  # documents to train on; all when None
    evaluation: int = 16  # windows of the schedule's length
    log_every: int = 40
    rates: tuple[float, ...] = (4e-3, 8e-3, 1.2e-2)
    rate_steps: int = 800
    caches: tuple[int, ...] = (0, 1, 2, 4)  # sinks among the slots
    window: int = 128
    documents: int = 12
    streamed: int = 512  # tokens of each document after the first `window`
    stride: int = 16  # number of tokens predicted from a recomputed window
    register_seeds: tuple[int, ...] = (0, 1, 2)
    register_epochs: int = 40


QUICK = Sizes(
    Shape(256, 16, 2, 2, 24),
    Schedule(6, 2, 32, warm_up=2),
    texts=20,
    evaluation=2,
    log_every=2,
    rates=(1e-2,),
    rate_steps=4,
    caches=(0, 1),
    window=8,
    documents=2,
    streamed=16,
    stride=8,
    register_seeds=(0,),
    register_epochs=1,
)


def steps(sizes: Sizes) -> list[Step]:
    """List the steps: for each variant the training, most of the time, and its measurements; rates; registers."""
    plan = [Step(f"train: {variant}", partial(trained, sizes, variant)) for variant in VARIANTS]
    for variant in VARIANTS:
        plan += [Step(f"stream: {variant}, {n} sinks", partial(streamed, sizes, variant, n)) for n in sizes.caches]
        plan.append(Step(f"window recomputed: {variant}", partial(recomputed, sizes, variant)))
        plan.append(Step(f"attention: {variant}", partial(attention, sizes, variant)))
    plan += [Step(f"rate: {rate:g}", partial(at_rate, sizes, rate)) for rate in sizes.rates]
    plan.append(Step("how the rate was picked", picked))
    return plan + [
        Step(f"registers: {n}, seed {seed}", partial(registers, sizes, n, seed))
        for seed in sizes.register_seeds
        for n in REGISTERS
    ]


def folder(sizes: Sizes) -> Path:
    """Return the folder of the weights; a quick run never overwrites those of a full run."""
    return WEIGHTS if sizes == Sizes() else QUICK_RESULTS / "sink_pretraining"


def evaluation_windows(sizes: Sizes) -> Int[Tensor, "N L"]:
    """Return windows at even distances in the evaluation split of Wikipedia."""
    tokens = running(DOCUMENTS["wikipedia"]("evaluation"))
    length = sizes.schedule.length
    starts = torch.linspace(0, len(tokens) - length - 1, sizes.evaluation).long()
    return tokens[starts[:, None] + torch.arange(length + 1)]


def trained(sizes: Sizes, variant: str, seed: int) -> Tables:
    """Train one model: its losses during training, when a sink appears, and an evaluation of the written weights."""
    label: dict[str, Any] = {"variant": variant}
    tokens = running(training_texts()[: sizes.texts])
    model, log, seen = followed(sizes, variant, sizes.schedule, tokens, label, seed)
    path = save(model, folder(sizes))
    model = load(variant, folder(sizes))
    row = label | {"parameters": sum(weight.numel() for weight in model.parameters()), "bytes": path.stat().st_size}
    row |= {"read": sizes.schedule.n_steps * sizes.schedule.batch * sizes.schedule.length, "text": len(tokens)}
    row |= {
        "evaluation_loss": looked_at(model, evaluation_windows(sizes))["evaluation_loss"],
        "fixed_text_loss": fixed_text_loss(model),
    }
    return {"training": log, "emergence": seen, "models": [row]}


def followed(
    sizes: Sizes, variant: str, schedule: Schedule, tokens: Int[Tensor, "T"], label: dict[str, Any], seed: int
) -> tuple[SinkLM, list[dict[str, Any]], list[dict[str, Any]]]:
    """Train a model from scratch; return it with its training losses and the measurements during training."""
    model, windows = SinkLM(sizes.shape, variant, torch.Generator().manual_seed(seed)), evaluation_windows(sizes)
    log, seen, recent = [], [], []

    def look(step: int, loss: float) -> None:
        recent.append(loss)
        if (step + 1) % sizes.log_every == 0:
            log.append(label | {"step": step + 1, "loss": sum(recent) / len(recent)})
            recent.clear()
        if step + 1 in LOOKED_AT or step + 1 == schedule.n_steps:
            seen.append(label | {"step": step + 1} | looked_at(model, windows))

    train(model, tokens, schedule, seed, look)
    return model.eval(), log, seen


def at_rate(sizes: Sizes, rate: float, seed: int) -> Tables:
    """Train briefly with a learnable sink: when it receives attention, and the cost of losing it."""
    label: dict[str, Any] = {"rate": rate}
    tokens = running(training_texts()[: sizes.texts])
    schedule = replace(sizes.schedule, rate=rate, n_steps=sizes.rate_steps)
    model, _, seen = followed(sizes, "learnable sink", schedule, tokens, label, seed)
    rows = [label | {"sinks": n} | kept(sizes, model, n) for n in (0, 1)]
    return {"rates": seen, "rate_streaming": rows}


def picked(seed: int) -> Tables:
    """Return how the learning rate of the three models was chosen, together with that measurement."""
    return {"picked": [PICKED]}


@torch.no_grad()
def looked_at(model: SinkLM, windows: Int[Tensor, "N L"]) -> dict[str, Any]:
    """Return the loss on held-out text, and the attention on the first slot in each layer, as a mean over heads."""
    shares = first_slots(model, windows[:, :-1], from_query=windows.shape[1] // 4)
    return {"evaluation_loss": losses(model, windows).mean().item(), "first_slot": shares[..., 0].mean(dim=1).tolist()}


@torch.no_grad()
def fixed_text_loss(model: SinkLM) -> float:
    """Return a loss that identifies the weights of the measurement."""
    return losses(model, running([FIXED_TEXT])[None]).mean().item()


def documents(sizes: Sizes) -> Int[Tensor, "N T"]:
    """Return the first tokens of the evaluation articles that are long enough."""
    length = sizes.window + sizes.streamed + 2
    encoded = [running([text])[:length] for text in DOCUMENTS["wikipedia"]("evaluation")]
    return torch.stack([document for document in encoded if len(document) == length][: sizes.documents])


def streamed(sizes: Sizes, variant: str, sinks: int, seed: int) -> Tables:
    """Measure a cell of the table: the loss of bytes that are read after the first eviction."""
    return {"streaming": [{"variant": variant, "sinks": sinks} | kept(sizes, load(variant, folder(sizes)), sinks)]}


def kept(sizes: Sizes, model: SinkLM, sinks: int) -> dict[str, Any]:
    """Stream with this number of first slots in the cache."""
    token_losses = streaming_losses(model, documents(sizes), sinks, sizes.window)
    return {"recent": sizes.window - sinks} | summary(token_losses[:, sizes.window + 1 :])


def recomputed(sizes: Sizes, variant: str, seed: int) -> Tables:
    """Recompute some of the same bytes, each from as many slots as a streamed token reads, including itself."""
    ids, n = documents(sizes), sizes.window + 1
    token_losses = recomputed_losses(load(variant, folder(sizes)), ids, n, n + 1, sizes.stride)
    return {"recomputed": [{"variant": variant} | summary(token_losses)]}


def summary(token_losses: Float[Tensor, "N T"]) -> dict[str, Any]:
    """Return perplexity, its standard error over documents, and the documents' means, for paired comparisons."""
    means = token_losses.double().mean(dim=1)
    value = means.mean().exp().item()
    error = value * means.std().item() / len(means) ** 0.5
    return {"perplexity": value, "standard_error": error, "n_tokens": token_losses.numel(), "losses": means.tolist()}


def attention(sizes: Sizes, variant: str, seed: int) -> Tables:
    """Return each head's attention on the first four slots and on none; `even` is uniform attention on one slot."""
    windows = evaluation_windows(sizes)[:, :-1]
    first = windows.shape[1] // 4
    shares = first_slots(load(variant, folder(sizes)), windows, 4, first)
    even = sum(1 / (n + 1) for n in range(first, windows.shape[1])) / (windows.shape[1] - first)
    return {
        "attention": [
            {"variant": variant, "layer": layer, "head": head, "slots": share[:4], "nowhere": share[4], "even": even}
            for layer, heads in enumerate(shares.tolist())
            for head, share in enumerate(heads)
        ]
    }


def registers(sizes: Sizes, n: int, offset: int, seed: int) -> Tables:
    """Train a vision transformer with n registers: the norms of its patches on held-out images, layer by layer."""
    data = digits(seed)
    model = trained_vit(n, data, seed + offset, sizes.register_epochs)
    norms, read = patch_norms(model, data.test).flatten(1), class_attention(model, data.test)
    rows = []
    for layer, of_layer in enumerate(norms):
        row = {"registers": n, "seed": seed + offset, "layer": layer, "accuracy": accuracy(model, data)}
        median = of_layer.median().item()
        row |= {"median": median, "q99": of_layer.quantile(0.99).item(), "largest": of_layer.max().item()}
        row |= {"high": (of_layer > HIGH * median).float().mean().item()}
        rows.append(row | {f"reads_{name}": share[layer].item() for name, share in read.items()})
    return {"registers": rows}


EXPERIMENT = Experiment("Small language models with and without a sink", Sizes(), QUICK, steps)
