"""The ReLU model end to end: a window of bytes read one at a time, by all neurons, by known ones, by predicted ones.

Dimension key: N bytes of a window. The contest's name says what predicted neurons lose, the mean over held-out windows.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses
from course_lib.contextual.apply import contextual
from course_lib.contextual.execute.choices import everything, known, oracle_sets, predicted
from course_lib.contextual.execute.decode import Choice, Decoder
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selector import NeuronSelector, n_kept
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.small_models.relu_model import (
    load_relu_model,
    load_relu_predictors,
    relu_configuration,
    untrained_relu_model,
)
from course_lib.measure.roofline import Work
from kernels.timing.contest import Contest, Place, Side

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of logits, after all blocks have rounded in another order
DENSITIES, WINDOWS = (0.3, 0.2, 0.15, 0.1, 0.05), 24
WORTH = 0.02  # nats a byte that a way may lose and still be called as good


def contests(place: Place) -> Iterator[Contest]:
    """One for each density; only on the processor, whose caches the decoder is made for."""
    if place.device.type != "cpu":
        return
    model, predictors, windows = _trained(place)
    decoder = Decoder(model, windows.shape[1])
    for density in DENSITIES:
        yield _contest(model, decoder, predictors, windows, density)


def summary(rows: list[dict[str, Any]]) -> str:
    """The fastest way with predictors that loses next to nothing."""
    timed = [row for row in rows if row["side"] == "predicted" and row["repetitions"]]
    if not timed:
        return "'predicted' was not timed."
    good = [row for row in timed if float(row["contest"].partition("predicted ")[2].split()[0]) <= WORTH]
    if not good:
        return f"Predicted neurons lose more than {WORTH} nats a byte at each of the densities."
    best = max(good, key=lambda row: row["times_anchor"])
    per_second = best["shape"][0] / best["median_seconds"]
    return (
        f"Within {WORTH} nats a byte, predicted neurons are {best['times_anchor']:.2f} x as fast as all of them, the "
        f"predictors' time included: {per_second:.0f} bytes a second ({best['contest']})."
    )


def _trained(place: Place) -> tuple[PreTrainedModel, tuple[Predictor, ...], Int[Tensor, "n N"]]:
    if not place.quick:
        model, windows, _ = load_relu_model(WINDOWS, 1)
        return model.to(place.dtype), load_relu_predictors(), windows
    model = untrained_relu_model(relu_configuration(16, 2, 2, 64), seed=0).eval()
    predictors = tuple(Predictor(16, 4, 64, place.generator) for _ in range(2))
    return model, predictors, torch.randint(256, (3, 12), generator=place.generator)


@torch.no_grad()
def _contest(
    model: PreTrainedModel,
    decoder: Decoder,
    predictors: tuple[Predictor, ...],
    windows: Int[Tensor, "n N"],
    density: float,
) -> Contest:
    ids = windows[0]
    choices: dict[str, tuple[Choice, NeuronSelector, float]] = {
        "dense": (everything, Oracle(density=1.0), 1.0),
        "oracle": (known(oracle_sets(decoder, ids, density)), Oracle(density=density), density),
        "predicted": (predicted(predictors, density), DejaVu(predictors=predictors, density=density), density),
    }
    sides, losses = [], {}
    for name, (choose, selector, share) in choices.items():
        with contextual(model, selector):
            expected = model(ids[None], use_cache=False).logits[0]
            losses[name] = torch.cat([byte_losses(model, part) for part in windows.split(8)]).double().mean().item()
        extra = sum(each.n_bytes for each in predictors) if name == "predicted" else 0
        work = _work(model, decoder, share, extra, len(ids))
        sides.append(Side(name, partial(decoder.read, ids, choose), work, expected))
    name = f"{density:.0%} kept, predicted {losses['predicted'] - losses['dense']:+.4f} nats a byte"
    return Contest(name, (len(ids), n_kept(density, decoder.blocks[0].mlp.weights.n)), sides, sides[0].expected)


def _work(model: PreTrainedModel, decoder: Decoder, share: float, extra: int, n_tokens: int) -> Work:
    """Of each byte all weights but the neurons that are left out, and the predictors."""
    inside = sum(block.mlp.weights.n_bytes for block in decoder.blocks)
    read = sum(weight.nbytes for weight in model.parameters()) - inside + share * inside + extra
    return Work(int(n_tokens * read / 2), int(n_tokens * read))
