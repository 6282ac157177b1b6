"""The MLPs of a few tokens with the course's kernels: only chosen neurons are computed, and the host never waits.

Dimension key: T tokens of a pass in one row, D width, F neurons, K chosen neurons.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.seen import Seen
from course_lib.contextual.selector import NeuronSelector, n_kept
from course_lib.kernels.dispatch import kernel_for
from course_lib.models import architecture, blocks


def chosen_mlp(
    x: Float[Tensor, "T D"], weights: NeuronMajor | Neurons, index: Int[Tensor, "T K"]
) -> Float[Tensor, "T D"] | None:
    """Compute the chosen neurons of each token, or return None if there is no kernel for them.

    Tokens choose different neurons, so they are computed one by one: T tokens read T K rows of each matrix.
    """
    bias, down = weights.up_bias, _down_rows(weights)
    kernel = _kernel(x, weights, down)
    if kernel is None:
        return None
    outputs = [
        kernel.launch(x[t : t + 1], weights.gate, weights.up, down, index[t], weights.activation, bias)
        for t in range(len(x))
    ]
    y = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return y if weights.down_bias is None else y + weights.down_bias


def highest(score: Float[Tensor, "F"], count: int) -> Int[Tensor, "K"]:
    """Return the indices of the highest scores, with the kernel if there is a GPU."""
    if kernel := kernel_for("per_token.top_indices", score[None], n_kept=count):
        return kernel.launch(score[None], count)[0]
    return score.topk(count, sorted=False).indices


@contextmanager
def in_columns(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Store the weights (outputs, inputs) of linear layers by column inside the `with` block; restore them on exit.

    Values and shapes do not change, so neither do the outputs. No second copy is stored.
    """
    turned = []
    try:
        for layer in layers:
            weight = layer.weight
            if isinstance(layer, nn.Linear) and not weight.data.T.is_contiguous():
                turned.append(weight)
                weight.data = weight.data.T.contiguous().T
        yield
    finally:
        for weight in turned:
            weight.data = weight.data.contiguous()


class FewTokens:
    """Compute the MLPs of passes over few tokens for one selector; see `few_tokens`."""

    def __init__(self, model: PreTrainedModel, selector: NeuronSelector) -> None:
        self.selector, self.neurons = selector, neurons_of(model)
        self.counts = [n_kept(selector.density_at(block), each.n) for block, each in enumerate(self.neurons)]
        # Whether a score of a block was NaN, which is asked for at the end.
        self.nan = torch.zeros(len(self.neurons), dtype=torch.int32, device=model.device).split(1)

    def __call__(self, block: int, seen: Seen) -> Float[Tensor, "T D"] | None:
        """Return the output of a block's MLP, or None if the caller should compute the whole MLP."""
        neurons, count = self.neurons[block], self.counts[block]
        # More rows than the matrices have are not worth it.
        if len(seen.x) * count > neurons.n or _kernel(seen.x, neurons, neurons.down.T) is None:
            return None
        score = self.selector.unchecked_score(seen, block).contiguous()
        kernel = kernel_for("per_token.top_indices", score, n_kept=count)
        if kernel is None:
            return None
        return chosen_mlp(seen.x, neurons, kernel.launch(score, count, self.nan[block]))

    def check_nan(self) -> None:
        """Raise ValueError if a score was NaN. It is raised only now because the host did not wait for the scores."""
        if wrong := [block for block, nan in enumerate(self.nan) if bool(nan)]:
            raise ValueError(
                f"got NaN among the scores from {type(self.selector).__name__} at block {wrong[0]}; expected numbers. "
                "Look for what diverged while it was trained."
            )


@contextmanager
def few_tokens(model: PreTrainedModel, selector: NeuronSelector) -> Iterator[FewTokens | None]:
    """Store the weights in the layout of the kernels inside the `with` block, or yield None if no kernel fits.

    No kernel fits on a CPU; for a selector that reads the hidden activations or keeps a varying number of neurons;
    and for an activation or a bias that the kernel does not support.
    """
    own_choice = any(getattr(type(selector), name) is not getattr(NeuronSelector, name) for name in ("keep", "score"))
    is_free = not (selector.reads_hidden or own_choice)
    # Where `down` will lie as `up` does.
    if not is_free or not all(_kernel(each.up[:1], each, each.up) for each in neurons_of(model)):
        yield None
        return
    with in_columns([block.get_submodule(architecture(block).mlp[-1]) for block in blocks(model)]):
        yield (few := FewTokens(model, selector))
        few.check_nan()


def _kernel(x: Tensor, weights: NeuronMajor | Neurons, down: Tensor):
    if weights.gate is not None and weights.gate_bias is not None:
        return None
    gate = weights.up if weights.gate is None else weights.gate
    return kernel_for("per_token.gathered_mlp", x, gate, weights.up, down, activation=weights.activation)


def _down_rows(weights: NeuronMajor | Neurons) -> Float[Tensor, "F D"]:
    return weights.down if isinstance(weights, NeuronMajor) else weights.down.T
