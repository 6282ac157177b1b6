"""Element scores from gradients, as in LLM-Pruner. Ma, Fang, Wang, 2023. https://arxiv.org/abs/2305.11627

Dimension key: O outputs of a layer, I its inputs, N windows, T tokens in a window.

Optimal brain damage estimates how the loss changes when a weight is set to zero: δL ≈ −g w + ½ h w², with the gradient
g and the diagonal h of the Hessian. It assumes g = 0 after training, and needs h.

If the model's probabilities are those of the data, the expected Hessian of a negative log-likelihood equals the
expected squared gradient, the Fisher information. So we estimate h as the mean of g² over sequences, which takes one
backward pass per sequence and memory in proportion to the number of weights. Using the text's own next tokens, rather
than tokens sampled from the model, gives the empirical Fisher information. For it the equality is only approximate.

A LayerPruner sees one layer and its inputs, but these gradients come from the loss of the whole dense model. The steps
are therefore plain functions, which `prune_by_gradients` combines.
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
    """Gradient statistics of one weight matrix over the calibration windows."""

    mean: Float[Tensor, "O I"]  # of ∂L/∂w over windows
    fisher: Float[Tensor, "O I"]  # mean of (∂L/∂w)² over windows: the diagonal of the empirical Fisher information


# Estimated loss change for w → 0, by the first-order term, the second-order term or both (LLM-Pruner's names).
ELEMENTS: dict[str, Callable[[Tensor, Gradients], Tensor]] = {
    "param_first": lambda w, g: (w * g.mean).abs(),
    "param_second": lambda w, g: (w * g.fisher * w).abs(),
    "param_mix": lambda w, g: (w * g.mean - w * g.fisher * w / 2).abs(),
}


def element_score(
    weight: Float[Tensor, "O I"], gradients: Gradients, element: str = "param_second"
) -> Float[Tensor, "O I"]:
    """Score every weight. The score "param_second" is twice the saliency of optimal brain damage, h w² / 2."""
    _check(element)
    return ELEMENTS[element](weight.float(), gradients)


def row_score(weight: Float[Tensor, "O I"], gradients: Gradients, element: str = "param_first") -> Float[Tensor, "O"]:
    """Score whole outputs: a row's sum of element scores, or |Σ_i w_i g_i| for "vectorize", where terms can cancel."""
    if element == "vectorize":
        return (weight.float() * gradients.mean).sum(1).abs()
    return element_score(weight, gradients, element).sum(1)


@evaluated
def collect_gradients(model: nn.Module, windows: Int[Tensor, "N T"], progress: bool = True) -> dict[str, Gradients]:
    """Run one backward pass per window, of its mean negative log-likelihood.

    Returns gradient statistics by layer name, such as "blocks.3.mlp.up_proj". Memory: two numbers per weight, plus at
    most one gradient per weight of the blocks. The model runs in evaluation mode, without dropout; its mode, existing
    gradients and `requires_grad` flags are restored afterwards.

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
    """Score every linear layer with the dense model's gradients, then prune all of them. Returns the sparsity by layer.

    Raises:
        ValueError: for an unknown element, unusable windows, or a pattern that does not fit. No weight is changed then.
    """
    _check(element)  # before the expensive backward passes
    gradients = collect_gradients(model, windows, progress)
    weights = {layer.name: weight_of(layer.module) for layer in layers_of(model)}
    masks = {name: pattern.keep(element_score(weight, gradients[name], element)) for name, weight in weights.items()}
    for name, weight in weights.items():
        weight.masked_fill_(~masks[name], 0)
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
    """Inside, only these modules' weights get gradients, each of which is accumulated and freed immediately."""
    parameter_state = {p: (p.requires_grad, p.grad) for p in model.parameters()}
    handles = []
    try:
        for parameter in parameter_state:
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
        for parameter, (requires_grad, gradient) in parameter_state.items():
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient


def _adder(module: nn.Module, gradients: Gradients, n_windows: int) -> Callable[[nn.Parameter], None]:
    is_transposed = weight_of(module).stride() != module.weight.stride()  # GPT-2 stores (inputs, outputs)

    def add(parameter: nn.Parameter) -> None:
        # mean += g / N,  fisher += g² / N
        gradient = (parameter.grad.T if is_transposed else parameter.grad).float()
        gradients.mean.add_(gradient, alpha=1 / n_windows)
        gradients.fisher.addcmul_(gradient, gradient, value=1 / n_windows)
        parameter.grad = None

    return add
