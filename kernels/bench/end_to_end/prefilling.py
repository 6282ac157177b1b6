"""Prefill of a prompt: FlexPrefill's index and attention against torch's fused attention, then a whole Llama of 8B.

Random queries and keys have no structure to find. So that a known fraction of the blocks matters, some blocks of keys
get a component that all queries have as well. In these "planted" blocks, the keys' logits are higher by 6. The density
that FlexPrefill then reads is measured, and is in the name of the contest. The model's weights are random too: its
attention is almost uniform, and γ is low enough for the same density as in the attention that was timed.

Dimension key: H key-value heads, G query heads to each, T tokens, D size of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from course_lib.kernels.cache import block_sparse_prefill
from course_lib.kernels.dispatch import kernels
from course_lib.kernels.timing.contest import Contest, Place, Side
from course_lib.kernels.timing.random_llama import LLAMA3_8B, TINY, random_llama
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.baselines import SinkAndWindow
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.index import BlockIndex, n_blocks
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.measure.roofline import Transformer, Work

GPU_SECONDS = 45
CHECKED_ONCE = True  # other numbers would need another model
# Of the logits of a model, likewise of two right ways in bfloat16; see `decoding.py`.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
HEADS = (8, 4, 128)  # H, G, D of Llama 3 8B
# Tokens, planted fraction of the blocks, and τ of FlexPrefill: at 0 all heads choose lines, else those choose blocks
# whose attention the means of blocks predict, which here do all.
PLANTED = ((32768, 0.33, 0.1), (32768, 0.09, 0.0), (32768, 0.55, 0.1), (32768, 0.1, 0.1), (8192, 0.25, 0.1))
QUICK = ((90, 0.3, 0.0),)
LOGIT = 6.0  # by which the logits of planted keys are higher
GAMMA_OF_EVEN_ATTENTION = 0.15  # columns and diagonals of this fraction cover 0.3 of the blocks
PROMPTS = (32768, 8192)
MODEL_BYTES = 40e9  # weights, the cache of the longest prompt, and the activations of one layer
CHECKED = 1024  # tokens, by kernels and by PyTorch code


def contests(place: Place) -> Iterator[Contest]:
    """Yield no contest on a CPU, which would take minutes per prompt."""
    if place.device.type == "cpu" and not place.quick:
        return
    first, *others = QUICK if place.quick else PLANTED
    yield _attention(place, *first)
    shape = TINY if place.quick else LLAMA3_8B
    if place.quick or torch.cuda.mem_get_info(place.device)[0] > MODEL_BYTES:
        model = random_llama(shape, place)
        for n_tokens in (60,) if place.quick else PROMPTS:
            yield _whole_model(model, shape, place, n_tokens)
        del model
    for setting in others:
        yield _attention(place, *setting)


def prepared(place: Place) -> Iterator[Contest]:
    """Run everything that has to be compiled: the attention, and a model of one block."""
    if place.quick:
        yield from contests(place)
        return
    for n_tokens, planted, tau in PLANTED[:2]:
        yield _attention(place, n_tokens, planted, tau)


def planted_text(place: Place, n_tokens: int, fraction: float, block_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Make queries, keys and values of one layer; a random part of each key-value head's key blocks is planted."""
    n_heads, n_groups, size = (1, 2, 8) if place.quick else HEADS
    query = place.randn(n_heads * n_groups, n_tokens, size)
    keys, values = place.randn(n_heads, n_tokens, size), place.randn(n_heads, n_tokens, size)
    direction = torch.nn.functional.normalize(place.randn(size).float(), dim=0)
    strength = (LOGIT * size**0.5) ** 0.5
    chosen = place.rand(n_heads, n_blocks(n_tokens, block_size)) < fraction
    planted = chosen.repeat_interleave(block_size, dim=1)[:, :n_tokens, None]
    return (
        query + (strength * direction).to(query.dtype),
        keys + (strength * direction * planted).to(keys.dtype),
        values,
    )


def _attention(place: Place, n_tokens: int, fraction: float, tau: float) -> Contest:
    rule = FlexPrefill(gamma=0.95, tau=tau)
    if place.quick:
        rule = FlexPrefill(gamma=0.95, tau=tau, block_size=16, min_budget=16)
    query, keys, _ = text = planted_text(place, n_tokens, fraction, rule.block_size)
    scaling = query.shape[2] ** -0.5
    index = rule.index(query, keys, scaling)
    density = float(index.density.mean())
    expected = block_sparse_prefill.reference(*text, *index.lists(), scaling, index.block_size)
    dense, work = partial(_sdpa, *text, scaling), _work(text, 1.0)
    sides = [
        Side("sdpa, all blocks", dense, work, dense()),
        Side("FlexPrefill, index and attention", partial(_flex, rule, *text, scaling), _work(text, density)),
        Side("attention alone", partial(block_sparse_attention, *text, index, scaling), _work(text, density)),
        Side(
            "index alone", lambda: rule.index(query, keys, scaling).reads.float(), _work(text, 0), index.reads.float()
        ),
    ]
    chosen_by = "lines" if tau == 0 else "blocks"
    name = f"attention, {n_tokens} tokens, {chosen_by}, density {density:.2f}"
    return Contest(name, tuple(query.shape), sides, expected)


def _sdpa(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    inputs = (each[None] for each in (query, keys, values))
    return scaled_dot_product_attention(*inputs, is_causal=True, scale=scaling, enable_gqa=True)[0]


def _flex(rule: SparsePrefill, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    index: BlockIndex = rule.index(query, keys, scaling)
    return block_sparse_attention(query, keys, values, index, scaling)


def _work(text: tuple[Tensor, Tensor, Tensor], density: float) -> Work:
    """Count two products of each query with the keys that it reads; the text is read once, and one result per query is
    written. An index reads the queries and keys.
    """
    query, keys, values = text
    n_heads, n_tokens, size = query.shape
    flops = int(density * 4 * size * n_heads * n_tokens * (n_tokens + 1) // 2)
    n_bytes = 2 * query.nbytes + keys.nbytes + values.nbytes if density else query.nbytes + keys.nbytes
    return Work(flops, n_bytes)


def _whole_model(model: PreTrainedModel, shape: Transformer, place: Place, n_tokens: int) -> Contest:
    """Prefill the prompt up to the logits of its last token, with a cache of all keys and values."""
    ids = (place.rand(1, n_tokens) * shape.vocabulary).long()
    rule = FlexPrefill(gamma=GAMMA_OF_EVEN_ATTENTION, tau=0.0)
    small = SinkAndWindow(density=0.5)  # a rule whose choice does not depend on rounding of hidden states
    if place.quick:
        rule = FlexPrefill(gamma=GAMMA_OF_EVEN_ATTENTION, tau=0.0, block_size=16, min_budget=16)
        small = SinkAndWindow(density=0.5, block_size=16)
    by_torch = _checked(model, small, ids, on=False)
    n_weights = sum(weight.numel() for weight in model.parameters()) - model.get_input_embeddings().weight.numel()
    attention = 4 * shape.n_query * shape.head_size * n_tokens * (n_tokens + 1) // 2 * shape.n_blocks
    sides = []
    for name, method, density in (("dense, sdpa", None, 1.0), (f"FlexPrefill, γ = {rule.gamma}", rule, 0.3)):
        measured: dict[str, float] = {}
        work = Work(int(2 * n_weights * n_tokens + density * attention), 2 * n_weights)
        run = partial(_checked, model, small, ids, on=True)
        opened = partial(_opened, model, method, ids, measured)
        sides.append(Side(name, run, work, by_torch, opened, lambda seconds, measured=measured: measured))
    return Contest(f"whole model, {n_tokens} tokens", (1, n_tokens), sides, by_torch)


@torch.no_grad()
def _checked(model: PreTrainedModel, rule: SparsePrefill, ids: Tensor, on: bool) -> Tensor:
    with kernels(on), prefilling(model, rule, measured="none"):
        return model(ids[:, :CHECKED], logits_to_keep=1).logits[:, -1]


@contextmanager
def _opened(
    model: PreTrainedModel, rule: SparsePrefill | None, ids: Tensor, measured: dict[str, float]
) -> Iterator[Callable[[], Tensor]]:
    """Yield a prefill. On exit `measured` holds the peak memory, weights included, and the density."""
    is_cuda = ids.device.type == "cuda"
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    @torch.no_grad()
    def run() -> Tensor:
        return model(ids, use_cache=True, logits_to_keep=1).logits[:, -1]

    with nullcontext() if rule is None else prefilling(model, rule, measured="none") as watch:
        yield run
    if is_cuda:
        measured["peak_bytes"] = torch.cuda.max_memory_allocated()
    if watch is not None:
        measured["density"] = float(watch.density.mean())
