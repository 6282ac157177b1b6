"""Latency of compression recipes: one decoding step of each, and greedy decoding with and without drafts.

`compose` unpacks the weights of a recipe once and multiplies the zeros, too, so compressed weights take as long as
dense ones. One side ("from its bytes") instead unpacks each matrix in every product: this is the price of the smaller
memory footprint without a kernel. A shorter cache, in contrast, means smaller tensors and saves time.

Bytes per step come from the recipe's account, with 16 bits for everything that is not compressed; the lower bound
follows from them. Times are measured in float32.

Dimension key: T tokens before the step, N tokens of a text, V vocabulary.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from course_lib.kernels.bench.kv import as_stock, shared_twin
from course_lib.kernels.timing.contest import Contest, Place, Side
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from course_lib.attention.speculative.accept import Sampling
from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Draft, Lookup, Proposal
from course_lib.compose.build import Built, build, extended
from course_lib.compose.counting.account import account
from course_lib.compose.draft import drafting
from course_lib.compose.parts.weights import Weights
from course_lib.compose.recipe import Calibration, Recipe, from_json
from course_lib.data.corpora import windows
from course_lib.kv.layers import EvictingCache
from course_lib.measure.roofline import Work
from course_lib.models import layers_of, load_model, tiny_model
from course_lib.prompts.compressed.layouts import Layout, Tensors

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of logits: rounding in another order adds up over all layers
K = 4  # tokens drafted per forward pass of the target model
LENGTHS = {"before": 1024, "begin": 64, "written": 32}
QUICK = {"before": 80, "begin": 12, "written": 4}
STEP = "step of 1"
DENSE, OWN_CACHE, SMALLEST = "dense", "dense, the course's cache", "SparseGPT 50 %, 3 bits + H2O 20 %, 4 bits"
PRUNED, UNPACKED = "SparseGPT 50 %, 3 bits", "SparseGPT 50 %, 3 bits, from its bytes"
RECIPES = {
    DENSE: "{}",
    OWN_CACHE: '{"cache": {"policy": "Full"}}',
    "StreamingLLM 20 %": '{"cache": {"policy": "StreamingLLM", "budget": 0.2}}',
    "H2O 20 %, 4 bits": '{"cache": {"policy": "H2O", "budget": 0.2, "recent": 16, "bits": 4, "residual": 16}}',
    "CATS 50 %": '{"neurons": {"selector": "CATS", "density": 0.5}}',
    PRUNED: '{"weights": {"method": "SparseGPT", "pattern": 0.5, "bits": 3, "group": 64}}',
    SMALLEST: '{"weights": {"method": "SparseGPT", "pattern": 0.5, "bits": 3, "group": 64}, '
    '"cache": {"policy": "H2O", "budget": 0.2, "recent": 16, "bits": 4, "residual": 16}}',
}


@torch.no_grad()
def contests(place: Place) -> Iterator[Contest]:
    """Yield a contest of decoding steps and two of drafts; only on the CPU, where the course runs its recipes."""
    if place.device.type != "cpu":
        return
    lengths = QUICK if place.quick else LENGTHS
    if place.quick:
        model = tiny_model()
        ids = torch.randint(3, model.config.vocab_size, (1, 2 * lengths["before"]), generator=place.generator)
        calibration = ids.reshape(4, -1)
    else:
        model, tokenizer = load_model()
        ids = windows("wikipedia", 1, 2 * lengths["before"], tokenizer, "evaluation")
        calibration = Calibration().text(tokenizer)
    built = recipes(model, calibration)
    with ExitStack() as stack:
        yield steps(stack, built, ids[:, : lengths["before"]])
    for kind in ("running text", "copying"):
        yield drafts(built, ids[0], kind, lengths["begin"], lengths["written"])


def recipes(model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> dict[str, Built]:
    """Build all recipes, each with modules of its own; unchanged weights are shared in memory."""
    dense = build(Recipe(), model, calibration)
    pruned = extended(dense, from_json(RECIPES[PRUNED]), calibration)
    return {
        name: extended(twin(pruned if "weights" in text else dense), from_json(text), calibration)
        for name, text in RECIPES.items()
    }


def twin(built: Built) -> Built:
    """Copy the modules and share the weights, so that hooks of one recipe do not affect another."""
    return replace(built, made=replace(built.made, model=shared_twin(built.model)))


def steps(stack: ExitStack, made: dict[str, Built], ids: Int[Tensor, "1 T"]) -> Contest:
    """Build the contest of one decoding step after a text.

    A side without eviction is checked against a forward pass over the whole text, a side with eviction against
    transformers' cache filled with the keys and values that it kept.
    """
    sides = [side(stack, name, built, ids) for name, built in made.items()]
    unpacked = replace(made[PRUNED], made=replace(made[PRUNED].made, model=copy.deepcopy(made[PRUNED].model)))
    stack.enter_context(unpacking(unpacked))
    sides.append(side(stack, UNPACKED, unpacked, ids))
    return Contest(f"1 {STEP} at {ids.shape[1]} tokens", (1, ids.shape[1]), sides, sides[0].expected)


def side(stack: ExitStack, name: str, built: Built, ids: Int[Tensor, "1 T"]) -> Side:
    """Build one side: prefill the text inside the recipe's context, which stays open, and decode the next token."""
    counts, token, plain = account(built, ids[0]), ids[:, :1], shared_twin(built.model)
    cache = stack.enter_context(built.running())
    built.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    if isinstance(cache, EvictingCache):
        position = torch.tensor([[ids.shape[1]]])
        expected = plain(token, position_ids=position, past_key_values=as_stock(cache)).logits[:, -1]
    else:
        full_text = torch.cat([ids, token], dim=1)
        expected = built.model(full_text, use_cache=False, logits_to_keep=1).logits[:, -1]
    work = Work(2 * counts.multiply_adds, counts.read)
    return Side(name, partial(decoded, built.model, token, cache), work, expected)


@torch.no_grad()
def decoded(model: PreTrainedModel, token: Int[Tensor, "1 1"], cache: Cache) -> Float[Tensor, "1 V"]:
    """Return the logits of one token. Each run makes a cache without eviction one token longer, on all such sides."""
    return model(token, past_key_values=cache, use_cache=True).logits[:, -1]


@contextmanager
def unpacking(built: Built) -> Iterator[None]:
    """Decode each compressed matrix from its stored tensors before every product, until the context ends."""
    part = built.recipe.part(Weights.name)
    handles = []
    for layer in layers_of(built.model):
        prefix = f"{Weights.name}/{layer.name}/"
        stored = {name.removeprefix(prefix): x for name, x in built.stored.items() if name.startswith(prefix)}
        handles.append(layer.module.register_forward_pre_hook(partial(_unpack, part.layout, stored)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _unpack(layout: Layout, stored: Tensors, module: nn.Module, inputs: tuple) -> None:
    module.weight.data = layout.decode(stored, tuple(module.weight.shape))


class Nothing(Draft):
    """Propose no tokens, so that each token needs one pass of the target model."""

    def __init__(self, n_vocabulary: int):
        self.n_vocabulary = n_vocabulary

    def propose(self, ids: Int[Tensor, "N"], k: int, sampling: Sampling) -> Proposal:
        return Proposal([], torch.empty(0, self.n_vocabulary, dtype=torch.float64))


def drafts(made: dict[str, Built], ids: Int[Tensor, "N"], kind: str, n_begin: int, n_new: int) -> Contest:
    """Build a contest of greedy decoding: no draft, prompt lookup, and drafts by the compressed model."""
    model, text = made[DENSE].model, ids[:n_begin]
    if kind == "copying":
        text = torch.cat([ids[: n_begin + n_new], text])
    bytes_read = {name: account(made[name], text).read for name in (DENSE, PRUNED)}
    n_vocabulary = model.config.vocab_size
    runs: dict[str, tuple[int, Callable[[], Any]]] = {
        "no draft": (0, lambda: speculate(model, text, n_new, Nothing(n_vocabulary), K)),
        "lookup": (0, lambda: speculate(model, text, n_new, Lookup(n_vocabulary), K)),
        PRUNED: (bytes_read[PRUNED], lambda: _drafted(model, made[PRUNED], text, n_new)),
    }
    sides = []
    for name, (draft_bytes, run) in runs.items():
        rounds = run().rounds
        n_drafted = sum(verification.n_drafted for verification in rounds)
        # A round is one pass of the target model; the draft model makes one pass per drafted token.
        work = Work(0, len(rounds) * bytes_read[DENSE] + n_drafted * draft_bytes)
        sides.append(Side(name, lambda run=run: run().new.float(), work))
    return Contest(f"{n_new} tokens, {kind}", (1, len(text)), sides, sides[0].run())


def _drafted(model: PreTrainedModel, built: Built, text: Int[Tensor, "N"], n_new: int) -> Any:
    with drafting(built) as draft:
        return speculate(model, text, n_new, draft, K)


def summary(rows: list[dict[str, Any]]) -> str:
    """Report tokens per second of the dense model and of the recipes with the fewest bytes and the lowest latency."""
    timed = [row for row in rows if row["repetitions"]]
    in_steps = [row for row in timed if STEP in row["contest"]]
    if not in_steps:
        return "No recipe was timed."
    fewest, fastest = (min(in_steps, key=lambda row: row[key]) for key in ("bytes", "median_seconds"))
    dense = in_steps[0]
    lines = [
        f"{heading}: {row['side']}, {1 / row['median_seconds']:.1f} tokens per second, {row['times_anchor']:.2f} times "
        f"dense; {dense['bytes'] / row['bytes']:.2f} times fewer bytes"
        for heading, row in (("Dense", dense), ("Fewest bytes", fewest), ("Fastest", fastest))
    ]
    lines.append("Weights that were unpacked once are as large as dense ones: their bytes save memory, not time.")
    drafted = [row for row in timed if STEP not in row["contest"] and row["side"] != row["anchor"]]
    lines += [
        f"{row['contest']}: {row['side']} {row['times_anchor']:.2f} times as fast as no draft." for row in drafted
    ]
    return "\n".join(lines)
