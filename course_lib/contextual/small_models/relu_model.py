"""A byte-level language model with many ReLU neurons, an OPT of transformers: only few neurons are active per byte.

Deja Vu was developed for OPT (Zhang and others, 2022, https://arxiv.org/abs/2205.01068). This one has four blocks, 256
wide, with 4096 neurons each: 9.6 million parameters, of which the MLPs have seven eighths. `course reproduce
relu_model` trains it from scratch on the calibration texts of the other byte-level models.

Dimension key: N windows, L bytes in a window, B blocks.
"""

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import OPTConfig, PreTrainedConfig, PreTrainedModel

from course_lib.attention.small_models.byte_model import LENGTH, ByteModel, byte_windows, load_half, untrained
from course_lib.attention.small_models.training import Schedule
from course_lib.contextual.predictor.store import load_predictors
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.seen import Seen, look_through
from course_lib.models import architecture, blocks

NAME = "relu_model"
PREDICTORS = "relu_predictors"
WEIGHTS = Path(__file__).with_name("weights")


def relu_configuration(width: int = 256, n_blocks: int = 4, n_heads: int = 4, n_neurons: int = 4096) -> OPTConfig:
    """Return the configuration. The LM head is tied, positions are learnt for one window, and no BOS or EOS exists."""
    return OPTConfig(
        vocab_size=256,
        hidden_size=width,
        num_hidden_layers=n_blocks,
        num_attention_heads=n_heads,
        ffn_dim=n_neurons,
        max_position_embeddings=LENGTH,
        activation_function="relu",
        dropout=0.0,
        tie_word_embeddings=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )


def relu_schedule() -> Schedule:
    """Return the schedule: 600 steps of 16 sequences."""
    return Schedule(n_steps=600, batch=16, length=LENGTH, rate=2e-3, warm_up=40, decay=0.1)


def untrained_relu_model(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """Initialise as transformers does, but the MLPs with standard deviation 1 / √inputs: they learn faster."""
    model, generator = untrained(config, seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in blocks(model):
            for name in architecture(block).mlp:
                weight = block.get_submodule(name).weight
                weight.normal_(std=weight.shape[1] ** -0.5, generator=generator)
    return model


def load_relu_model(n_held_out: int = 48, n_training: int = 2048, folder: Path = WEIGHTS) -> ByteModel:
    """Load the trained model in float32, held-out windows, and training windows, the same in every call.

    It has no trained positions beyond a window of 128 bytes.
    """
    return ByteModel(load_half(folder, NAME), byte_windows(n_held_out), byte_windows(n_training, "calibration"))


def load_relu_predictors(folder: Path = WEIGHTS) -> tuple[Predictor, ...]:
    """Load one predictor per block, of rank 32, trained by `course reproduce relu_predictors` on the model's data."""
    return load_predictors(folder / f"{PREDICTORS}.safetensors")


def active_shares(model: PreTrainedModel, ids: Int[Tensor, "N L"]) -> Float[Tensor, "B"]:
    """Return for each block the mean fraction over bytes of neurons that are not zero."""
    by_block: dict[int, list[Tensor]] = {}

    def look(block: int, seen: Seen) -> None:
        by_block.setdefault(block, []).append(seen.hidden.ne(0).double().mean())

    look_through(model, ids, look)
    return torch.stack([torch.stack(shares).mean() for shares in by_block.values()]).float()
