"""Running text for calibration and evaluation, cut into windows of tokens.

"wikipedia" (articles) and "boolq" (paragraphs) come from the course's cache, "wikitext2" and "c4" from the hub.
The two splits of a corpus never share a document.

Dimension key: N windows, L tokens in a window, T tokens of a corpus.
"""

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from course_lib.data.assets.cache import asset_path
from course_lib.data.benchmarks import boolq_paragraphs
from course_lib.data.hub_corpora import c4_windows, wikitext2

SPLITS = ("calibration", "evaluation")
CALIBRATION_SHARE = 0.75


def windows(
    corpus: str,
    n: int | None,
    length: int,
    tokenizer: PreTrainedTokenizerBase,
    split: str = "calibration",
    seed: int = 0,
) -> Int[Tensor, "N L"]:
    """Return windows of token ids without overlap, in random order; a larger n begins with the windows of a smaller n.

    Args:
        corpus: "wikipedia", "boolq", "wikitext2" or "c4".
        n: number of windows; None for all (not for "c4", where each window needs its own document).
        length: tokens in a window.
        split: "calibration" or "evaluation"; no document is in both.
        seed: of the order. The same seed gives the same windows on every machine.

    Raises:
        ValueError: unknown names, sizes below 1, more tokens than there are, or a hub that cannot be reached.
    """
    _refuse_bad_arguments(corpus, n, length, split)
    if not callable(tokenizer):
        raise ValueError(f"got tokenizer {tokenizer!r}; expected the one that load_model returns with the model.")
    generator = torch.Generator().manual_seed(seed)
    if corpus == "c4":
        return c4_windows(n, length, tokenizer, split, generator)
    tokens = _tokens("\n\n".join(DOCUMENTS[corpus](split)), tokenizer)
    available = len(tokens) // length
    if available < (n or 1):
        raise ValueError(
            f"got n={n}, length={length}; the {split} split of {corpus!r} has {len(tokens):,} tokens, enough for "
            f"{available} windows of {length}. Ask for fewer or shorter windows, or another corpus."
        )
    grid = tokens[: available * length].view(available, length)
    return grid[torch.randperm(available, generator=generator)[:n]]


def _refuse_bad_arguments(corpus: str, n: int | None, length: int, split: str) -> None:
    if corpus not in CORPORA:
        raise ValueError(f"got corpus {corpus!r}; expected one of {', '.join(CORPORA)}.")
    if split not in SPLITS:
        raise ValueError(f"got split {split!r}; expected one of {', '.join(SPLITS)}.")
    whole = all(isinstance(size, int) for size in (length, 1 if n is None else n))
    if not whole or (n is not None and n < 1) or length < 2:
        raise ValueError(
            f"got n={n}, length={length}; expected whole numbers, n >= 1, length >= 2 (a token and what it predicts)."
        )
    if corpus == "c4" and n is None:
        raise ValueError("got n=None with corpus 'c4'; expected a number, because each window needs its own document.")


def _tokens(text: str, tokenizer: PreTrainedTokenizerBase) -> Int[Tensor, "T"]:
    return _tokens_once(text, _Alike(tokenizer, _rules(tokenizer)))


@dataclass(frozen=True)
class _Alike:
    """A tokenizer that equals any other with the same rules: each step of an experiment loads the tokenizer again."""

    tokenizer: PreTrainedTokenizerBase = field(compare=False)
    rules: Hashable


def _rules(tokenizer: PreTrainedTokenizerBase) -> Hashable:
    """Return the vocabulary, merges and all other rules; the tokenizer itself if it does not reveal them."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return tokenizer
    written = tokenizer.backend_tokenizer.to_str().encode()
    return type(tokenizer), tokenizer.split_special_tokens, hashlib.sha256(written).digest()


@lru_cache(maxsize=8)  # tokenising all articles takes a second or two; a lesson asks for windows several times
def _tokens_once(text: str, alike: _Alike) -> Int[Tensor, "T"]:
    return torch.tensor(alike.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)


def _share(documents: list[str], split: str) -> list[str]:
    """Return the first three quarters of the documents for calibration, or the rest for evaluation."""
    cut = int(len(documents) * CALIBRATION_SHARE)
    return documents[:cut] if split == "calibration" else documents[cut:]


def _wikipedia(split: str) -> list[str]:
    return _share(list(_articles(asset_path("wikipedia"))), split)


@lru_cache(maxsize=1)  # every step of an experiment asks for windows, and reading them takes longer than cutting
def _articles(path: Path) -> tuple[str, ...]:
    with open(path, encoding="utf-8") as lines:
        return tuple(json.loads(line)["text"] for line in lines)


def _boolq(split: str) -> list[str]:
    return _share(boolq_paragraphs(), split)


DOCUMENTS = {"wikipedia": _wikipedia, "boolq": _boolq, "wikitext2": wikitext2}
CORPORA = (*DOCUMENTS, "c4")
