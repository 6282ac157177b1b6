"""A Llama of a published shape with random weights, made on the device within seconds.

A step takes as long as with the trained model, because no time depends on the values. Its logits are meaningless.
"""

import torch
from course_lib.kernels.timing.contest import Place
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from course_lib.measure.roofline import Transformer

LLAMA3_8B = Transformer(32, 4096, 32, 8, 128, 14336, 128256)  # of the model's published configuration
TINY = Transformer(2, 48, 6, 2, 8, 100, 97)
ROPE_THETA = 5e5
WRITE_TO_RESIDUAL = ("o_proj", "down_proj")


def random_llama(shape: Transformer, place: Place) -> PreTrainedModel:
    """Return the model, without gradients, in the place's type. Each branch adds 1 / √(2 L) times its input's size."""
    config = LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.n_neurons,
        num_hidden_layers=shape.n_blocks,
        num_attention_heads=shape.n_query,
        num_key_value_heads=shape.n_key_value,
        head_dim=shape.head_size,
        vocab_size=shape.vocabulary,
        max_position_embeddings=2**17,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )
    with torch.device("meta"):  # the usual initialisation would take minutes on a CPU
        model = LlamaForCausalLM(config).to(place.dtype)
    model.to_empty(device=place.device)
    # The angles of RoPE are no weights but computed, and `to_empty` has left nothing of them.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(place.device)
    generator = on_device(place)
    for name, weight in model.named_parameters():
        _fill_(name, weight.data, shape.n_blocks, generator)
    return model.eval().requires_grad_(False)


def on_device(place: Place) -> torch.Generator:
    """Return a generator with the place's seed on the place's device, whatever the device of its own generator."""
    return torch.Generator(place.device).manual_seed(place.generator.initial_seed())


def _fill_(name: str, weight: Tensor, n_blocks: int, generator: torch.Generator) -> None:
    if weight.ndim == 1:  # of a norm
        weight.fill_(1)
    elif "embed_tokens" in name:
        weight.normal_(generator=generator)
    else:
        into_residual = any(part in name for part in WRITE_TO_RESIDUAL)
        scale = (2 * n_blocks) ** -0.5 if into_residual else 1.0
        weight.normal_(std=scale * weight.shape[1] ** -0.5, generator=generator)
