"""A byte-level language model that trains in minutes, a class of transformers, so that it can be pruned and distilled.

A Llama of four blocks, 128 wide, with 512 neurons: 1.08 million parameters. `course reproduce byte_model` trains it
from scratch on the calibration texts; its weights are stored with those of the other models. The same functions build,
train and store models of other configurations, such as one with experts.

Dimension key: N windows, L bytes in a window, B sequences, T bytes.
"""

import json
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel

from course_lib.attention.small_models.training import WEIGHTS, Schedule, running, training_texts, write
from course_lib.data.corpora import DOCUMENTS
from course_lib.repetition import seeded

LENGTH = 128  # bytes of a sequence
NAME = "byte_model"


class ByteModel(NamedTuple):
    """The trained model in float32, held-out windows of bytes (n, 128), and training windows."""

    model: PreTrainedModel
    held_out: Int[Tensor, "N L"]
    training: Int[Tensor, "M L"]


def configuration(width: int = 128, n_blocks: int = 4, n_heads: int = 4, n_neurons: int = 512) -> LlamaConfig:
    """Return the configuration. The LM head is tied; there is no BOS or EOS, so no byte stops `generate`."""
    return LlamaConfig(
        vocab_size=256,
        hidden_size=width,
        num_hidden_layers=n_blocks,
        num_attention_heads=n_heads,
        num_key_value_heads=n_heads,
        head_dim=width // n_heads,
        intermediate_size=n_neurons,
        max_position_embeddings=4 * LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )


def schedule() -> Schedule:
    """Return the schedule: 800 steps of 16 sequences."""
    return Schedule(n_steps=800, batch=16, length=LENGTH, rate=3e-3, warm_up=40, decay=0.1)


def untrained(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """Return a model with transformers' random initialisation, which depends only on the seed."""
    with seeded(seed):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def byte_losses(model: PreTrainedModel, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T-1"]:
    """Negative log-likelihood of each byte after the first, in nats: the objective of `training.train`."""
    logits = model(ids[:, :-1], use_cache=False).logits
    return cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def byte_windows(n: int | None, split: str = "evaluation", length: int = LENGTH, seed: int = 0) -> Int[Tensor, "N L"]:
    """Return non-overlapping windows in random order; a larger n starts with the windows of a smaller one.

    Args:
        n: the number of windows; None for all.
        split: "evaluation" reads Wikipedia articles that no model is trained on, "calibration" the texts for training.

    Raises:
        ValueError: the split is unknown, the sizes make no window, or there are fewer than n windows.
    """
    if split not in ("calibration", "evaluation"):
        raise ValueError(f"got split {split!r}; expected 'calibration' or 'evaluation'.")
    tokens = running(training_texts() if split == "calibration" else DOCUMENTS["wikipedia"]("evaluation"))
    available = len(tokens) // length if length > 1 else 0
    if not 1 <= (available if n is None else n) <= available:
        raise ValueError(
            f"got n={n}, length={length}; the {split} split has {len(tokens):,} bytes: {available:,} windows of that "
            "length. Ask for 1 to as many, of at least two bytes."
        )
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))[:n]
    return tokens[: available * length].view(available, length)[order]


def save_half(model: PreTrainedModel, folder: Path, name: str = NAME) -> Path:
    """Write float16 weights and the configuration to one file, atomically; a tied LM head is stored only once."""
    halves = {key: weight.detach().half().contiguous() for key, weight in model.named_parameters()}
    metadata = {"config": json.dumps(model.config.to_dict())}
    return write(as_bytes(halves, metadata), folder / f"{name}.safetensors")


def load_half(folder: Path = WEIGHTS, name: str = NAME) -> PreTrainedModel:
    """Load in float32 what `save_half` wrote, in evaluation mode.

    Raises:
        ValueError: there is no such file.
    """
    path = folder / f"{name}.safetensors"
    if not path.exists():
        raise ValueError(f"got {path}, which is not there; train the model with `course reproduce {name}`.")
    with safe_open(path, "pt") as file:
        settings = json.loads(file.metadata()["config"])
    model = untrained(AutoConfig.for_model(settings.pop("model_type"), **settings), seed=0)
    weights = load_file(path)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(weights.pop(key))
    assert not weights, f"nothing takes {', '.join(weights)}"
    return model.eval()


def load_byte_model(n_held_out: int = 48, n_training: int = 2048, folder: Path = WEIGHTS) -> ByteModel:
    """Load the teacher of the lessons' live runs with held-out and training windows, the same in every call."""
    return ByteModel(load_half(folder), byte_windows(n_held_out), byte_windows(n_training, "calibration"))
