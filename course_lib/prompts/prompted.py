"""`with prompting(model, prompt):` prepends a soft prompt to every input of the model.

A pre-forward hook on the trunk inserts the vectors before the token embeddings, and a forward hook removes their hidden
states. The output has the shape of a pass without a prompt, so the same code can score a model with and without a
prompt, at the same tokens.

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

_inside: WeakSet = WeakSet()  # models inside a `prompting` block


@contextmanager
def prompting(model: PreTrainedModel, prompt: SoftPrompt) -> Iterator[None]:
    """Insert the vectors before the first real token of every row. On exit the hooks are removed.

    Positions and attention masks include the vectors. A cache stores their keys and values, so a pass that continues
    the cache does not process them again. Padding may be on the left or on the right. If `prompt.vectors` requires
    gradients, it gets them. Attention weights in the output include the prompt's columns.

    Raises:
        ValueError: the prompt is of another model, or the model already has a prompt. Inside: the cache was started
            without this prompt, or the text is too long to fit after it.
    """
    if not isinstance(prompt, SoftPrompt):
        raise ValueError(f"got prompt {prompt!r}; expected a SoftPrompt, such as from_ids(model, ids).")
    check_is_model(model)
    if model in _inside:
        raise ValueError("got a model that has a prompt already; leave its `with prompting(...)` first.")
    prompt.check(model)
    passes = _Passes(model, prompt)
    _inside.add(model)
    try:
        with hooking() as handles:
            # prepend: our hooks run first, so that other hooks on the trunk get tokens and masks with the prompt.
            handles.append(trunk(model).register_forward_pre_hook(passes.before, prepend=True, with_kwargs=True))
            handles.append(trunk(model).register_forward_hook(passes.after, prepend=True))
            yield
    finally:
        _inside.discard(model)


class _Passes:
    """The hooks' state between passes: the caches that start with the prompt, and its position in the current pass."""

    def __init__(self, model: PreTrainedModel, prompt: SoftPrompt) -> None:
        self.embed, self.prompt, self.most = model.get_input_embeddings(), prompt, most_positions(model)
        self.caches: WeakSet[Cache] = WeakSet()
        self.places: Places | None = None  # None in a pass that continues a cache

    def before(self, _: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        arguments = by_name(args, kwargs)
        cache, mask = arguments.get("past_key_values"), arguments.get("attention_mask")
        if not (mask is None or (isinstance(mask, Tensor) and mask.ndim in (2, 4))):
            raise ValueError(f"got an attention mask {type(mask).__name__}; expected a tensor of 2 or 4 axes, or None.")
        if cache is not None and cache.is_compileable:
            raise ValueError("got a cache of fixed size, which has no room for the prompt; expected one that grows.")
        n_before = 0 if cache is None else int(cache.get_seq_length())
        if n_before:
            self.places = None
            return (), self._continued(arguments, cache, n_before)
        if cache is not None:
            self.caches.add(cache)
        return (), self._begun(arguments)

    def _begun(self, given: dict[str, Any]) -> dict[str, Any]:
        """Start a sequence: [p_1 … p_P; E(x)], with the positions of the text shifted by P."""
        text_embeddings = embeddings(given, self.embed)  # (B, L, D)
        mask, positions = given.get("attention_mask"), given.get("position_ids")
        n_rows, n_tokens, n = text_embeddings.shape[0], text_embeddings.shape[1], self.prompt.n
        if n + n_tokens > self.most:
            raise ValueError(
                f"got {n_tokens} tokens after a prompt of {n} vectors in a model with {self.most} positions; expected "
                f"at most {self.most - n}. Shorten the text, or use fewer vectors."
            )
        if mask is not None and mask.shape[-1] != n_tokens:
            raise ValueError(f"got a mask over {mask.shape[-1]} tokens in a pass of {n_tokens}; expected as many.")
        self.places = Places(first_real(mask, n_rows, text_embeddings.device), n, n_tokens)
        vectors = self.prompt.vectors.to(text_embeddings.device, text_embeddings.dtype).expand(n_rows, -1, -1)
        given |= {"inputs_embeds": self.places.insert(vectors, text_embeddings), "attention_mask": first_pass(mask, n)}
        if positions is not None:
            vector_positions = torch.arange(n, device=positions.device).expand(n_rows, -1)  # (B, P)
            given["position_ids"] = self.places.insert(vector_positions, positions.expand(n_rows, -1) + n)
        return given

    def _continued(self, given: dict[str, Any], cache: Cache, n_before: int) -> dict[str, Any]:
        """Continue a cache that holds the prompt: masks get columns for it, and positions are shifted by P."""
        mask, positions, n = given.get("attention_mask"), given.get("position_ids"), self.prompt.n
        ids = given.get("input_ids")
        n_tokens = n_before - n + (given["inputs_embeds"] if ids is None else ids).shape[1]
        # The caller's own count of the text: from the mask's width, otherwise from the last position.
        n_counted = n_tokens if mask is None else mask.shape[-1]
        n_counted = n_counted if mask is not None or positions is None else int(positions[..., -1].max()) + 1
        if cache not in self.caches or n_counted != n_tokens:
            raise ValueError(
                f"got a cache of {n_before} positions and a text of {n_counted} tokens so far; expected a cache that "
                f"was started inside this block, with {n} prompt vectors and {n_before - n} tokens of text. Pass a "
                "continuation to model(...), and whole texts without a cache to generate()."
            )
        given["attention_mask"] = seen_prompt(mask, n)
        if positions is not None:
            given["position_ids"] = positions + n
        return given

    def after(self, _: nn.Module, args: tuple, output: ModelOutput) -> ModelOutput:
        """Remove the vectors' hidden states from the output, so that the LM head gets those of the tokens alone."""
        if isinstance(cache := output.get("past_key_values"), Cache):
            self.caches.add(cache)
        if self.places is None:
            return output
        output["last_hidden_state"] = self.places.without(output["last_hidden_state"])
        if output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(self.places.without(states) for states in output["hidden_states"])
        return output
