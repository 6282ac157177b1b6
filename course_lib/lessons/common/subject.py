"""The default subject of experiments: the default model and its text, loaded once for all steps.

Eviction, pruning and sparse attention act inside a `with` block or on a copy, so the model stays unchanged.
"""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import DOCUMENTS, windows
from course_lib.models import DEFAULT_MODEL, load_model


@lru_cache(maxsize=1)
def loaded(name: str = DEFAULT_MODEL) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model and its tokenizer."""
    return load_model(name)


@lru_cache(maxsize=4)
def article_windows(n: int, length: int, seed: int, split: str = "evaluation") -> Int[Tensor, "N T"]:
    """Return windows of Wikipedia articles; for one seed, the first n windows are the same for every n."""
    return windows("wikipedia", n, length, loaded()[1], split, seed)


@lru_cache(maxsize=4)
def article_starts(n: int, length: int, seed: int, split: str = "evaluation") -> Int[Tensor, "N T"]:
    """Return the first tokens of n random Wikipedia articles. With one window per article, windows are independent.

    Raises:
        ValueError: fewer than n articles have this many tokens.
    """
    tokenizer = loaded()[1]
    ids = [
        tokenizer(article, truncation=True, max_length=length).input_ids for article in DOCUMENTS["wikipedia"](split)
    ]
    long_enough = torch.tensor([article for article in ids if len(article) == length])
    if len(long_enough) < n:
        raise ValueError(
            f"got n={n}, length={length}; expected at most the {len(long_enough)} articles of that length."
        )
    return long_enough[torch.randperm(len(long_enough), generator=torch.Generator().manual_seed(seed))[:n]]
