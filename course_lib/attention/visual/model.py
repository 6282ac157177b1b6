"""A small vision-language model in plain torch: an encoder of image patches, and a decoder that reads them as tokens.

The architecture is that of large ones (Liu, Li, Wu, Lee, LLaVA, 2023, https://arxiv.org/abs/2304.08485): patches attend
to each other in the encoder, a linear layer projects them to visual tokens, and a causal language model reads these
before the words of the question. Every token keeps its original position, however many others are pruned.

Dimension key: B canvases, P pixels per side, N visual tokens, Q questions of W words, T tokens and words together,
H heads, D head dimension, C width, V words of the vocabulary.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from course_lib.attention.visual.canvas import PATCH, SIDE, WORDS

GRID = SIDE // PATCH  # patches per side
N_TOKENS = GRID**2


@dataclass(frozen=True)
class Shape:
    """Sizes of the model."""

    width: int = 64
    n_heads: int = 4
    hidden: int = 256
    n_encoder: int = 2
    n_decoder: int = 6


class Attention(nn.Module):
    """Multi-head attention. With positions it uses RoPE and is causal, or masked by `reads` if that is given."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.n_heads = shape.n_heads
        self.into = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def projected(self, x: Float[Tensor, "B T C"], position: Int[Tensor, "B T"] | None) -> list[Tensor]:
        """Return queries, keys and values, (B, H, T, D) each."""
        query, keys, values = self.into(x).unflatten(2, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        return [query, keys, values] if position is None else [turn(query, position), turn(keys, position), values]

    def forward(
        self, x: Float[Tensor, "B T C"], position: Int[Tensor, "B T"] | None, reads: Bool[Tensor, "T T"] | None
    ) -> Float[Tensor, "B T C"]:
        causal = position is not None and reads is None
        output = scaled_dot_product_attention(*self.projected(x, position), attn_mask=reads, is_causal=causal)
        return self.out(output.transpose(1, 2).flatten(2))

    def weights(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T T"]:
        """Return the attention weights between patches, for analysis; rows sum to 1."""
        query, keys, _ = self.projected(x, None)
        return (query @ keys.transpose(2, 3) * query.shape[3] ** -0.5).softmax(dim=-1)


def turn(vectors: Float[Tensor, "B H T D"], position: Int[Tensor, "B T"]) -> Float[Tensor, "B H T D"]:
    """Apply RoPE: rotate the pair of channels (i, i + D/2) by the angle position · 10000^(−2i/D)."""
    half = vectors.shape[3] // 2
    angle = position[:, None, :, None] * 10000.0 ** -(torch.arange(half) / half)
    low, high = vectors.chunk(2, dim=3)
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=3)


class Block(nn.Module):
    """A pre-norm transformer block: attention and a GELU MLP, each added to the residual."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.norm, self.mlp_norm = (nn.RMSNorm(shape.width, eps=1e-5) for _ in range(2))
        self.attention = Attention(shape)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        position: Int[Tensor, "B T"] | None = None,
        reads: Bool[Tensor, "T T"] | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = x + self.attention(self.norm(x), position, reads)
        return x + self.down(gelu(self.up(self.mlp_norm(x))))


class SmallVLM(nn.Module):
    """Maps canvases and questions to logits of the next word."""

    def __init__(self, shape: Shape, generator: torch.Generator):
        super().__init__()
        self.shape = shape
        self.patch = nn.Linear(PATCH**2, shape.width)
        self.row, self.column = (nn.Parameter(torch.zeros(GRID, shape.width)) for _ in range(2))
        self.encoder = nn.ModuleList(Block(shape) for _ in range(shape.n_encoder))
        self.projector = nn.Linear(shape.width, shape.width)
        self.seen_row, self.seen_column = (nn.Parameter(torch.zeros(GRID, shape.width)) for _ in range(2))
        self.words = nn.Embedding(len(WORDS), shape.width)
        self.decoder = nn.ModuleList(Block(shape) for _ in range(shape.n_decoder))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.head = nn.Linear(shape.width, len(WORDS), bias=False)
        # Output projections start smaller, because 2 · n_decoder of them add up in the residual.
        residual_scale = (2 * len(self.decoder)) ** -0.5
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                scale = residual_scale if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(weight, std=scale * weight.shape[1] ** -0.5, generator=generator)
        for layer in (self.patch, self.projector):
            nn.init.zeros_(layer.bias)
        for embedding in (self.row, self.column, self.seen_row, self.seen_column, self.words.weight):
            nn.init.normal_(embedding, std=0.5, generator=generator)

    def embedded(self, images: UInt8[Tensor, "B P P"]) -> Float[Tensor, "B N C"]:
        """Return patch embeddings plus the embeddings of their row and column."""
        return self.patch(patches(images).float() / 120) + (self.row[:, None] + self.column).flatten(0, 1)

    def visual(self, images: UInt8[Tensor, "B P P"]) -> Float[Tensor, "B N C"]:
        """Return the visual tokens that the decoder reads: one per patch, row by row."""
        x = self.embedded(images)
        for block in self.encoder:
            x = block(x)
        return self.projector(x) + (self.seen_row[:, None] + self.seen_column).flatten(0, 1)

    @torch.no_grad()
    def encoder_attention(self, images: UInt8[Tensor, "B P P"]) -> Float[Tensor, "B H N N"]:
        """Return the attention weights between patches in the encoder's last layer; rows sum to 1."""
        x = self.embedded(images)
        for block in self.encoder[:-1]:
            x = block(x)
        return self.encoder[-1].attention.weights(self.encoder[-1].norm(x))

    def forward(self, images: UInt8[Tensor, "B P P"], questions: Int[Tensor, "B Q W"]) -> Float[Tensor, "B Q V"]:
        """Return logits of the word after each question, with all visual tokens kept.

        Questions about the same image share its tokens and do not attend to each other, so that each has the same
        logits as if it were the only one.
        """
        n_questions, n_words = questions.shape[1:]
        x = torch.cat([self.visual(images), self.words(questions.flatten(1))], dim=1)
        # All questions start at position N, right after the image.
        position = torch.cat([torch.arange(N_TOKENS), (N_TOKENS + torch.arange(n_words)).repeat(n_questions)])
        # 0 for the image, 1 to Q for the words of each question: (T).
        segment = torch.cat([torch.zeros(N_TOKENS), torch.arange(n_questions).repeat_interleave(n_words) + 1])
        # (T, T): each token attends to the image and to its own question, up to itself.
        reads = ((segment == 0) | (segment == segment[:, None])).tril()
        for block in self.decoder:
            x = block(x, position.expand(len(x), -1), reads)
        return self.logits(x[:, N_TOKENS + n_words - 1 :: n_words])

    def logits(self, x: Float[Tensor, "B Q C"]) -> Float[Tensor, "B Q V"]:
        return self.head(self.norm(x))


def patches(images: UInt8[Tensor, "B P P"]) -> UInt8[Tensor, "B N pixels"]:
    """Return the pixels of each patch; patches, and the pixels within each, are ordered row by row.

    Raises:
        ValueError: the images have another size.
    """
    if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise ValueError(
            f"got images of shape {tuple(images.shape)}; expected (B, {SIDE}, {SIDE}), grey levels 0 to 255."
        )
    tiles = images.unflatten(2, (GRID, PATCH)).unflatten(1, (GRID, PATCH))  # (B, rows, PATCH, columns, PATCH)
    return tiles.transpose(2, 3).flatten(3).flatten(1, 2)
