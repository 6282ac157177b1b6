"""The ReLU model end to end: a window of bytes read one at a time, by all neurons, by known ones, by predicted ones.

Blocks keep shares of their own, chosen on calibration text (course_lib/contextual/fitting/shares.py); chosen neurons
are gathered in the way that is fastest here. The contest's name says what predicted neurons lose on held-out windows.

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

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of logits, after all blocks have rounded in another order
MEANS, WINDOWS = (0.3, 0.2, 0.15, 0.1, 0.075), 24
LEVELS = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)  # of a block
WORTH = 0.02  # nats a byte that a way may lose and still be called as good


def contests(place: Place) -> Iterator[Contest]:
    """One for each mean density; only on the processor, whose caches the decoder is made for."""
    if place.device.type != "cpu":
        return
    model, predictors, windows, calibration = _trained(place)
    gather = fastest(NeuronMajor.of(neurons_of(model)[0]), min(MEANS))
    decoder = Decoder(model, windows.shape[1], gather=gather)
    alone = losses_alone(model, DejaVu(predictors=predictors), calibration, LEVELS)
    for mean in MEANS:
        yield _contest(model, decoder, predictors, windows, shares_by_block(alone, LEVELS, mean))


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
    for name, (choose, selector, share) in choices.items():
        with contextual(model, selector):
            expected = model(ids[None], use_cache=False).logits[0]
            losses[name] = torch.cat([byte_losses(model, part) for part in windows.split(8)]).double().mean().item()
        extra = sum(each.n_bytes for each in predictors) if name == "predicted" else 0
        work = _work(model, decoder, share, extra, len(ids))
        sides.append(Side(name, partial(decoder.read, ids, choose), work, expected))
    by_block, lost = ", ".join(f"{100 * share:g}" for share in shares), losses["predicted"] - losses["dense"]
    name = f"{mean:.1%} kept (by block {by_block} %), predicted {lost:+.4f} nats a byte"
    return Contest(name, (len(ids),), sides, sides[0].expected)


def _work(model: PreTrainedModel, decoder: Decoder, share: float, extra: int, n_tokens: int) -> Work:
    """Of each byte all weights but the neurons that are left out, and the predictors."""
    inside = sum(block.mlp.weights.n_bytes for block in decoder.blocks)
    read = sum(weight.nbytes for weight in model.parameters()) - inside + share * inside + extra
    return Work(int(n_tokens * read / 2), int(n_tokens * read))
