"""The one place where a model is made to attend through a function of ours: transformers' attention interface.

No class of the model is touched, and other models go on as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

PREFIX = "course_"  # of the names of all our functions


def padding_mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """The mask as it was given, 1 for tokens and 0 for padding: causality follows from the order."""
    return attention_mask


@contextmanager
def reading_through(
    model: PreTrainedModel, name: str, attention: Callable, mask: Callable = padding_mask
) -> Iterator[None]:
    """Let a model's layers attend with a function of transformers' attention interface; on exit it is as before.

    Args:
        name: under which the function is registered; it begins with PREFIX.
        attention: (module, query, key, value, attention_mask, ...) -> (output, None), called in each layer.
        mask: makes the attention_mask that the function gets.

    Raises:
        ValueError: for a model that attends through such a function already.
    """
    check_free(model)
    before = model.config._attn_implementation
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def check_free(model: PreTrainedModel) -> None:
    """Refuse a model that is inside such a block."""
    name = model.config._attn_implementation
    if str(name).startswith(PREFIX):
        raise ValueError(f"got a model that attends through {name!r} already; leave that `with` block first.")


def check_model(model: PreTrainedModel) -> None:
    """Refuse a model that is inside such a block, or whose layers forget by themselves."""
    check_free(model)
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or getattr(model.config, "sliding_window", None):
        raise ValueError(f"got a model whose layers have windows of their own ({kinds or 'sliding_window'}).")
