"""Recipes on the clock: a step of the dense model and of recipes that hold or read less, and texts with drafts.

As `compose` runs a recipe its weights were unpacked once, and zeros are multiplied: weights of fewer bytes take as long
as dense ones. From its bytes each matrix is unpacked whenever it is multiplied, which is what holding so few costs
without a kernel. A shorter cache is smaller tensors. Bytes are those of the recipe's account, in 16 bits where nothing
compresses, so that the bound is what they promise; the clock is that of float32.

Dimension key: T tokens before the step, N tokens of a text.
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

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of logits, after all layers have rounded in another order
K = 4  # tokens drafted a pass
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
    """Only on the processor, where recipes run as the course runs them."""
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
    made = recipes(model, calibration)
    with ExitStack() as stack:
        yield steps(stack, made, ids[:, : lengths["before"]])
    for kind in ("running text", "copying"):
        yield drafts(made, ids[0], kind, lengths["begin"], lengths["written"])


def recipes(model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> dict[str, Built]:
    """All of them, each a model of its own modules; weights that nothing changes are shared."""
    dense = build(Recipe(), model, calibration)
    pruned = extended(dense, from_json(RECIPES[PRUNED]), calibration)
    return {
        name: extended(twin(pruned if "weights" in text else dense), from_json(text), calibration)
        for name, text in RECIPES.items()
    }


def twin(built: Built) -> Built:
    """The same weights under modules of their own, so that what one runs inside does not reach the other."""
    return replace(built, made=replace(built.made, model=shared_twin(built.model)))


def steps(stack: ExitStack, made: dict[str, Built], ids: Int[Tensor, "1 T"]) -> Contest:
    """One token behind a text, checked against the whole text read anew, or against the slots kept."""
    sides = [side(stack, name, built, ids) for name, built in made.items()]
    unpacked = replace(made[PRUNED], made=replace(made[PRUNED].made, model=copy.deepcopy(made[PRUNED].model)))
    stack.enter_context(unpacking(unpacked))
    sides.append(side(stack, UNPACKED, unpacked, ids))
    return Contest(f"1 {STEP} at {ids.shape[1]} tokens", (1, ids.shape[1]), sides, sides[0].expected)


def side(stack: ExitStack, name: str, built: Built, ids: Int[Tensor, "1 T"]) -> Side:
    found, token, plain = account(built, ids[0]), ids[:, :1], shared_twin(built.model)
    cache = stack.enter_context(built.running())
    built.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    if isinstance(cache, EvictingCache):
        position = torch.tensor([[ids.shape[1]]])
        expected = plain(token, position_ids=position, past_key_values=as_stock(cache)).logits[:, -1]
    else:
        whole = torch.cat([ids, token], dim=1)
        expected = built.model(whole, use_cache=False, logits_to_keep=1).logits[:, -1]
    work = Work(2 * found.multiply_adds, found.read)
    return Side(name, partial(decoded, built.model, token, cache), work, expected)


@torch.no_grad()
def decoded(model: PreTrainedModel, token: Int[Tensor, "1 1"], cache: Cache) -> Float[Tensor, "1 V"]:
    """The logits of a token. Each run lengthens a cache that forgets nothing by one, of all such sides alike."""
    return model(token, past_key_values=cache, use_cache=True).logits[:, -1]


@contextmanager
def unpacking(built: Built) -> Iterator[None]:
    """Inside, each matrix comes from its stored tensors whenever it is multiplied."""
    part = built.recipe.part(Weights.name)
    handles = []
    for layer in layers_of(built.model):
        prefix = f"{Weights.name}/{layer.name}/"
        stored = {name.removeprefix(prefix): each for name, each in built.stored.items() if name.startswith(prefix)}
        handles.append(layer.module.register_forward_pre_hook(partial(_unpack, part.layout, stored)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _unpack(layout: Layout, stored: Tensors, module: nn.Module, inputs: tuple) -> None:
    module.weight.data = layout.decode(stored, tuple(module.weight.shape))


class Nothing(Draft):
    """Drafts nothing: a pass a token."""

    def __init__(self, n_vocabulary: int):
        self.n_vocabulary = n_vocabulary

    def propose(self, ids: Int[Tensor, "N"], k: int, sampling: Sampling) -> Proposal:
        return Proposal([], torch.empty(0, self.n_vocabulary, dtype=torch.float64))


def drafts(made: dict[str, Built], ids: Int[Tensor, "N"], kind: str, n_begin: int, n_new: int) -> Contest:
    """A greedy text: without a draft, looked up, and drafted by pruned and rounded weights."""
    model, text = made[DENSE].model, ids[:n_begin]
    if kind == "copying":
        text = torch.cat([ids[: n_begin + n_new], text])
    n_words, read = model.config.vocab_size, {name: account(made[name], text).read for name in (DENSE, PRUNED)}
    runs: dict[str, tuple[int, Callable[[], Any]]] = {
        "no draft": (0, lambda: speculate(model, text, n_new, Nothing(n_words), K)),
        "lookup": (0, lambda: speculate(model, text, n_new, Lookup(n_words), K)),
        PRUNED: (read[PRUNED], lambda: _drafted(model, made[PRUNED], text, n_new)),
    }
    sides = []
    for name, (read_by_draft, run) in runs.items():
        rounds = run().rounds
        n_drafted = sum(each.n_drafted for each in rounds)
        work = Work(0, len(rounds) * read[DENSE] + n_drafted * read_by_draft)
        sides.append(Side(name, lambda run=run: run().new.float(), work))
    return Contest(f"{n_new} tokens, {kind}", (1, len(text)), sides, sides[0].run())


def _drafted(model: PreTrainedModel, built: Built, text: Int[Tensor, "N"], n_new: int) -> Any:
    with drafting(built) as draft:
        return speculate(model, text, n_new, draft, K)


def summary(rows: list[dict[str, Any]]) -> str:
    """Tokens a second: dense, the recipe that reads the fewest bytes, the fastest; and whether a draft pays."""
    timed = [row for row in rows if row["repetitions"]]
    in_steps = [row for row in timed if STEP in row["contest"]]
    if not in_steps:
        return "No recipe was timed."
    fewest, fastest = (min(in_steps, key=lambda row: row[key]) for key in ("bytes", "median_seconds"))
    dense = in_steps[0]
    lines = [
        f"{what}: {row['side']}, {1 / row['median_seconds']:.1f} tokens a second, {row['times_anchor']:.2f} times "
        f"dense; {dense['bytes'] / row['bytes']:.2f} times fewer bytes"
        for what, row in (("Dense", dense), ("Fewest bytes", fewest), ("Fastest", fastest))
    ]
    lines.append("Weights that were unpacked once are as large as dense ones: their bytes save memory, not time.")
    drafted = [row for row in timed if STEP not in row["contest"] and row["side"] != row["anchor"]]
    lines += [
        f"{row['contest']}: {row['side']} {row['times_anchor']:.2f} times as fast as no draft." for row in drafted
    ]
    return "\n".join(lines)
