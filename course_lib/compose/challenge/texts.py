"""The texts for judging models: windows of two domains, the same for all, and a text after which we count the cache.

Windows are as long as this text. If they were shorter, a cache with as many slots as a window has tokens would evict
nothing in the windows, but we would count fewer bytes for it than without eviction.

Dimension key: n windows of N tokens, M tokens of the text after which bytes are counted.
"""

import hashlib
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from course_lib.compose.counting.account import LENGTH
from course_lib.data import corpora

FIRST, SECOND = "wikipedia", "boolq"
NAMES = {FIRST: "held-out articles", SECOND: "another domain", "text": "the text of the instructor"}
MOST_WINDOWS, SHORTEST, LONGEST = 64, 64, 2048


@dataclass(frozen=True, eq=False, kw_only=True)
class Texts:
    """Windows by domain, and the text after which bytes are counted.

    Args:
        digest: a hash of all texts, so that measurements on different texts are never confused.
    """

    windows: dict[str, Int[Tensor, "n N"]] = field(repr=False)
    behind: Int[Tensor, "M"] = field(repr=False)

    @property
    def digest(self) -> str:
        parts = [f"{name}{tuple(ids.shape)}".encode() + ids.numpy().tobytes() for name, ids in self.windows.items()]
        return hashlib.sha256(b"".join([*parts, self.behind.numpy().tobytes()])).hexdigest()[:16]


def texts(
    tokenizer: PreTrainedTokenizerBase, n: int = 8, length: int = LENGTH, seed: int = 0, own: str | None = None
) -> Texts:
    """Draw `n` windows of each of two domains with a seed, from documents that are not used for calibration.

    Args:
        own: a text in place of the first domain.

    Raises:
        ValueError: sizes out of bounds, or a text that is too short for them.
    """
    if not 2 <= n <= MOST_WINDOWS or not SHORTEST <= length <= LONGEST:
        raise ValueError(
            f"got {n} windows of {length} tokens; expected 2 to {MOST_WINDOWS} of {SHORTEST} to {LONGEST}."
        )
    first = FIRST if own is None else "text"
    drawn = corpora.windows(FIRST, n, length, tokenizer, "evaluation", seed) if own is None else None
    found = {
        first: drawn if own is None else _cut(own, n, length, tokenizer, seed),
        SECOND: corpora.windows(SECOND, n, length, tokenizer, "evaluation", seed),
    }
    (behind,) = corpora.windows(FIRST, 1, LENGTH, tokenizer, "evaluation", seed + 1)
    return Texts(windows=found, behind=behind)


def _cut(text: str, n: int, length: int, tokenizer: PreTrainedTokenizerBase, seed: int) -> Int[Tensor, "n N"]:
    """Return windows that do not overlap, in random order."""
    ids = torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False).input_ids, dtype=torch.long)
    available = len(ids) // length
    if available < n:
        raise ValueError(
            f"got a text of {len(ids):,} tokens, enough for {available} windows of {length}; expected {n}. Give a "
            "longer text, or ask for fewer windows."
        )
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))[:n]
    return ids[: available * length].view(available, length)[order]
