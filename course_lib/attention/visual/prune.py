"""Answers from pruned visual tokens, with fewer tokens in each third of the decoder. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: B canvases, N visual tokens, K1, K2, K3 those kept in each third, W words, C width, V words of the
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
    """The settings of pruning: which tokens are kept, how many, and whether the pruned ones are merged.

    Args:
        score: importance of the tokens, computed once before the decoder and used at all stages.
        ratios: how many tokens are kept in each third of the decoder.
        side: the pruned tokens of each cell of side × side patches are merged into one token; None discards them.
    """

    score: TokenScore
    ratios: Ratios
    side: int | None = None


class Seen(NamedTuple):
    """Encoded images: all their tokens, and the evidence from which importance is computed."""

    tokens: Float[Tensor, "B N C"]
    evidence: Evidence


class Read(NamedTuple):
    """The last word's final hidden state for each question, and the positions of the tokens kept in each third."""

    last: Float[Tensor, "B C"]
    positions: tuple[Int[Tensor, "B K1"], Int[Tensor, "B K2"], Int[Tensor, "B K3"]]


@torch.no_grad()
def see(model: SmallVLM, images: UInt8[Tensor, "B P P"]) -> Seen:
    """Encode images once for all questions about them and all pruning settings."""
    return Seen(model.visual(images), look(model, images))


@torch.no_grad()
def read(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], pruning: Pruning) -> Read:
    """Run the decoder with pruned visual tokens: stage 1 prunes before its first third, stages 2 and 3 before the next.

    All stages use the same importance, and every token keeps its position. A merged token has the importance of its
    most important member. That is lower than the importance of any token kept as it is, so merged tokens are pruned
    first.

    Raises:
        ValueError: if the number of decoder layers is not a multiple of 3, or there is not one question per image.
    """
    n_per_third, remainder = divmod(len(model.decoder), 3)
    n = seen.tokens.shape[1]
    if remainder or len(words) != len(seen.tokens):
        raise ValueError(
            f"got {len(model.decoder)} layers, {len(words)} questions and {len(seen.tokens)} images; expected a "
            "multiple of 3 layers, and one question per image."
        )
    counts = pruning.ratios.counts(n)
    position = torch.arange(n + words.shape[1]).expand(len(words), -1)
    visual, text, text_position = (
        Left(seen.tokens, position[:, :n], pruning.score(seen.evidence)),
        model.words(words),
        position[:, n:],
    )
    # Stage 1: keep the most important tokens and, with `side`, merge the others cell by cell (equations 6 and 7).
    visual = highest(visual, counts[0]) if pruning.side is None else recycled(visual, counts[0], pruning.side)
    positions = []
    for third, count in enumerate(counts):
        visual = highest(visual, count)  # stages 2 and 3; in the first third this keeps all
        positions.append(visual.position)
        x, joint_position = torch.cat([visual.tokens, text], dim=1), torch.cat([visual.position, text_position], dim=1)
        # x: (B, K + W, C), the kept visual tokens and then the words.
        for block in model.decoder[third * n_per_third : (third + 1) * n_per_third]:
            x = block(x, joint_position)
        visual, text = visual._replace(tokens=x[:, :count]), x[:, count:]
    return Read(text[:, -1], (positions[0], positions[1], positions[2]))


def answers(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], pruning: Pruning) -> Int[Tensor, "B"]:
    """Return the most likely next word of each question, as an index into the vocabulary."""
    last = read(model, seen, words, pruning).last
    return model.logits(last[:, None])[:, 0].argmax(dim=1)
