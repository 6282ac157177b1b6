"""A recipe of the student's as a row like those that were measured: bytes, and losses of the same windows.

Dimension key: n windows, N tokens of a text, M models.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.speculative.accept import overlap
from course_lib.compose.build import Built
from course_lib.compose.counting.account import LENGTH, account
from course_lib.compose.evaluate import continued_losses
from course_lib.data.corpora import windows
from course_lib.lessons.capstone.ground import DOMAINS, Sizes
from course_lib.lessons.common.tables import wrapped

Row = Mapping[str, Any]
WINDOWS, SEED = 2, 0  # the first of those on which all recipes were measured
TENTH = 0.1


def row_of(name: str, built: Built, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Bytes behind a text of LENGTH tokens, and the losses of the first windows of both domains."""
    (behind,) = windows("wikipedia", 1, LENGTH, tokenizer, "evaluation", SEED + 1)
    found, length = account(built, behind), Sizes().length
    losses = {
        domain: continued_losses(built, windows(domain, WINDOWS, length, tokenizer, "evaluation", SEED)).tolist()
        for domain in DOMAINS
    }
    sizes = {"stored": found.stored, "cache": found.cache, "read": found.read, "multiply_adds": found.multiply_adds}
    return {"name": name} | sizes | {"by_part": found.by_part} | losses


def stored(row: Row, dense: Row) -> str:
    """What is held, part by part, and beside the dense model."""
    lines = [f"{part:<12}{size / 1e6:>8.1f} MB" for part, size in row["by_part"].items()]
    lines.append(f"{'cache':<12}{row['cache'] / 1e6:>8.1f} MB behind {LENGTH:,} tokens")
    held, read = ((one["stored"] + one["cache"], one["read"]) for one in (row, dense))
    shares = ", ".join(
        f"{100 * mine / theirs:.0f} % of the bytes {what}"
        for what, mine, theirs in zip(("held", "read a token"), held, read, strict=False)
    )
    return "\n".join([*lines, f"beside the dense model: {shares}"])


def ratios(row: Row, dense: Row, ratio: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]) -> str:
    """By the student's function: how much worse in each domain, and which of them counts."""
    pair = [torch.tensor([one[domain][:WINDOWS] for domain in DOMAINS], dtype=torch.float64) for one in (row, dense)]
    found = [each.tolist() for each in ratio(*pair)]
    lines = [
        f"{domain:<12}{middle:>7.2f} times the perplexity, {low:.2f} to {high:.2f}"
        for domain, middle, low, high in zip(DOMAINS, *found, strict=True)
    ]
    worst = DOMAINS[max(range(len(DOMAINS)), key=found[0].__getitem__)]
    return "\n".join([*lines, f"{worst} would count: {WINDOWS} windows each, so take the interval seriously"])


def on_the_front(recipes: Sequence[Row], front: Callable[[Tensor, Tensor], Tensor], domain: str = "wikipedia") -> str:
    """By the student's function: the recipes that none beats, over the bytes held."""
    cost = torch.tensor([row["stored"] + row["cache"] for row in recipes], dtype=torch.float64)
    stays = front(cost, torch.tensor([row[domain] for row in recipes], dtype=torch.float64))
    order = cost.argsort(stable=True).tolist()
    names = [recipes[at]["name"] for at in order if stays[at]]
    return wrapped(f"{len(names)} of {len(recipes)} recipes stay: {'; '.join(names)}")


@torch.no_grad()
def as_drafts(
    built: Built, model: PreTrainedModel, ids: Int[Tensor, "N"], row: Row, dense: Row
) -> dict[str, tuple[float, float]]:
    """The recipe as a draft, and one that would be right as often for a tenth of the bytes: α on a text, and what a
    drafted token reads as a share of what the model reads.
    """
    p = model(ids[None], use_cache=False).logits[0].double().softmax(dim=-1)
    with built.running():
        q = built.model(ids[None], use_cache=False).logits[0].double().softmax(dim=-1)
    acceptance = float(overlap(p, q).mean())
    return {
        "the recipe": (acceptance, row["read"] / dense["read"]),
        "one as good at a tenth of the bytes": (acceptance, TENTH),
    }
