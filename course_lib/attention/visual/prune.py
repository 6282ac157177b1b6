"""An answer from fewer visual tokens, third by third. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: B canvases, N visual tokens, K1, K2, K3 those left in each third, W words, C width, V words of the
vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from course_lib.attention.visual.importance import Evidence, TokenScore, look
from course_lib.attention.visual.model import SmallVLM
from course_lib.attention.visual.recycle import Left, highest, recycled
from course_lib.attention.visual.stages import Ratios


@dataclass(frozen=True)
class Pruning:
    """Which tokens stay, how many, and what becomes of the others.

    Args:
        score: which matter; asked once, before the decoder, and right for all stages.
        ratios: how many are left in each third of the decoder.
        side: pruned tokens become one token for each cell of so many patches a side; None throws them away.
    """

    score: TokenScore
    ratios: Ratios
    side: int | None = None


class Seen(NamedTuple):
    """Images after the encoder: all their tokens, and what says which of them matter."""

    tokens: Float[Tensor, "B N C"]
    evidence: Evidence


class Read(NamedTuple):
    """What became of a question: the last word's vector after the last layer, and the positions left in each third."""

    last: Float[Tensor, "B C"]
    positions: tuple[Int[Tensor, "B K1"], Int[Tensor, "B K2"], Int[Tensor, "B K3"]]


@torch.no_grad()
def see(model: SmallVLM, images: UInt8[Tensor, "B P P"]) -> Seen:
    """Once for all questions about the images and all ways to prune."""
    return Seen(model.visual(images), look(model, images))


@torch.no_grad()
def read(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], pruning: Pruning) -> Read:
    """The question with what is left of the image: stage 1 stands before the decoder, 2 and 3 before its later thirds.

    Later stages drop by the same importance, and every token keeps its own position. A fused token matters as much as
    the strongest that it is made of, which is less than any token that was kept as it was: it is dropped first.

    Raises:
        ValueError: a decoder that has no thirds; questions of another number than the images.
    """
    each, odd = divmod(len(model.decoder), 3)
    n = seen.tokens.shape[1]
    if odd or len(words) != len(seen.tokens):
        raise ValueError(
            f"got {len(model.decoder)} layers, {len(words)} questions and {len(seen.tokens)} images; expected a "
            "multiple of 3 layers, and a question an image."
        )
    counts = pruning.ratios.counts(n)
    position = torch.arange(n + words.shape[1]).expand(len(words), -1)
    left, text, at = (
        Left(seen.tokens, position[:, :n], pruning.score(seen.evidence)),
        model.words(words),
        position[:, n:],
    )
    left = highest(left, counts[0]) if pruning.side is None else recycled(left, counts[0], pruning.side)
    positions = []
    for third, count in enumerate(counts):
        left = highest(left, count)
        positions.append(left.position)
        x, where = torch.cat([left.tokens, text], dim=1), torch.cat([left.position, at], dim=1)
        for block in model.decoder[third * each : (third + 1) * each]:
            x = block(x, where)
        left, text = left._replace(tokens=x[:, :count]), x[:, count:]
    return Read(text[:, -1], (positions[0], positions[1], positions[2]))


def answers(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], pruning: Pruning) -> Int[Tensor, "B"]:
    """The most likely next word of each question, by its number."""
    last = read(model, seen, words, pruning).last
    return model.logits(last[:, None])[:, 0].argmax(dim=1)
