"""Record the inputs and outputs of a model's blocks, to compare them with formulas that compute parts of them again.

Families that use Llama's names may compute something else: scaled residuals (Granite), norms after attention (Gemma
2 and 3), clipped projections (OLMo). A formula that ignores this would be wrong without an error.

Dimension key: T tokens, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.hooks import hooking
from course_lib.models import architecture, blocks, trunk, without_hooks

ROUNDING = {torch.float16: 0.02, torch.bfloat16: 0.1}  # of the largest number, through several products; else 1e-3
UNUSUAL = {"residual_multiplier": 1.0, "clip_qkv": None, "do_layer_norm_before": True}  # and what changes nothing


@dataclass
class Trial:
    """The tensors of one block in a pass over one text."""

    read: list[Float[Tensor, "T D"]] = field(default_factory=list)
    into_attention: list[Float[Tensor, "T D"]] = field(default_factory=list)
    from_attention: list[Float[Tensor, "T D"]] = field(default_factory=list)
    from_second_norm: list[Float[Tensor, "T D"]] = field(default_factory=list)
    into_mlp: list[Float[Tensor, "T D"]] = field(default_factory=list)


@torch.no_grad()
def trials(model: PreTrainedModel, n_tokens: int) -> list[Trial]:
    """Return the tensors of each block in a pass over `n_tokens` different tokens. The model's own hooks do not run."""
    twin = without_hooks(model).eval()
    found = [Trial() for _ in blocks(twin)]
    with hooking() as handles:
        for block, trial in zip(blocks(twin), found, strict=True):
            names = architecture(block)
            paths = names.attention[0], names.attention[-1], names.norms[1], names.mlp[0]
            first, output, norm, mlp = (block.get_submodule(path) for path in paths)
            handles.append(block.register_forward_pre_hook(_read_into(trial.read), with_kwargs=True))
            handles.append(first.register_forward_pre_hook(_read_into(trial.into_attention), with_kwargs=True))
            handles.append(output.register_forward_hook(_given_into(trial.from_attention)))
            handles.append(norm.register_forward_hook(_given_into(trial.from_second_norm)))
            handles.append(mlp.register_forward_pre_hook(_read_into(trial.into_mlp), with_kwargs=True))
        trunk(twin)(torch.arange(n_tokens, device=model.device)[None] % model.config.vocab_size, use_cache=False)
    return found


def differ(found: Tensor, expected: Tensor) -> bool:
    """Return whether two results differ by more than rounding. NaN is not a difference: it is visible in the result."""
    error, size = (found.float() - expected.float()).abs().max(), expected.float().abs().max()
    return bool(error > ROUNDING.get(expected.dtype, 1e-3) * size)


def check_second_norm(model: PreTrainedModel) -> None:
    """Raise ValueError if the MLP does not read the output of the block's second norm."""
    for index, trial in enumerate(trials(model, n_tokens=2)):
        if differ(trial.from_second_norm[0], trial.into_mlp[0]):
            raise ValueError(
                f"got a {in_words(model)}, in which the MLP of block {index} does not read its second norm; expected "
                "blocks of norm, attention, norm, MLP, such as Llama's."
            )


def in_words(model: PreTrainedModel) -> str:
    """Return the name of the model's class, with the settings that make it unusual."""
    values = {name: getattr(model.config, name, plain) for name, plain in UNUSUAL.items()}
    unusual = [f"{name}={value}" for name, value in values.items() if value != UNUSUAL[name]]
    return f"{type(model).__name__} with {', '.join(unusual)}" if unusual else type(model).__name__


def _read_into(noted: list[Tensor]) -> Callable:
    def hook(_: nn.Module, args: tuple, kwargs: dict) -> None:
        noted.append(_tokens(args[0] if args else kwargs["hidden_states"]))

    return hook


def _given_into(noted: list[Tensor]) -> Callable:
    def hook(_: nn.Module, args: tuple, output: Tensor) -> None:
        noted.append(_tokens(output))

    return hook


def _tokens(hidden: Tensor) -> Float[Tensor, "T D"]:
    return hidden.reshape(-1, hidden.shape[-1])
