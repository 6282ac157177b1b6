"""FlexPrefill end to end: choosing the blocks and reading them, against torch's fused attention over all of them.

Queries and keys come from real text in five layers of the default model, so the rule itself determines the densities. A
contest is one length and one γ: attention of the five layers, with the choice of blocks inside the time and without it,
by the library's loop and by torch's flex_attention, and the choice alone. Then the whole model's prefill is timed.

Each length uses the first window of the experiment `sparse_attention`, since densities depend on the text: at γ = 0.8
and 2048 tokens its eight windows read .52 to .55 of the blocks and this one .53, but the beginning of the 8192-token
window .44. In that beginning, the last 128 queries, which decide, start a new article.

Dimension key: L layers, H key-value heads, heads = H * G query heads, T tokens, D size of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from typing import Any

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from course_lib.attention.interface import reading_through
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.flex import block_mask, compiled, flex_block_sparse_attention
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.data.corpora import windows
from course_lib.measure.roofline import Work
from course_lib.models import blocks, heads, load_model, tiny_model

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of outputs and logits, summed in another order
LENGTHS, WHOLE, GAMMAS, LAYERS = (2048, 4096, 8192), (2048, 4096), (0.8, 0.9, 0.95), (2, 8, 14, 20, 26)
QUICK = {"lengths": (96,), "gammas": (0.8,), "layers": (0, 1), "block_size": 16, "min_budget": 16}
DENSE, ALL, READ, CHOSEN = "sdpa, all blocks", "choose and read blocks", "read blocks", "choose blocks"
FLEX = "read blocks, flex_attention"

Text = tuple[Tensor, Tensor, Tensor]  # queries, keys and values of one layer, (heads, T, D)


@torch.no_grad()
def contests(place: Place) -> Iterator[Contest]:
    """Yield contests only on the CPU, where the loop over blocks executes an index."""
    if place.device.type != "cpu":
        return
    if place.quick:
        model, settings = tiny_model(), {name: QUICK[name] for name in ("block_size", "min_budget")}
        lengths, gammas, layers, whole = QUICK["lengths"], QUICK["gammas"], QUICK["layers"], QUICK["lengths"]
        ids = torch.randint(3, model.config.vocab_size, (max(lengths),), generator=place.generator)
        text = {length: ids[:length] for length in lengths}
    else:
        (model, tokenizer), settings = load_model(), {}
        lengths, gammas, layers, whole = LENGTHS, GAMMAS, LAYERS, WHOLE
        text = {length: windows("wikipedia", 1, length, tokenizer, "evaluation")[0] for length in lengths}
    for length in lengths:
        texts = recorded(model, text[length], layers)
        for gamma in gammas:
            yield _attention(texts, FlexPrefill(gamma=gamma, **settings), flex_attention if place.quick else compiled())
    for length, gamma in product(whole, gammas):
        yield _prefill(model, text[length][None], FlexPrefill(gamma=gamma, **settings))


def recorded(model: PreTrainedModel, ids: Tensor, layers: tuple[int, ...]) -> list[Text]:
    """Record the arguments of attention in these layers."""
    found: dict[int, Text] = {}

    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        if module.layer_idx in layers:
            found[module.layer_idx] = query[0], key[0], value[0]
        return sdpa_attention_forward(module, query, key, value, *args, **kwargs)

    with reading_through(model, "course_recorded", attend, sdpa_mask):
        model(ids[None], use_cache=False, logits_to_keep=1)
    return [found[layer] for layer in layers]


def _attention(texts: list[Text], rule: FlexPrefill, attend: Callable[..., Tensor]) -> Contest:
    """Build a contest; `attend` is flex_attention, compiled unless the bench is a quick one."""
    n_heads, n_tokens, size = texts[0][0].shape
    scaling = size**-0.5
    indices = [rule.index(query, keys, scaling) for query, keys, _ in texts]
    density = float(torch.stack([index.density.mean() for index in indices]).mean())
    n_bytes = 4 * sum(part.numel() for text in texts for part in (*text, text[0]))
    pairs = len(texts) * n_heads * n_tokens * (n_tokens + 1) // 2
    dense, sparse = Work(4 * size * pairs, n_bytes), Work(int(4 * size * pairs * density), n_bytes)

    def each(run: Callable[[int], Tensor]) -> Callable[[], Tensor]:
        return lambda: torch.stack([run(i) for i in range(len(texts))])

    expected = each(lambda i: block_sparse_attention(*texts[i], indices[i], scaling))()
    full = each(lambda i: _sdpa(*texts[i]))
    sides = [
        Side(DENSE, full, dense, full()),
        Side(ALL, each(lambda i: block_sparse_attention(*texts[i], _index(rule, texts[i]), scaling)), sparse),
        Side(READ, each(lambda i: block_sparse_attention(*texts[i], indices[i], scaling)), sparse),
        Side(
            CHOSEN,
            each(lambda i: _index(rule, texts[i]).reads.float()),
            Work(0, n_bytes),
            torch.stack([index.reads.float() for index in indices]),
        ),
    ]
    name = f"{n_tokens} tokens, γ {rule.gamma}, density {density:.2f}"
    contest = Contest(name, (n_tokens, len(texts)), sides, expected)
    masks = [block_mask(index) for index in indices]
    flex = each(lambda i: flex_block_sparse_attention(*texts[i], masks[i], scaling, attend))
    contest.try_side(FLEX, lambda: Side(FLEX, flex, sparse))
    return contest


def _index(rule: FlexPrefill, text: Text) -> Any:
    return rule.index(*text[:2], text[0].shape[2] ** -0.5)


def _sdpa(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    inputs = (part[None] for part in (query, keys, values))
    return scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)[0]


def _prefill(model: PreTrainedModel, ids: Tensor, rule: FlexPrefill) -> Contest:
    """Prefill a prompt with the whole model; the logits of the two sides differ."""

    def run(sparse: bool) -> Callable[[], Tensor]:
        def logits() -> Tensor:
            with prefilling(model, rule, "none") if sparse else nullcontext(), torch.no_grad():
                return model(ids, use_cache=False, logits_to_keep=1).logits

        return logits

    with prefilling(model, rule, "none") as watch, torch.no_grad():
        expected = model(ids, use_cache=False, logits_to_keep=1).logits
    n_tokens, density = ids.shape[1], float(watch.density.mean())
    weights = sum(weight.numel() for weight in blocks(model).parameters())
    attention = 4 * heads(model).size * heads(model).n_query * len(blocks(model)) * n_tokens * (n_tokens + 1) // 2
    dense, sparse = (Work(2 * weights * n_tokens + int(share * attention), 4 * weights) for share in (1, density))
    sides = [Side("dense prefill", run(False), dense, run(False)()), Side("sparse prefill", run(True), sparse)]
    name = f"whole model, {n_tokens} tokens, γ {rule.gamma}, density {density:.2f}"
    return Contest(name, (n_tokens, len(blocks(model))), sides, expected)


def summary(rows: list[dict[str, Any]]) -> str:
    """Report where choosing and reading blocks is faster than reading all, and where the whole prefill is."""
    sentences = []
    for side in (ALL, "sparse prefill"):
        timed = [row for row in rows if row["side"] == side and row["repetitions"]]
        wins = [f"{row['contest']} ({row['times_anchor']:.2f} x)" for row in timed if row["times_anchor_low"] > 1]
        sentences.append(f"{side}, faster at: {'; '.join(wins) if wins else 'none of these'}.")
    loop = {row["contest"]: row for row in rows if row["side"] == READ and row["repetitions"]}
    flex = [row for row in rows if row["side"] == FLEX and row["repetitions"] and row["contest"] in loop]
    if flex:
        times = sorted(loop[row["contest"]]["median_seconds"] / row["median_seconds"] for row in flex)
        sentences.append(
            f"flex_attention, {times[0]:.2f} to {times[-1]:.2f} x as fast as the loop over the same blocks."
        )
    return " ".join(sentences)
