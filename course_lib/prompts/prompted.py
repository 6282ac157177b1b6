"""`with prompting(model, prompt):` — every text that the model reads has a soft prompt before it.

Two hooks are all there is: one puts the vectors before the embeddings, one takes what became of them out of the hidden
states. What comes out has the shape of a pass without a prompt, so whatever scores a model scores a prompted one at the
very same tokens.

Dimension key: B rows, L tokens of a pass, P vectors, D width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils import ModelOutput

from course_lib.hooks import hooking
from course_lib.models import check_is_model, trunk
from course_lib.prompts.places import Places, by_name, embeddings, first_pass, first_real, seen_prompt
from course_lib.prompts.soft import SoftPrompt, most_positions

_inside: WeakSet = WeakSet()  # models in such a block now


@contextmanager
def prompting(model: PreTrainedModel, prompt: SoftPrompt) -> Iterator[None]:
    """Inside, the vectors stand before the first real token of every row; on exit the model is as before.

    Positions and masks make room for them; a cache holds their keys and values, and a pass that continues it does not
    read them again. Padding may be left or right. Gradients reach `prompt.vectors` where it asks for them. Attention
    weights, where asked for, are those over the prompt too.

    Raises:
        ValueError: for a prompt of another model, or a model that is inside such a block already; within, for a cache
            that was begun without this prompt, or a text that leaves no room for it.
    """
    if not isinstance(prompt, SoftPrompt):
        raise ValueError(f"got prompt {prompt!r}; expected a SoftPrompt, such as from_ids(model, ids).")
    check_is_model(model)
    if model in _inside:
        raise ValueError("got a model that has a prompt already; leave its `with prompting(...)` first.")
    prompt.check(model)
    one = _Passes(model, prompt)
    _inside.add(model)
    try:
        with hooking() as handles:
            # First of all hooks, so that those which read tokens and masks see them with the prompt among them.
            handles.append(trunk(model).register_forward_pre_hook(one.before, prepend=True, with_kwargs=True))
            handles.append(trunk(model).register_forward_hook(one.after, prepend=True))
            yield
    finally:
        _inside.discard(model)


class _Passes:
    """What the hooks know from pass to pass: which caches begin with the prompt, and where it stands in this one."""

    def __init__(self, model: PreTrainedModel, prompt: SoftPrompt) -> None:
        self.embed, self.prompt, self.most = model.get_input_embeddings(), prompt, most_positions(model)
        self.caches: WeakSet[Cache] = WeakSet()
        self.places: Places | None = None  # None in a pass that continues a cache

    def before(self, _: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        given = by_name(args, kwargs)
        cache, mask = given.get("past_key_values"), given.get("attention_mask")
        if not (mask is None or (isinstance(mask, Tensor) and mask.ndim in (2, 4))):
            raise ValueError(f"got an attention mask {type(mask).__name__}; expected a tensor of 2 or 4 axes, or None.")
        if cache is not None and cache.is_compileable:
            raise ValueError("got a cache of fixed size, made without room for a prompt; expected one that grows.")
        n_before = 0 if cache is None else int(cache.get_seq_length())
        if n_before:
            self.places = None
            return (), self._continued(given, cache, n_before)
        if cache is not None:
            self.caches.add(cache)
        return (), self._begun(given)

    def _begun(self, given: dict[str, Any]) -> dict[str, Any]:
        """[p_1 … p_P; E(x)] with the positions of the text moved on by P."""
        read, mask, positions = embeddings(given, self.embed), given.get("attention_mask"), given.get("position_ids")
        n_rows, n_tokens, n = read.shape[0], read.shape[1], self.prompt.n
        if n + n_tokens > self.most:
            raise ValueError(
                f"got {n_tokens} tokens behind a prompt of {n} vectors in a model of {self.most} positions; expected "
                f"at most {self.most - n}. Cut the text, or give fewer vectors."
            )
        if mask is not None and mask.shape[-1] != n_tokens:
            raise ValueError(f"got a mask over {mask.shape[-1]} tokens in a pass of {n_tokens}; expected as many.")
        self.places = Places(first_real(mask, n_rows, read.device), n, n_tokens)
        vectors = self.prompt.vectors.to(read.device, read.dtype).expand(n_rows, -1, -1)
        given |= {"inputs_embeds": self.places.insert(vectors, read), "attention_mask": first_pass(mask, n)}
        if positions is not None:
            own = torch.arange(n, device=positions.device).expand(n_rows, -1)
            given["position_ids"] = self.places.insert(own, positions.expand(n_rows, -1) + n)
        return given

    def _continued(self, given: dict[str, Any], cache: Cache, n_before: int) -> dict[str, Any]:
        """The prompt is in the cache: masks have columns for it, and positions count it."""
        mask, positions, n = given.get("attention_mask"), given.get("position_ids"), self.prompt.n
        ids = given.get("input_ids")
        n_tokens = n_before - n + (given["inputs_embeds"] if ids is None else ids).shape[1]
        counted = n_tokens if mask is None else mask.shape[-1]
        counted = counted if mask is not None or positions is None else int(positions[..., -1].max()) + 1
        if cache not in self.caches or counted != n_tokens:
            raise ValueError(
                f"got a cache of {n_before} places and text that counts {counted} tokens so far; expected a cache that "
                f"was begun inside this block, which holds {n} of a prompt and {n_before - n} of text. Give a "
                "continuation to model(...), and whole texts without a cache to generate()."
            )
        given["attention_mask"] = seen_prompt(mask, n)
        if positions is not None:
            given["position_ids"] = positions + n
        return given

    def after(self, _: nn.Module, args: tuple, output: ModelOutput) -> ModelOutput:
        """Hidden states of the tokens alone, as the head would get them without a prompt."""
        if isinstance(cache := output.get("past_key_values"), Cache):
            self.caches.add(cache)
        if self.places is None:
            return output
        output["last_hidden_state"] = self.places.without(output["last_hidden_state"])
        if output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(self.places.without(states) for states in output["hidden_states"])
        return output
