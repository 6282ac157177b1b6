"""What the notebook of lesson 05 runs on a model: statistics for a function of the student's, cuts by what it chose.

Dimension key: N windows, T tokens, L blocks, D width, F neurons.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import PreTrainedModel

from course_lib.measure.perplexity import window_losses
from course_lib.models import architecture, blocks, final_norm, linears, weight_of
from course_lib.pruning.structured.choice import Kept, everything
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take

Aggregate = Callable[[Float[Tensor, "N T F"]], Float[Tensor, "F"]]
NarrowerNorm = Callable[[Float[Tensor, "D"], float, Int[Tensor, "d"]], tuple[Float[Tensor, "d"], float]]


def matrices(block: nn.Module) -> dict[str, Tensor]:
    """The seven weights of a Llama's block by short names: q, k, v, o, gate, up, down."""
    return {part.split(".")[1].removesuffix("_proj"): weight_of(module) for part, module in linears(block).items()}


def mlp(x: Float[Tensor, "N D"], gate: Float[Tensor, "F D"], up: Tensor, down: Float[Tensor, "D F"]) -> Tensor:
    """What a gated MLP of these matrices gives."""
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def one_pass(aggregate: Aggregate, evidence: Evidence) -> tuple[Float[Tensor, "L F"], Float[Tensor, "S M D"]]:
    """Scores of all neurons, and the stream before the first block and behind each (S = L + 1, M = N · T, no norm).

    In each block the function gets what the down projection reads, of all windows. It is the pass from which
    `evidence.activations` come: whatever else is scored by activations afterwards reads no text again.

    Raises:
        ValueError: when that pass was made before.
    """
    if "activations" in vars(evidence):
        raise ValueError("got evidence whose activations were read before; expected a new Evidence(model, windows).")
    of_blocks = blocks(evidence.model)
    read, states, handles = [[] for _ in of_blocks], [[] for _ in range(len(of_blocks) + 1)], []
    for number, block in enumerate(of_blocks):
        if number == 0:
            handles.append(block.register_forward_pre_hook(lambda _, args: states[0].append(args[0][0])))
        handles.append(block.register_forward_hook(lambda _, __, out, n=number: states[n + 1].append(out[0])))
        down = block.get_submodule(architecture(block).mlp[-1])
        handles.append(down.register_forward_pre_hook(lambda _, args, n=number: read[n].append(args[0][0])))
    try:
        evidence.activations  # noqa: B018 measured when first asked for
    finally:
        for handle in handles:
            handle.remove()
    scores = [aggregate(torch.stack(windows).float()) for windows in read]
    return torch.stack(scores), torch.stack([torch.cat(windows) for windows in states])


def down_gradients(model: PreTrainedModel, windows: Int[Tensor, "N T"]) -> list[tuple[Tensor, Tensor]]:
    """Of each block the weight of the down projection and its gradient (D, F), of the mean loss of the next token.

    One window at a time: the logits of several, and their gradients, would be the largest tensors of the lesson.
    """
    weights = [block.get_submodule(architecture(block).mlp[-1]).weight for block in blocks(model)]
    gradients = [torch.zeros_like(weight) for weight in weights]
    needed = {parameter: parameter.requires_grad for parameter in model.parameters()}
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    try:
        with torch.enable_grad():
            for window in windows.split(1):
                mean = model(window, labels=window, use_cache=False).loss / len(windows)
                for total, gradient in zip(gradients, torch.autograd.grad(mean, weights), strict=True):
                    total += gradient
    finally:
        for parameter, before in needed.items():
            parameter.requires_grad_(before)
    return [(weight.detach(), gradient) for weight, gradient in zip(weights, gradients, strict=True)]


@contextmanager
def silenced(model: PreTrainedModel, number: int, neurons: Int[Tensor, "f"]) -> Iterator[None]:
    """Inside, these neurons of one block say nothing."""
    down = matrices(blocks(model)[number])["down"].data
    before = down[:, neurons].clone()
    down[:, neurons] = 0
    try:
        yield
    finally:
        down[:, neurons] = before


def with_heads(model: PreTrainedModel, heads: Int[Tensor, "L h"]) -> PreTrainedModel:
    """The model cut to these query heads of each block; all groups stay."""
    return take(model, replace(everything(shape_of(model)), heads=heads))


@torch.no_grad()
def with_norms(model: PreTrainedModel, kept: Kept, narrower: NarrowerNorm | None) -> PreTrainedModel:
    """The model cut to some channels, each norm with the weight and the ε that a function gives; None: as they were."""
    smaller = take(model, kept, rescale=False)
    if narrower is not None:
        for old, new in zip(_norms(model), _norms(smaller), strict=True):
            weight, eps = narrower(old.weight, old.variance_epsilon, kept.width)
            new.weight.copy_(torch.as_tensor(weight))
            new.variance_epsilon = smaller.config.rms_norm_eps = float(eps)
    return smaller


def _norms(model: PreTrainedModel) -> list[nn.Module]:
    kinds = architecture(blocks(model)[0]).norms
    return [*(block.get_submodule(path) for block in blocks(model) for path in kinds), final_norm(model)]


def losses_of(model: PreTrainedModel, windows: Int[Tensor, "N T"]) -> Float[Tensor, "N"]:
    """The loss of each window, in nats a token, of a model that may be learning."""
    training = model.training
    losses = window_losses(model.eval(), windows, progress=False)
    model.train(training)
    return losses
