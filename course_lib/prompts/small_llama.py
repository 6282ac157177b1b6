"""A small Llama from a dictionary of weights, so that an exercise can pass a whole model as plain tensors.

Dimension key: V tokens of the vocabulary, D width, H rows of a projection.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:  # the exercises are listed without loading transformers, which takes seconds
    from transformers import PreTrainedModel

HEAD_WIDTH = 2
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"
Weights = Mapping[str, Tensor]  # the named parameters of a model
_FIRST = "model.layers.0."


def as_model(weights: "Weights | PreTrainedModel") -> "PreTrainedModel":
    """Build the Llama with these weights, ready for training: all parameters have requires_grad=True.

    The embedding table is also the LM head. If `weights` is a model, it is returned unchanged.

    Args:
        weights: the named parameters of a LlamaForCausalLM whose attention heads are HEAD_WIDTH wide.
    """
    if isinstance(weights, nn.Module):
        return weights
    from transformers import LlamaConfig, LlamaForCausalLM

    n_rows = {name: len(weights[f"{_FIRST}{name}_proj.weight"]) for name in ("self_attn.q", "self_attn.k", "mlp.gate")}
    config = LlamaConfig(
        vocab_size=weights[TABLE].shape[0],
        hidden_size=weights[TABLE].shape[1],
        intermediate_size=n_rows["mlp.gate"],
        num_hidden_layers=sum(name.endswith("q_proj.weight") for name in weights),
        num_attention_heads=n_rows["self_attn.q"] // HEAD_WIDTH,
        num_key_value_heads=n_rows["self_attn.k"] // HEAD_WIDTH,
        head_dim=HEAD_WIDTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):  # the random initialisation is overwritten
        model = LlamaForCausalLM(config).to(weights[TABLE].dtype)
    model.load_state_dict(dict(weights), strict=False)  # the LM head is the table
    return model.eval()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the named parameters of a model as plain tensors; the inverse of `as_model`."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def random_weights(
    generator: torch.Generator, vocabulary: int, heads: int, n_blocks: int = 1, size: float = 1.5
) -> dict[str, Tensor]:
    """Return random weights for `as_model`: `heads` attention heads, half as many key-value heads, width 2 per head.

    Args:
        size: the standard deviation of the embedding table.
    """
    width, narrow, neurons = HEAD_WIDTH * heads, HEAD_WIDTH * max(1, heads // 2), 3 * heads
    shapes = {"self_attn.q": (width, width), "self_attn.k": (narrow, width), "self_attn.v": (narrow, width)}
    shapes |= {"self_attn.o": (width, width), "mlp.gate": (neurons, width), "mlp.up": (neurons, width)}
    shapes["mlp.down"] = (width, neurons)
    weights = {TABLE: size * torch.randn(vocabulary, width, generator=generator)}
    for block in range(n_blocks):
        for name, shape in shapes.items():
            weight = torch.randn(*shape, generator=generator) / shape[1] ** 0.5
            weights[f"model.layers.{block}.{name}_proj.weight"] = weight
        for norm in ("input", "post_attention"):
            weights[f"model.layers.{block}.{norm}_layernorm.weight"] = torch.ones(width)
    return weights | {"model.norm.weight": torch.ones(width)}
