"""The one place where a model is made to attend through a function of ours: transformers' attention interface.

No class of the model is touched, and other models go on as they are.
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

PREFIX = "course_"  # of the names of all our functions
CHANGES = ("softcap", "s_aux", "position_bias")  # of the softmax, which none of our functions computes


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
        ValueError: for a model that attends through such a function already, or whose layers call no such function.
            Inside, for a cache of fixed size, for a text longer than the learned positions, and where attention weights
            are asked for, which these functions do not return.
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
    """transformers only warns where a family has attention classes of its own, and goes on with those."""
    kinds = {type(attention_of(block)) for block in blocks(model)}
    if model.config._attn_implementation != name or not all(_uses_interface(kind) for kind in kinds):
        raise ValueError(
            f"got a {type(model).__name__}, which has attention of its own, outside of transformers' attention "
            "interface; expected a family that uses the interface, such as Llama, Qwen, Mistral, OPT or GPT-2."
        )


@cache
def _uses_interface(kind: type[nn.Module]) -> bool:
    """Whether a class of attention modules looks its function up, as far as its source can be read."""
    try:
        return "get_interface" in inspect.getsource(kind.forward)
    except (OSError, TypeError):
        return True


def _check_call(trunk: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """A hook: refuse what no function of ours can give."""
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
    """A hook: refuse positions that a model with learned positions does not have."""
    position, mask = kwargs.get("position_ids"), kwargs.get("attention_mask")
    if position is not None:
        n_tokens = int(position.max()) + 1
    elif isinstance(mask, Tensor) and mask.ndim == 2:
        n_tokens = int(mask.sum(dim=1).max())  # padding takes no position
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
        settings: the further arguments that transformers calls an attention function with.
    """
    changes = [name for name in CHANGES if settings.get(name) is not None] + (["dropout"] if dropout else [])
    if changes:
        raise ValueError(
            f"got a {type(module).__name__} with {', '.join(changes)}; expected a plain softmax: model.eval(), of a "
            "family without these."
        )


def check_free(model: PreTrainedModel) -> None:
    """Refuse what is no model, and a model that is inside such a block."""
    check_is_model(model)
    name = model.config._attn_implementation
    if str(name).startswith(PREFIX):
        raise ValueError(f"got a model that attends through {name!r} already; leave that `with` block first.")


def check_model(model: PreTrainedModel) -> None:
    """Refuse a model that is inside such a block, of no known family, or whose layers forget by themselves."""
    check_free(model)
    blocks(model)
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or getattr(model.config, "sliding_window", None):
        raise ValueError(
            f"got a {type(model).__name__}, whose layers have windows of their own ({kinds or 'sliding_window'}); "
            "expected layers that read all earlier tokens."
        )
