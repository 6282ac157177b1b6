"""Element scores from gradients, as in LLM-Pruner. Ma, Fang, Wang, 2023. https://arxiv.org/abs/2305.11627

Dimension key: O outputs of a layer, I its inputs, N windows, T tokens in a window.

Optimal brain damage asks what a weight's removal does to the loss: δL ≈ −g w + ½ h w². It takes g = 0, after training,
and needs the diagonal h of the Hessian. For a loss that is a negative log-likelihood, the expected Hessian equals the
expected square of the gradient, the Fisher information, wherever the model's probabilities are those of the data. So h
becomes the mean of g² over sequences: one backward pass each and O(d) memory, for any model. With the text's own next
tokens in place of tokens drawn from the model it is the empirical Fisher, and the equality only holds roughly.

This does not fit LayerPruner, whose methods see one layer and its inputs: these gradients come from the loss of the
whole dense model. So the steps are plain functions, and `prune_by_gradients` does them all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.measure.progress import tracked
from course_lib.models import layers_of, weight_of
from course_lib.repetition import evaluated
from course_lib.sparsity.patterns import Pattern, sparsity_of


@dataclass
class Gradients:
    """What the backward passes say about one weight matrix."""

    mean: Float[Tensor, "O I"]  # of ∂L/∂w over windows
    fisher: Float[Tensor, "O I"]  # mean of (∂L/∂w)² over windows: the diagonal of the empirical Fisher information


# What setting w to zero does to the loss, by the terms that are counted (the names are those of LLM-Pruner's code).
ELEMENTS: dict[str, Callable[[Tensor, Gradients], Tensor]] = {
    "param_first": lambda w, g: (w * g.mean).abs(),
    "param_second": lambda w, g: (w * g.fisher * w).abs(),
    "param_mix": lambda w, g: (w * g.mean - w * g.fisher * w / 2).abs(),
}


def element_score(
    weight: Float[Tensor, "O I"], gradients: Gradients, element: str = "param_second"
) -> Float[Tensor, "O I"]:
    """The score of every weight; "param_second" is twice the saliency of optimal brain damage, h w² / 2."""
    _check(element)
    return ELEMENTS[element](weight.float(), gradients)


def row_score(weight: Float[Tensor, "O I"], gradients: Gradients, element: str = "param_first") -> Float[Tensor, "O"]:
    """The score of whole outputs: the sum over their weights, or |Σ w g| for "vectorize", where weights may cancel."""
    if element == "vectorize":
        return (weight.float() * gradients.mean).sum(1).abs()
    return element_score(weight, gradients, element).sum(1)


@evaluated
def collect_gradients(model: nn.Module, windows: Int[Tensor, "N T"], progress: bool = True) -> dict[str, Gradients]:
    """One backward pass a window, of its mean negative log-likelihood; by layer, such as "blocks.3.mlp.up_proj".

    Memory: two numbers a weight, and one gradient of the model's blocks at most. The model runs in evaluation mode,
    without dropout, and is left as it was.

    Raises:
        ValueError: without windows, with windows of fewer than two tokens, or with token ids of another vocabulary.
    """
    if windows.shape[0] == 0 or windows.shape[1] < 2:
        raise ValueError(
            f"got windows of shape {tuple(windows.shape)}; expected at least one window of at least two tokens. "
            "Use corpora.windows('wikipedia', 10, 64, ...)."
        )
    size = model.config.vocab_size
    if int(windows.min()) < 0 or int(windows.max()) >= size:
        raise ValueError(
            f"got token ids {int(windows.min())} to {int(windows.max())}; expected 0 to {size - 1}. Use this model's "
            "own tokenizer."
        )
    modules = {layer.name: layer.module for layer in layers_of(model)}
    gradients = {name: Gradients(_zeros(module), _zeros(module)) for name, module in modules.items()}
    device = next(model.parameters()).device
    with _watching(model, modules, gradients, len(windows)), torch.enable_grad():
        for ids in tracked(windows.to(device), "gradients", progress):
            logits = model(ids[None], use_cache=False).logits[0, :-1]
            cross_entropy(logits.float(), ids[1:]).backward()
    return gradients


def prune_by_gradients(
    model: nn.Module,
    pattern: Pattern,
    windows: Int[Tensor, "N T"],
    element: str = "param_second",
    progress: bool = True,
) -> dict[str, float]:
    """Score every linear of every block with the dense model's gradients, then prune all; the sparsity by layer.

    Raises:
        ValueError: for an unknown element, unusable windows, or a pattern that does not fit; no weight is changed then.
    """
    _check(element)  # before the long part
    gradients = collect_gradients(model, windows, progress)
    weights = {layer.name: weight_of(layer.module) for layer in layers_of(model)}
    keeps = {name: pattern.keep(element_score(weight, gradients[name], element)) for name, weight in weights.items()}
    for name, weight in weights.items():
        weight.masked_fill_(~keeps[name], 0)
    return {name: sparsity_of(weight) for name, weight in weights.items()}


def _check(element: str) -> None:
    if element not in ELEMENTS:
        raise ValueError(f"got element {element!r}; expected one of {', '.join(ELEMENTS)}.")


def _zeros(module: nn.Module) -> Float[Tensor, "O I"]:
    return torch.zeros(weight_of(module).shape, device=module.weight.device)


@contextmanager
def _watching(
    model: nn.Module, modules: dict[str, nn.Module], gradients: dict[str, Gradients], n_windows: int
) -> Iterator[None]:
    """Gradients of these modules' weights alone, each added up and let go as soon as it is there."""
    before = {p: (p.requires_grad, p.grad) for p in model.parameters()}
    handles = []
    try:
        for parameter in before:
            parameter.requires_grad_(False)
            parameter.grad = None
        for name, module in modules.items():
            module.weight.requires_grad_(True)
            adder = _adder(module, gradients[name], n_windows)
            handles.append(module.weight.register_post_accumulate_grad_hook(adder))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter, (needed, gradient) in before.items():
            parameter.requires_grad_(needed)
            parameter.grad = gradient


def _adder(module: nn.Module, gradients: Gradients, n_windows: int) -> Callable[[nn.Parameter], None]:
    transposed = weight_of(module).stride() != module.weight.stride()  # GPT-2 stores (inputs, outputs)

    def add(parameter: nn.Parameter) -> None:
        # mean += g / N,  fisher += g² / N
        gradient = (parameter.grad.T if transposed else parameter.grad).float()
        gradients.mean.add_(gradient, alpha=1 / n_windows)
        gradients.fisher.addcmul_(gradient, gradient, value=1 / n_windows)
        parameter.grad = None

    return add
