"""Upcycling. Komatsuzaki and others, Sparse upcycling, 2022, https://arxiv.org/abs/2212.05055

A dense model's MLPs are copied into E experts each. With weights that sum to 1, the mixture has the output of the dense
model for every gate. Then the gate has no gradient, since all experts agree, so the copies have to differ.

Dimension key: E experts, k of them per token.
"""

import copy
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from course_lib.models import MIXTRAL, blocks
from course_lib.moe.checks import check_count
from course_lib.moe.upcycling.copies import Difference, copies
from course_lib.moe.upcycling.mixture import avoid_what_cannot_group, check_family, check_same, mixture_blocks

GATE_STD = 0.02


def upcycled(
    model: PreTrainedModel,
    n_experts: int = 4,
    k: int = 2,
    difference: Difference | None = None,
    generator: torch.Generator | None = None,
) -> PreTrainedModel:
    """Return a Mixtral whose experts are copies of a dense model's MLPs; `from_pretrained` can load it after saving.

    Its gates are small and random. `model` does not change and shares no memory with the new one. If its widths or type
    rule out grouped products, experts are computed one at a time: then load it by `from_pretrained` with
    `experts_implementation="eager"`, since a checkpoint does not store this setting.

    Raises:
        ValueError: the model has a part that Mixtral cannot express, which the message names; or k is above E.
    """
    check_count("n_experts", n_experts, least=2)
    check_count("k", k)
    if k > n_experts:
        raise ValueError(f"got k = {k} of {n_experts} experts; expected at most {n_experts}.")
    check_family(model)
    difference = difference or Difference()
    with torch.random.fork_rng(devices=[]):  # every new model has random weights first
        mixture = AutoModelForCausalLM.from_config(mixture_config(model.config, n_experts, k), dtype=model.dtype)
    mixture = mixture.to(model.device).eval()
    mixture.generation_config = copy.deepcopy(model.generation_config)
    with torch.no_grad():
        _copy_all_but_mlps(model, mixture)
        for block in mixture_blocks(mixture):
            gate = block.get_parameter(MIXTRAL.gate)
            gate.copy_(GATE_STD * torch.randn(gate.shape, generator=generator))
        _copy_mlps(model, mixture, Difference(), None)
        avoid_what_cannot_group(mixture)
        check_same(model, mixture)
        if difference != Difference():
            _copy_mlps(model, mixture, difference, generator)
    return mixture


def _copy_mlps(
    model: PreTrainedModel, mixture: PreTrainedModel, difference: Difference, generator: torch.Generator | None
) -> None:
    for dense, sparse in zip(blocks(model), mixture_blocks(mixture), strict=True):
        into = sparse.get_parameter(MIXTRAL.into)
        first, last = copies(dense, len(into), difference, generator)
        into.copy_(first)
        sparse.get_parameter(MIXTRAL.out).copy_(last)


def mixture_config(dense: PreTrainedConfig, n_experts: int, k: int) -> Any:
    """Return a Mixtral's configuration with all settings of the dense model that Mixtral also has."""
    kind = getattr(transformers, MIXTRAL.config)
    own = {"model_type", "architectures", "transformers_version", "dtype", "torch_dtype"}
    shared = {name: getattr(dense, name) for name in kind().to_dict() if hasattr(dense, name) and name not in own}
    return kind(**shared | {MIXTRAL.experts_key: n_experts, MIXTRAL.chosen_key: k})


def _copy_all_but_mlps(model: PreTrainedModel, mixture: PreTrainedModel) -> None:
    """Copy the other parameters. They have the same names in both models, or the mixture cannot express the model."""
    theirs = dict(mixture.named_parameters())
    for name, parameter in model.named_parameters():
        if f".{MIXTRAL.mlp}." in name and name.endswith(".weight"):
            continue
        if name not in theirs or theirs[name].shape != parameter.shape:
            raise ValueError(
                f"got a {type(model).__name__} with the parameter {name} of shape {tuple(parameter.shape)}, for "
                "which a Mixtral has no place; expected a Llama or Mistral without biases and without norms of heads."
            )
        theirs[name].copy_(parameter)
