"""The default model, loaded once for all steps: evicting leaves it as it was."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.models import load_model


@lru_cache(maxsize=1)
def loaded() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_model()


def texts(n: int, length: int, seed: int) -> Int[Tensor, "N T"]:
    """Windows of articles; the first n of a seed are always the same, whatever is asked for beyond them."""
    return windows("wikipedia", n, length, loaded()[1], "evaluation", seed)


def one_text(n_tokens: int, seed: int) -> Int[Tensor, "T"]:
    """Running text for so many predictions."""
    return texts(1, n_tokens + 1, seed)[0]


def error_of(values: Tensor) -> float:
    """Standard error of their mean; NaN for one."""
    return values.std().item() / len(values) ** 0.5 if len(values) > 1 else torch.nan
