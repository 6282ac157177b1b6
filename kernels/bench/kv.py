"""Decoding with KV eviction: compared with transformers' own caches, and with recomputing the window.

Dimension key: B sequences, T tokens before the step, W slots.

A run consists of STEPS steps, so that a policy that evicts 8 tokens together does so once per run; the logits of the
first step are checked. A cache without eviction grows by STEPS tokens per run, which changes the time at T = 4096 by
less than its spread. Sides with eviction are checked against transformers' cache filled with the keys and values that
they kept.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, StaticCache

from course_lib.kv.cache import evicting
from course_lib.kv.layers import EvictingCache
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.snapkv import SnapKV
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.tova import TOVA
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.quantized import Quantized
from course_lib.kv.recycled import Recycled, recycling
from course_lib.measure.roofline import Work
from course_lib.models import blocks, heads, load_model, tiny_model

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of logits: rounding in another order adds up over all layers
SHARE = 0.2  # of the tokens, kept by each policy
STEPS = 8  # per run
LENGTHS = {"sequences": (1, 8), "decode": 4096, "prefill": (1024, 2048), "windows": (256, 512, 1024, 2048)}
QUICK = {"sequences": (1, 2), "decode": 100, "prefill": (24,), "windows": (12,)}


@torch.no_grad()
def contests(place: Place) -> Iterator[Contest]:
    """Yield contests of decoding (batch size 1 and 8), of prompts, and of streams."""
    model = tiny_model() if place.quick else load_model(dtype=place.dtype, device=place.device)[0]
    model = model.to(place.device, place.dtype)
    lengths = QUICK if place.quick else LENGTHS
    longest = max(lengths["decode"], *lengths["prefill"], *lengths["windows"])
    ids = torch.randint(3, model.config.vocab_size, (1, longest), generator=place.generator).to(place.device)
    for n_sequences in lengths["sequences"]:
        with ExitStack() as stack:
            yield _decode(stack, model, ids[:, : lengths["decode"]], n_sequences)
    for n_tokens in lengths["prefill"]:
        yield _prefill(model, ids[:, :n_tokens])
    for n_slots in lengths["windows"]:
        with ExitStack() as stack:
            yield _streaming(stack, model, ids[:, :n_slots])


def _decode(stack: ExitStack, model: PreTrainedModel, ids: Tensor, n_sequences: int) -> Contest:
    """Build the contest of STEPS decoding steps; all sequences of the batch have the same tokens."""
    n_tokens, token = ids.shape[1], ids[:, :1].expand(n_sequences, 1)
    stock = DynamicCache(config=model.config)
    model(ids, past_key_values=stock, use_cache=True, logits_to_keep=1)
    stock.batch_repeat_interleave(n_sequences)
    expected = _step(model, token, copy.deepcopy(stock))()
    work = _work(model, n_sequences, n_tokens, n_steps=STEPS)
    static = _static_steps(model, token, stock, n_tokens)
    sides = [Side("DynamicCache", _step(model, token, stock, n_steps=STEPS), work), Side("StaticCache", static, work)]
    n_kept = int(SHARE * n_tokens)
    short = DynamicCache(config=model.config)  # lower bound for a policy that keeps 20 %: a text that is only this long
    model(ids[:, :n_kept], past_key_values=short, use_cache=True, logits_to_keep=1)
    short.batch_repeat_interleave(n_sequences)
    own = _step(model, token, copy.deepcopy(short))()
    work = _work(model, n_sequences, n_kept, n_steps=STEPS)
    sides.append(Side("DynamicCache, 20 % of the text", _step(model, token, short, n_steps=STEPS), work, own))
    small = {"recent": n_kept // 2, "budget": n_kept}
    rarely = {"dropped": (STEPS - 1) / n_kept}  # evict 8 tokens together in one of 8 steps
    settings: dict[str, tuple[EvictionPolicy, dict]] = {
        "nothing evicted": (Full(), {}),
        "H2O, nothing evicted": (H2O(budget=1.0), {}),
        "StreamingLLM, 20 %": (StreamingLLM(budget=n_kept), {"positions": "rolling"}),
        "StreamingLLM, 20 %, 8 leave at once": (StreamingLLM(budget=n_kept, **rarely), {"positions": "rolling"}),
        "H2O, 20 %": (H2O(**small), {}),
        "H2O, 20 %, 8 leave at once": (H2O(**small, **rarely), {}),
        "TOVA, 20 %": (TOVA(budget=n_kept), {}),
        "SnapKV, 20 %": (SnapKV(budget=n_kept, recent=min(64, n_kept)), {}),
        "H2O, 20 %, 4 bits": (H2O(**small), {"vectors": Quantized(bits=4)}),
        "recycled, 20 % read": (Recycled(budget=n_kept, every=None), {}),
    }
    for name, (policy, options) in settings.items():
        copied = shared_twin(model)  # its hooks must not affect the other sides
        context = recycling(copied, policy) if isinstance(policy, Recycled) else evicting(copied, policy, **options)
        cache = stack.enter_context(context)
        copied(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(n_sequences)
        n_read = n_tokens if "nothing" in name else n_kept
        own = expected if "nothing" in name else _step(model, token, as_stock(cache), n_tokens)()
        work = _work(model, n_sequences, n_read, n_steps=STEPS)
        sides.append(Side(name, _step(copied, token, cache, n_steps=STEPS), work, own))
    return Contest(f"{STEPS} steps of {n_sequences} at {n_tokens} tokens", (n_sequences, n_tokens), sides, expected)


def _prefill(model: PreTrainedModel, ids: Tensor) -> Contest:
    """Build the contest of a whole prompt, after which each policy evicts down to 20 %."""
    n_kept = int(SHARE * ids.shape[1])
    policies = {
        "nothing evicted": Full(),
        "StreamingLLM, 20 %": StreamingLLM(budget=n_kept),
        "SnapKV, 20 %": SnapKV(budget=n_kept, recent=min(64, n_kept)),
        "H2O, 20 %": H2O(budget=n_kept, recent=n_kept // 2),
    }
    work = _work(model, 1, ids.shape[1] / 2, ids.shape[1])  # under a causal mask a query reads T / 2 keys on average

    @torch.no_grad()
    def stock() -> Tensor:
        cache = DynamicCache(config=model.config)
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]

    def through(policy: EvictionPolicy) -> Callable[[], Tensor]:
        @torch.no_grad()
        def run() -> Tensor:
            with evicting(model, policy) as cache:
                return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]

        return run

    sides = [Side("DynamicCache", stock, work)]
    sides += [Side(name, through(policy), work) for name, policy in policies.items()]
    return Contest("a prompt", (1, ids.shape[1]), sides, stock())


def _streaming(stack: ExitStack, model: PreTrainedModel, ids: Tensor) -> Contest:
    """Build the contest of one token of a stream: recompute its window of W tokens, or one step over W slots."""
    n_slots, token = ids.shape[1], ids[:, :1]
    window = torch.cat([ids[:, 1:], token], dim=1)

    @torch.no_grad()
    def recompute() -> Tensor:
        return model(window, use_cache=False, logits_to_keep=1).logits[:, -1]

    copied = shared_twin(model)
    cache = stack.enter_context(evicting(copied, StreamingLLM(budget=n_slots), "rolling"))
    for part in (ids, ids):  # twice as many tokens as slots, so that the cache has evicted
        copied(part, past_key_values=cache, use_cache=True, logits_to_keep=1)
    own = _step(model, token, as_stock(cache), cache.get_seq_length())()
    sides = [
        Side("the window recomputed", recompute, _work(model, 1, n_slots / 2, n_slots)),
        Side("StreamingLLM", _step(copied, token, cache), _work(model, 1, n_slots), own),
    ]
    return Contest("a token of a stream", (1, n_slots), sides, model(window, logits_to_keep=1).logits[:, -1])


def _step(
    model: PreTrainedModel,
    token: Tensor,
    cache: DynamicCache | StaticCache | EvictingCache,
    n_seen: int | None = None,
    n_steps: int = 1,
) -> Callable[[], Tensor]:
    """Build a run of decoding steps that returns the first logits; positions start at `n_seen` or the cache length."""

    @torch.no_grad()
    def run() -> Tensor:
        logits = []
        for step in range(n_steps):
            position = torch.full_like(token, cache.get_seq_length() if n_seen is None else n_seen + step)
            out = model(token, position_ids=position, past_key_values=cache, use_cache=True)
            logits.append(out.logits[:, -1])
        return logits[0]

    return run


def _static_steps(model: PreTrainedModel, token: Tensor, stock: DynamicCache, n_tokens: int) -> Callable[[], Tensor]:
    """Build the same steps over transformers' StaticCache, which is allocated once with room for exactly these tokens.

    DynamicCache copies all its keys and values whenever a token is added, and StaticCache does not: it is the stronger
    baseline.
    """
    cache = StaticCache(config=model.config, max_cache_len=n_tokens + STEPS)
    for index, layer in enumerate(stock.layers):
        cache.update(layer.keys, layer.values, index)
    steps = _step(model, token, cache, n_tokens, STEPS)

    def run() -> Tensor:
        for layer in cache.layers:
            layer.cumulative_length.fill_(n_tokens)  # each run starts after the same text
        return steps()

    return run


def shared_twin(model: PreTrainedModel) -> PreTrainedModel:
    """Copy a model's modules and share its weights."""
    return copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})


def as_stock(cache: EvictingCache) -> DynamicCache:
    """Copy the keys and values that the next token reads into a DynamicCache; no head may have a FREE slot.

    With rolling positions, the keys are rotated to the positions at which the token reads them.
    """
    stock = DynamicCache()
    for index, slots in enumerate(cache.slots):
        # In the next step one more of the newest slots, which are kept exact, is read as quantized.
        next_slots = replace(slots, n_seen=slots.n_seen + 1)
        keys = cache.rolling.keys(next_slots.keys, slots) if cache.rolling else next_slots.keys
        stock.update(keys.clone(), next_slots.values.clone(), index)
    return stock


def _work(model: PreTrainedModel, n_sequences: int, n_read: float, n_new: int = 1, n_steps: int = 1) -> Work:
    """Count the work of `n_steps` steps, each with `n_new` tokens per sequence.

    A step reads each weight once and, per sequence, `n_read` keys and values once for all new tokens. Each new token
    needs one multiply-add per weight (the LM head only for the last token) and, per block, 2 · `n_read` · (query heads)
    · (head size) for logits and values.
    """
    n_weights = sum(weight.numel() for weight in model.parameters())
    size, bytes_per_number = heads(model), next(model.parameters()).element_size()
    cached_per_token = 2 * size.n_key_value * size.size * len(blocks(model))  # numbers: keys and values, all blocks
    bytes_moved = bytes_per_number * (n_weights + n_sequences * n_read * cached_per_token)
    n_head = model.config.vocab_size * model.config.hidden_size
    products = (
        n_new * (n_weights - n_head) + n_head + n_new * n_read * 2 * size.n_query * size.size * len(blocks(model))
    )
    return Work(n_steps * 2 * n_sequences * products, n_steps * bytes_moved)
