"""Verdicts on who receives attention: by layer first tokens, punctuation, neighbours, few of many, by depth; by head.

EMS claims that heads differ in how sparse and how redundant they are (https://arxiv.org/abs/2412.08521). Which heads of
a layer have most and least is chosen on one half of the texts and read off the other half, since some head of several
always comes first, by luck alone.

Dimension key: N texts, L layers, A heads.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.kv.analysis.by_head import of_text
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.common.tables import load_measured, rows
from course_lib.lessons.common.verdicts import Effect, of_count, of_independent, of_samples, verdict
from course_lib.lessons.kv.measured import Measured, results
from course_lib.measure.experiment import Tables
from course_lib.measure.paired import mean_and_error

MOST = 0.5  # of the layers
LARGE = 10  # even shares of attention
NEIGHBOURS = 16  # tokens before a query, as they were measured
FEW = "top_5_percent"
APART = 0.1  # of the weights, and of a cosine: heads of a layer that are less apart are called alike


def attended_verdict(measured: Measured | None = None, start: str = "text") -> str:
    """All layers are counted; for what differs by depth they are the sample."""
    layers = rows(measured or results(), "attention", start=start)
    tokens, *kinds = rows(measured or results(), "attention_kinds", start=start)
    even = _even_share_of_the_first(layers[0]["length"])
    by_word = tokens["punctuation"] / tokens["word"]
    judged = {
        f"in most layers the first token receives over {LARGE} even shares": _most(
            [row["first_token"] > LARGE * even for row in layers]
        ),
        "in most layers punctuation receives more a token than words": _most(
            [row["punctuation"] > by_word * row["word"] for row in kinds]
        ),
        f"in most layers the {NEIGHBOURS} nearest tokens receive over half of what the first one leaves": _most(
            [row["near"] > 0.5 * (1 - row["first token"]) for row in kinds]
        ),
        "in most layers 5 % of the tokens receive over half of the attention": _most(
            [row[FEW] > 0.5 for row in layers]
        ),
        "the last third of the layers is sparser than the first": _by_depth([row["sparsity"] for row in layers]),
    }
    return "\n".join(f"Claim: {claim}: {verdict(effect)}" for claim, effect in judged.items())


def _even_share_of_the_first(length: int) -> float:
    """Query i spreads over i tokens: the mean of 1 / i."""
    return sum(1 / i for i in range(1, length + 1)) / length


def _most(held: list[bool]) -> Effect:
    return of_count(sum(held), len(held), MOST)


def _by_depth(sparsity: list[float]) -> Effect:
    """The means of both thirds, over their layers."""
    third = len(sparsity) // 3
    deeper = of_independent(mean_and_error(sparsity[:third]), mean_and_error(sparsity[-third:]))
    return Effect(value=deeper.value, error=deeper.error, n=third)


def heads(n: int, length: int, seed: int) -> Tables:
    """A row a text."""
    model = loaded()[0]
    return {"heads": [of_text(model, ids) for ids in article_windows(n, length, seed)]}


def apart(by_text: Float[Tensor, "N L A"]) -> Effect:
    """How far apart the heads of a layer lie that another half of the texts calls its first and last; mean of layers.

    Each half chooses for the other, so that every text is a sample.
    """
    halves = by_text[0::2], by_text[1::2]
    gaps = [gap for chosen, read in (halves, reversed(halves)) for gap in _gaps(chosen.mean(dim=0), read)]
    return of_samples(gaps)


def _gaps(chosen: Float[Tensor, "L A"], read: Float[Tensor, "N L A"]) -> list[float]:
    most, least = (index[None, :, None].expand(len(read), -1, 1) for index in (chosen.argmax(1), chosen.argmin(1)))
    return (read.gather(2, most) - read.gather(2, least)).mean(dim=(1, 2)).tolist()


def heads_verdict(measured: dict[str, Any] | None = None) -> str:
    """Both kinds of difference, and whether heads are further apart than APART."""
    table = (measured or load_measured("kv", "heavy"))["tables"]["heads"]
    found = {name: apart(torch.tensor([row[name] for row in table])) for name in ("sparsity", "likeness")}
    sparse, like = found.values()
    beyond = [Effect(value=each.value - APART, error=each.error, n=each.n) for each in found.values()]
    return (
        f"{len(table)} texts; first and last head of a layer, chosen on other texts:\n"
        f"negligible weights {100 * sparse.value:.0f} ± {100 * sparse.error:.1f} points apart, cosine with the likest "
        f"key before {like.value:.3f} ± {like.error:.3f}\n"
        f"Claim: the heads of a layer differ by over {APART} in how sparse and in how redundant they are: "
        f"{verdict(beyond)}"
    )
