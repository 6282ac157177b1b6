"""What all measurements of lesson 11 stand on: the model, its text, and what is read under one condition."""

from functools import lru_cache
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.models import DEFAULT_MODEL, load_model

Row = dict[str, Any]


@lru_cache(maxsize=1)
def loaded() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Once for all steps: what is done to the model inside a `with` is gone behind it."""
    return load_model(DEFAULT_MODEL)


@lru_cache(maxsize=4)
def text(n: int, length: int, seed: int, split: str = "evaluation") -> Int[Tensor, "n N"]:
    """Windows of Wikipedia."""
    return windows("wikipedia", n, length, loaded()[1], split, seed)
