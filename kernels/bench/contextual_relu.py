"""The ReLU model end to end: decode a window byte by byte with all, with known (oracle) or with predicted neurons.

Each transformer block keeps its own fraction of neurons, chosen on calibration text
(course_lib/contextual/fitting/shares.py). Chosen neurons are gathered by the fastest method on this machine. The
contest's name gives the loss increase with predicted neurons on held-out windows.

Dimension key: n windows of N bytes.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses
from course_lib.contextual.apply import contextual
from course_lib.contextual.execute.break_even import fastest
from course_lib.contextual.execute.choices import everything, known, oracle_sets, predicted
from course_lib.contextual.execute.decode import Choice, Decoder
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.fitting.shares import losses_alone, shares_by_block
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.small_models.relu_model import (
    load_relu_model,
    load_relu_predictors,
    relu_configuration,
    untrained_relu_model,
)
from course_lib.measure.roofline import Work

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of logits: rounding in another order adds up over all blocks
MEANS, WINDOWS = (0.3, 0.2, 0.15, 0.1, 0.075), 24
LEVELS = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)  # densities that a block may have
WORTH = 0.02  # nats per byte: loss increase up to which predicted neurons count as good enough


def contests(place: Place) -> Iterator[Contest]:
    """Yield one contest per mean density; only on the CPU, for whose caches the decoder is built."""
    if place.device.type != "cpu":
        return
    model, predictors, windows, calibration = _trained(place)
    gather = fastest(NeuronMajor.of(neurons_of(model)[0]), min(MEANS))
    decoder = Decoder(model, windows.shape[1], gather=gather)
    single_block_losses = losses_alone(model, DejaVu(predictors=predictors), calibration, LEVELS)
    for mean in MEANS:
        yield _contest(model, decoder, predictors, windows, shares_by_block(single_block_losses, LEVELS, mean))


def summary(rows: list[dict[str, Any]]) -> str:
    """Report the largest speedup with predicted neurons whose loss increase is at most WORTH."""
    timed = [row for row in rows if row["side"] == "predicted" and row["repetitions"]]
    if not timed:
        return "'predicted' was not timed."
    accurate = [row for row in timed if float(row["contest"].partition("predicted ")[2].split()[0]) <= WORTH]
    if not accurate:
        return f"Predicted neurons lose more than {WORTH} nats per byte at each of the densities."
    best = max(accurate, key=lambda row: row["times_anchor"])
    per_second = best["shape"][0] / best["median_seconds"]
    return (
        f"Within {WORTH} nats per byte, predicted neurons are {best['times_anchor']:.2f} x as fast as all of them, the "
        f"predictors' time included: {per_second:.0f} bytes per second ({best['contest']})."
    )


def _trained(place: Place) -> tuple[PreTrainedModel, tuple[Predictor, ...], Int[Tensor, "n N"], Int[Tensor, "n N"]]:
    if not place.quick:
        model, windows, calibration = load_relu_model(WINDOWS, WINDOWS)
        return model.to(place.dtype), load_relu_predictors(), windows, calibration
    model = untrained_relu_model(relu_configuration(16, 2, 2, 64), seed=0).eval()
    predictors = tuple(Predictor(16, 4, 64, place.generator) for _ in range(2))
    return model, predictors, *torch.randint(256, (2, 3, 12), generator=place.generator)


@torch.no_grad()
def _contest(
    model: PreTrainedModel,
    decoder: Decoder,
    predictors: tuple[Predictor, ...],
    windows: Int[Tensor, "n N"],
    shares: tuple[float, ...],
) -> Contest:
    ids, mean = windows[0], sum(shares) / len(shares)
    choices: dict[str, tuple[Choice, NeuronSelector, float]] = {
        "dense": (everything, Oracle(density=1.0), 1.0),
        "oracle": (known(oracle_sets(decoder, ids, shares)), Oracle(by_block=shares), mean),
        "predicted": (predicted(predictors, shares), DejaVu(predictors=predictors, by_block=shares), mean),
    }
    sides, losses = [], {}
    for name, (choose, selector, density) in choices.items():
        with contextual(model, selector):
            expected = model(ids[None], use_cache=False).logits[0]
            losses[name] = torch.cat([byte_losses(model, part) for part in windows.split(8)]).double().mean().item()
        extra = sum(predictor.n_bytes for predictor in predictors) if name == "predicted" else 0
        work = _work(model, decoder, density, extra, len(ids))
        sides.append(Side(name, partial(decoder.read, ids, choose), work, expected))
    by_block, loss_increase = ", ".join(f"{100 * x:g}" for x in shares), losses["predicted"] - losses["dense"]
    name = f"{mean:.1%} kept (by block {by_block} %), predicted {loss_increase:+.4f} nats per byte"
    return Contest(name, (len(ids),), sides, sides[0].expected)


def _work(model: PreTrainedModel, decoder: Decoder, share: float, extra: int, n_tokens: int) -> Work:
    """Count the work of n_tokens decoding steps: per step, all weights except skipped neurons, plus the predictors.

    A float32 weight (4 bytes) is read once per step for one multiply-add (2 FLOPs), so FLOPs are half of the bytes.
    """
    mlp_bytes = sum(block.mlp.weights.n_bytes for block in decoder.blocks)
    bytes_read = sum(weight.nbytes for weight in model.parameters()) - mlp_bytes + share * mlp_bytes + extra
    return Work(int(n_tokens * bytes_read / 2), int(n_tokens * bytes_read))
