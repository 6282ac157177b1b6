"""Replace a model's attention function through the attention interface of transformers; only this module does so.

The classes of the model do not change, and neither do other models.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import AttentionMaskInterface

from course_lib.hooks import hooking
from course_lib.models import attention_of, blocks, check_is_model, n_positions, trunk

PREFIX = "course_"  # the names of all our functions start with it
CHANGES = ("softcap", "s_aux", "position_bias")  # modifications of the softmax, which our functions do not support


def padding_mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """Return the mask unchanged, 1 for tokens and 0 for padding; the order of the tokens implies causality."""
    return attention_mask


@contextmanager
def reading_through(
    model: PreTrainedModel, name: str, attention: Callable, mask: Callable = padding_mask
) -> Iterator[None]:
    """Let a model's layers attend with a function of transformers' attention interface; on exit it is as before.

    Args:
        name: the name under which the function is registered; it starts with PREFIX.
        attention: (module, query, key, value, attention_mask, ...) -> (output, None), called in each layer.
        mask: computes the attention_mask for the function.

    Raises:
        ValueError: the model already attends through such a function, or its layers do not use the interface. Inside:
            a cache of fixed size, a text longer than the learned positions, or a call that requests attention weights,
            which these functions do not return.
    """
    check_free(model)
    before = model.config._attn_implementation
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    with hooking() as handles:
        try:
            model.set_attn_implementation(name)
            _check_reached(model, name)
            handles.append(trunk(model).register_forward_pre_hook(_check_call, with_kwargs=True))
            if (most := n_positions(model)) is not None:
                check = partial(_check_positions, most)
                handles.append(trunk(model).register_forward_pre_hook(check, with_kwargs=True))
            yield
        finally:
            model.set_attn_implementation(before)


def _check_reached(model: PreTrainedModel, name: str) -> None:
    """Raise an error where transformers only warns: if a family ignores the interface and uses its own classes."""
    kinds = {type(attention_of(block)) for block in blocks(model)}
    if model.config._attn_implementation != name or not all(_uses_interface(kind) for kind in kinds):
        raise ValueError(
            f"got a {type(model).__name__}, which has attention of its own, outside of transformers' attention "
            "interface; expected a family that uses the interface, such as Llama, Qwen, Mistral, OPT or GPT-2."
        )


@cache
def _uses_interface(kind: type[nn.Module]) -> bool:
    """Return whether a class of attention modules uses the interface, as far as its source code shows."""
    try:
        return "get_interface" in inspect.getsource(kind.forward)
    except (OSError, TypeError):
        return True


def _check_call(trunk: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Refuse calls that our functions do not support; this is a hook."""
    if kwargs.get("output_attentions", getattr(trunk.config, "output_attentions", False)):
        raise ValueError(
            "got output_attentions=True in a model that attends through a function that returns no weights; expected "
            "False. Ask for the weights outside of this `with` block."
        )
    kept = next((given for given in (*args, *kwargs.values()) if isinstance(given, Cache)), None)
    if kept is not None and kept.is_compileable:
        raise ValueError(
            f"got a {type(kept).__name__}, a cache of fixed size, which has room for tokens to come; "
            'expected one that grows, such as DynamicCache: leave out cache_implementation="static".'
        )


def _check_positions(most: int, trunk: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Refuse positions that a model with learned positions does not have; this is a hook."""
    position, mask = kwargs.get("position_ids"), kwargs.get("attention_mask")
    if position is not None:
        n_tokens = int(position.max()) + 1
    elif isinstance(mask, Tensor) and mask.ndim == 2:
        n_tokens = int(mask.sum(dim=1).max())  # padding needs no position
    else:
        given = (*args[:1], kwargs.get("input_ids"), kwargs.get("inputs_embeds"))
        new = next((each for each in given if each is not None), None)
        kept = kwargs.get("past_key_values")
        n_tokens = (0 if new is None else new.shape[1]) + (0 if kept is None else kept.get_seq_length())
    if n_tokens > most:
        raise ValueError(
            f"got a text that reaches {n_tokens} tokens; expected at most {most}, as many as this model has positions "
            "for, evicted tokens included. Shorten the text, or use a model with RoPE."
        )


def check_plain(module: nn.Module, settings: Mapping[str, Any], dropout: float = 0.0) -> None:
    """Refuse a layer whose attention is more than a softmax over all earlier tokens.

    Args:
        settings: the other arguments that transformers passes to an attention function.
    """
    changes = [name for name in CHANGES if settings.get(name) is not None] + (["dropout"] if dropout else [])
    if changes:
        raise ValueError(
            f"got a {type(module).__name__} with {', '.join(changes)}; expected a plain softmax: model.eval(), of a "
            "family without these."
        )


def check_free(model: PreTrainedModel) -> None:
    """Raise ValueError if `model` is not a model, or is already inside such a `with` block."""
    check_is_model(model)
    name = model.config._attn_implementation
    if str(name).startswith(PREFIX):
        raise ValueError(f"got a model that attends through {name!r} already; leave that `with` block first.")


def check_model(model: PreTrainedModel) -> None:
    """Raise ValueError for a model inside such a `with` block, of an unknown family, or with windowed layers."""
    check_free(model)
    blocks(model)
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or getattr(model.config, "sliding_window", None):
        raise ValueError(
            f"got a {type(model).__name__}, whose layers have windows of their own ({kinds or 'sliding_window'}); "
            "expected layers that read all earlier tokens."
        )
