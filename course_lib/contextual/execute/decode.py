"""An OPT that decodes one token at a time, in which neuron sparsity saves wall-clock time.

It does only the arithmetic of the model, because the rest of a step in transformers takes as long as a small MLP.

Dimension key: N tokens, D width, H heads, d size of a head, F neurons, K chosen neurons, V tokens of the vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from course_lib.contextual.execute.break_even import Gather, SparseMLP
from course_lib.contextual.execute.gathered import by_bag
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.room import Room
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.seen import Seen, look_through
from course_lib.models import architecture, blocks, final_norm, head, heads

# (block index, position, x of the block's MLP) -> indices of the neurons to compute; None means all.
Choice = Callable[[int, int, Tensor], Tensor | None]


@dataclass(frozen=True, eq=False)
class Block:
    """Weights of one transformer block; the query, key and value projections form one matrix."""

    norms: tuple[nn.Module, nn.Module]
    into: Float[Tensor, "qkv D"]
    into_bias: Float[Tensor, "qkv"]
    out: Float[Tensor, "D D"]
    out_bias: Float[Tensor, "D"]
    mlp: SparseMLP

    @classmethod
    def of(cls, block: nn.Module, mlp: SparseMLP) -> "Block":
        parts = architecture(block)
        first, second = (block.get_submodule(name) for name in parts.norms)
        *qkv, out = (block.get_submodule(name) for name in parts.attention)
        weights, biases = torch.cat([part.weight for part in qkv]), torch.cat([part.bias for part in qkv])
        return cls((first, second), weights.detach(), biases.detach(), out.weight.detach(), out.bias.detach(), mlp)


class Decoder:
    """The weights of a model, and a key-value cache for `length` tokens.

    Args:
        break_even: density above which an MLP is computed dense; see `break_even.break_even`.
        gather: how the chosen neurons are computed; see `break_even.fastest`.

    Raises:
        ValueError: the model is not an OPT, has norms after attention or no biases, or has fewer than `length`
            positions.
    """

    def __init__(self, model: PreTrainedModel, length: int, break_even: float = 1.0, gather: Gather = by_bag) -> None:
        family = architecture(blocks(model)[0]).family
        if family != "OPT":
            raise ValueError(
                f"got a model of the family {family}; expected an OPT, such as load_relu_model(). For other models, "
                "use contextual()."
            )
        _check_plain(model)
        room = Room()  # one buffer is enough, because transformer blocks run one after another
        mlps = [SparseMLP(NeuronMajor.of(neurons, room), break_even, gather) for neurons in neurons_of(model)]
        self.blocks = [Block.of(block, mlp) for block, mlp in zip(blocks(model), mlps, strict=True)]
        self.embedding = model.get_input_embeddings().weight.detach()
        self.positions = _positions(model, length)
        self.final_norm, self.head, size = final_norm(model), head(model).weight.detach(), heads(model)
        # Keys and values of each transformer block: (2, H, length, d).
        self.cache = torch.zeros(len(self.blocks), 2, size.n_query, length, size.size).to(self.embedding)
        self.n_read = 0

    @torch.inference_mode()
    def read(self, ids: Int[Tensor, "N"], choose: Choice) -> Float[Tensor, "N V"]:
        """Return the logits after each token of a text, starting from an empty cache."""
        if len(ids) > len(self.positions):
            raise ValueError(
                f"got {len(ids)} tokens; expected at most {len(self.positions)}, the length of this decoder's cache."
            )
        self.n_read = 0
        return torch.stack([self.step(token, choose) for token in ids.tolist()])

    def step(self, token: int, choose: Choice) -> Float[Tensor, "V"]:
        """Read one more token and return the logits of the next one."""
        position = self.n_read
        x = self.embedding[token] + self.positions[position]
        for index, block in enumerate(self.blocks):
            x = x + self._attention(block, block.norms[0](x), self.cache[index], position)
            inner = block.norms[1](x)
            x = x + block.mlp(inner, choose(index, position, inner))
        self.n_read += 1
        return torch.mv(self.head, self.final_norm(x))

    def _attention(self, block: Block, x: Float[Tensor, "D"], cache: Tensor, position: int) -> Float[Tensor, "D"]:
        n_heads, size = cache.shape[1], cache.shape[3]
        # q, k and v in one product: W x + b, (3 · H · d).
        query, key_value = torch.addmv(block.into_bias, block.into, x).split([n_heads * size, 2 * n_heads * size])
        cache[:, :, position] = key_value.view(2, n_heads, size)
        keys, values = cache[:, :, : position + 1]
        output = scaled_dot_product_attention(query.view(1, n_heads, 1, size), keys[None], values[None])
        return torch.addmv(block.out_bias, block.out, output.reshape(-1))


def _check_plain(model: PreTrainedModel) -> None:
    """Refuse the few OPTs with another architecture, such as the one with 350 million parameters."""
    config = model.config
    deviations = {
        "do_layer_norm_before=False": not config.do_layer_norm_before,
        "enable_bias=False": not config.enable_bias,
        f"word_embed_proj_dim={config.word_embed_proj_dim}": config.word_embed_proj_dim != config.hidden_size,
    }
    if unusual := [setting for setting, is_present in deviations.items() if is_present]:
        raise ValueError(
            f"got a {type(model).__name__} with {', '.join(unusual)}; expected norms before attention, biases, and "
            "embeddings as wide as the blocks, as in opt-125m. For other models, use contextual()."
        )


def _positions(model: PreTrainedModel, length: int) -> Float[Tensor, "N D"]:
    """Return the position embeddings: the residual before block 0, minus the token embedding."""
    token, embeddings = 0, []

    def look(block: int, seen: Seen) -> None:
        if block == 0:
            embeddings.append(seen.embedding - model.get_input_embeddings().weight[token])

    try:
        look_through(model, torch.full((1, length), token), look)
    except (IndexError, RuntimeError) as error:
        raise ValueError(f"got a length of {length} tokens, which this model cannot read: {error}") from error
    return embeddings[0].detach()
