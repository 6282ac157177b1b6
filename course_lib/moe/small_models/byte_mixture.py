"""A byte-level mixture of experts, in the Mixtral class of transformers, and its trained weights.

It has eight experts of 512 / k neurons, k of which process each byte. So a byte passes through as many MLP neurons as
in the dense model (attention/small_models/byte_model.py), and the file is three times as large. `course reproduce
byte_mixture` trains the stored weights, with two experts per byte and a balance loss. Every router of the course can
replace the model's own.

Dimension key: N windows, L bytes in a window, B sequences, T bytes.
"""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from course_lib.attention.small_models.byte_model import ByteModel, byte_windows, configuration, load_half, untrained
from course_lib.models import MIXTRAL
from course_lib.moe.checks import check_count
from course_lib.moe.routed import Routing
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routing import Router
from course_lib.moe.upcycling.mixtral import mixture_config
from course_lib.moe.upcycling.swapping import routed_by
from course_lib.repetition import in_evaluation_mode

NAME = "byte_mixture"
WEIGHTS = Path(__file__).with_name("weights")


def mixture_configuration(
    n_experts: int = 8, k: int = 2, width: int = 128, n_blocks: int = 4, n_heads: int = 4, active: int = 512
) -> Any:
    """Return a Mixtral configuration with the dense model's sizes and experts of active / k neurons.

    Args:
        active: MLP neurons per byte, over its k experts.

    Raises:
        ValueError: k does not divide `active`, or is above the number of experts.
    """
    check_count("n_experts", n_experts, least=2)
    check_count("k", k)
    if k > n_experts or active % k:
        raise ValueError(
            f"got k = {k} of {n_experts} experts for {active} neurons; expected at most {n_experts} experts per byte, "
            "and a number of neurons that k divides."
        )
    return mixture_config(configuration(width, n_blocks, n_heads, active // k), n_experts, k)


def fresh(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """Initialise a model, dense or with experts.

    MLPs, experts and gates are normal with standard deviation 1 / √inputs, everything else as transformers draws it. A
    model this narrow trains faster from these weights than with transformers' standard deviation of 0.02, most of all
    with experts.
    """
    model, generator = untrained(config, seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if f".{MIXTRAL.mlp}." in name:
                weight.normal_(std=weight.shape[-1] ** -0.5, generator=generator)
    return model


def load_byte_mixture(n_held_out: int = 48, n_training: int = 2048, folder: Path = WEIGHTS) -> ByteModel:
    """Load the trained mixture with held-out and training windows. Every call returns the same windows.

    The model is a Mixtral with two of eight experts per byte, whose weights sum to one.
    """
    return ByteModel(load_half(folder, NAME), byte_windows(n_held_out), byte_windows(n_training, "calibration"))


@torch.no_grad()
def routings(mixture: PreTrainedModel, ids: Int[Tensor, "B T"], router: Router | None = None) -> list[Routing]:
    """Run the model and return one routing per block, with B · T rows in the order of the sequences.

    Args:
        router: replaces the model's own router.
    """
    router = router or Mixtral(k=getattr(mixture.config, MIXTRAL.chosen_key))
    with in_evaluation_mode(mixture), routed_by(mixture, router) as routings_by_block:
        mixture(ids, use_cache=False)
    return [block_routings[0] for block_routings in routings_by_block]  # after one forward pass, one routing each


def n_weights(model: PreTrainedModel) -> tuple[int, int]:
    """Count all weights, and those active per byte: all except the E − k experts that do not process it."""
    total = sum(weight.numel() for weight in model.parameters())
    n_experts = getattr(model.config, MIXTRAL.experts_key, None)
    if n_experts is None:
        return total, total
    in_experts = sum(weight.numel() for weight in model.parameters() if weight.ndim == 3)  # only experts have 3 axes
    # active = total − experts · (1 − k / E)
    return total, total - in_experts + in_experts * getattr(model.config, MIXTRAL.chosen_key) // n_experts
