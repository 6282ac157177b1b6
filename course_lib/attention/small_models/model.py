"""A small language model in plain torch with or without a sink: Llama's block, with keys cached before RoPE.

Three variants, as in StreamingLLM (Xiao, Tian, Chen, Han, Lewis, 2023, https://arxiv.org/abs/2309.17453), section 3.3:

    vanilla          the usual softmax; the text starts with its first token
    zero sink        softmax-off-by-one in every head
    learnable sink   one learned token before every training sample

    As in the paper, a key's position is its slot in the cache, so streaming only needs `Past`.

Dimension key: B sequences, T tokens, N slots (cached and new), H heads, D size of a head, V tokens of the vocabulary,
C width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention, silu

from course_lib.attention.sink_softmax import sink_softmax

VARIANTS = ("vanilla", "zero sink", "learnable sink")

Past = list[tuple[Tensor, Tensor]]  # of every layer: keys before RoPE and values, (B, H, N, D)


@dataclass(frozen=True)
class Shape:
    """The sizes of the model."""

    vocabulary: int = 256
    width: int = 96
    n_layers: int = 3
    n_heads: int = 3
    hidden: int = 256


class Attention(nn.Module):
    """Multi-head attention with RoPE over cached and new tokens."""

    def __init__(self, shape: Shape, zero_sink: bool):
        super().__init__()
        self.n_heads, self.zero_sink = shape.n_heads, zero_sink
        self.into = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def projected(self, x: Float[Tensor, "B T C"], past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, H, T, D) of the new tokens, keys and values (B, H, N, D) of all, before RoPE."""
        query, keys, values = self.into(x).unflatten(2, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        if past is not None:
            keys, values = torch.cat([past[0], keys], dim=2), torch.cat([past[1], values], dim=2)
        return query, keys, values

    def forward(
        self, x: Float[Tensor, "B T C"], past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "B T C"], tuple[Tensor, Tensor]]:
        """Return the attention output of the new tokens, and the new cache. With a past, tokens come one at a time."""
        query, keys, values = self.projected(x, past)
        n_slots, n_new = keys.shape[2], x.shape[1]
        read_from = [turn(query, n_slots), turn(keys, n_slots), values]
        if self.zero_sink:  # add a key and a value of zeros, which RoPE does not change; a query too, for is_causal
            read_from = [pad(tensor, (0, 0, 1, 0)) for tensor in read_from]
        read = scaled_dot_product_attention(*read_from, is_causal=n_new > 1)[:, :, -n_new:]
        return self.out(read.transpose(1, 2).flatten(2)), (keys, values)

    def weights(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T T"]:
        """Return the weights of the same attention, computed explicitly, for analysis."""
        query, keys, _ = self.projected(x, None)
        logits = turn(query, x.shape[1]) @ turn(keys, x.shape[1]).transpose(2, 3) * query.shape[3] ** -0.5
        later = torch.ones(logits.shape[2:], dtype=torch.bool).triu(1)
        return sink_softmax(logits.masked_fill(later, float("-inf")), 0 if self.zero_sink else None)


def turn(vectors: Float[Tensor, "B H T D"], n_slots: int) -> Float[Tensor, "B H T D"]:
    """Apply RoPE to the last T of `n_slots` slots: rotate pairs (i, i + D/2) by the slot times 10000^(−2i/D)."""
    half = vectors.shape[3] // 2
    place = torch.arange(n_slots - vectors.shape[2], n_slots)[:, None]
    angle = place * 10000.0 ** -(torch.arange(half) / half)
    low, high = vectors.chunk(2, dim=3)
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=3)


class Block(nn.Module):
    """Attention and a SwiGLU network, each with a norm before it and added to the residual."""

    def __init__(self, shape: Shape, zero_sink: bool):
        super().__init__()
        self.norm, self.mlp_norm = (nn.RMSNorm(shape.width, eps=1e-5) for _ in range(2))
        self.attention = Attention(shape, zero_sink)
        self.gate, self.up = (nn.Linear(shape.width, shape.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Float[Tensor, "B T C"], past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple]:
        read, past = self.attention(self.norm(x), past)
        x = x + read
        normed = self.mlp_norm(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed)), past


class SinkLM(nn.Module):
    """`model(ids)` returns logits and the cache; `model(ids, past)` continues a cache, one token at a time."""

    def __init__(self, shape: Shape, variant: str, generator: torch.Generator):
        super().__init__()
        if variant not in VARIANTS:
            raise ValueError(f"got variant {variant!r}; expected one of {', '.join(VARIANTS)}.")
        self.shape, self.variant = shape, variant
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape, variant == "zero sink") for _ in range(shape.n_layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:  # output projections start smaller, since 2 · n_layers of them add up in the residual
                deep = (2 * shape.n_layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(weight, std=0.02 * deep, generator=generator)
        self.sink = None  # initialised after the others, so that all variants start with the same weights
        if variant == "learnable sink":
            self.sink = nn.Parameter(0.02 * torch.randn(shape.width, generator=generator))

    def embedded(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B tokens C"]:
        """Return the token embeddings, after the learned sink if there is one."""
        x = self.embedding(ids)
        return x if self.sink is None else torch.cat([self.sink.expand(len(ids), 1, -1), x], dim=1)

    def forward(self, ids: Int[Tensor, "B T"], past: Past | None = None) -> tuple[Float[Tensor, "B T V"], Past]:
        """Return the logits of the token after each of ids, and the cache; a learned sink is its first slot."""
        x, new = self.embedding(ids) if past else self.embedded(ids), []
        for index, block in enumerate(self.blocks):
            x, held = block(x, past[index] if past else None)
            new.append(held)
        return self.norm(x[:, -ids.shape[1] :]) @ self.embedding.weight.T, new
