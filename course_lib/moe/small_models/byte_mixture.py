"""The model of bytes with experts in place of its MLPs, as a Mixtral of transformers, and the one that is kept.

As large for a byte as the dense model (attention/small_models/byte_model.py), and three times as large on the disk:
of eight experts each byte is computed by k, of 512 / k neurons each. `course reproduce byte_mixture` trains the one
that is kept, with two experts a byte and a balance loss; any router of the course works over its experts.

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
    """Its sizes: those of the dense model with `active` neurons, cut into experts of active / k.

    Raises:
        ValueError: neurons that k experts cannot share evenly, k above the experts.
    """
    check_count("n_experts", n_experts, least=2)
    check_count("k", k)
    if k > n_experts or active % k:
        raise ValueError(
            f"got k = {k} of {n_experts} experts for {active} neurons; expected at most {n_experts} experts a byte, "
            "and neurons that they share evenly."
        )
    return mixture_config(configuration(width, n_blocks, n_heads, active // k), n_experts, k)


def fresh(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """First weights, of a dense model too: as transformers draws them, but MLPs, experts and gates of deviation
    1 / √inputs.

    So narrow a model, and more so one with experts, learns faster from these than from transformers' 0.02.
    """
    model, generator = untrained(config, seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if f".{MIXTRAL.mlp}." in name:
                weight.normal_(std=weight.shape[-1] ** -0.5, generator=generator)
    return model


def load_byte_mixture(n_held_out: int = 48, n_training: int = 2048, folder: Path = WEIGHTS) -> ByteModel:
    """The trained mixture, text to look at, and text to learn from, the same every time.

    A Mixtral: two of eight experts a byte, with weights that sum to one.
    """
    return ByteModel(load_half(folder, NAME), byte_windows(n_held_out), byte_windows(n_training, "calibration"))


@torch.no_grad()
def routings(mixture: PreTrainedModel, ids: Int[Tensor, "B T"], router: Router | None = None) -> list[Routing]:
    """Who computes which byte: for each block one routing, of B · T rows, sequence after sequence.

    Args:
        router: in place of the model's own.
    """
    chosen = router or Mixtral(k=getattr(mixture.config, MIXTRAL.chosen_key))
    with in_evaluation_mode(mixture), routed_by(mixture, chosen) as seen:
        mixture(ids, use_cache=False)
    return [of_block[0] for of_block in seen]


def n_weights(model: PreTrainedModel) -> tuple[int, int]:
    """How many weights there are, and how many a byte meets: all but those of the experts that it does not go to."""
    total = sum(weight.numel() for weight in model.parameters())
    n_experts = getattr(model.config, MIXTRAL.experts_key, None)
    if n_experts is None:
        return total, total
    held = sum(weight.numel() for weight in model.parameters() if weight.ndim == 3)  # of experts, and nothing else
    return total, total - held + held * getattr(model.config, MIXTRAL.chosen_key) // n_experts
