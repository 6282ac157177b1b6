"""Speculative decoding on the default model: how good drafts are, and how often the weights are loaded for 100 tokens.

Leviathan and others, 2023, https://arxiv.org/abs/2211.17192. Two kinds of text: running text of Wikipedia, and copying,
where the same text has just been read once.

Tables:

    overlap     by draft and kind: α = mean Σ min(p, q), of every text; for lookup, p of the token that it proposes, and
                the fraction of positions at which it proposes one
    speculated  by draft and kind: new tokens and passes of the model of every text; tokens drafted, tried and accepted;
                bytes that a pass of the draft reads, relative to the model's

Temperature 1. The drafts with half of their neurons choose them by an oracle, which saves no computation.
Minutes planned on one idle core: 4.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.speculative.accept import Drawn, Sampling, overlap
from course_lib.attention.speculative.cached import first_blocks
from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Lookup, model_draft
from course_lib.contextual.apply import contextual
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import blocks, layers_of
from course_lib.prompts.compressed.store import DENSE, Compressed, compressed

RUNNING, COPYING = "running text", "copying"
LOOKUP, EXIT, WANDA, CUT = "lookup", "24 of 30 blocks", "Wanda 50 %", "Minitron's cut"
HALF = "half of the neurons"
STORED = {WANDA: "wanda-50", CUT: "minitron-50"}
NEURONS = {HALF: 0.5}
CERTAIN = Sampling(0.0, Drawn())  # prompt lookup does not sample
SHARE_OF_BLOCKS = 0.8  # fraction of the blocks that the early exit computes


@dataclass(frozen=True)
class Sizes:
    """The prompt is a third of a running text; for a copied text it is a first reading and `begin`."""

    texts: int = 6
    length: int = 192
    begin: int = 16
    written: int = 4  # texts that the model continues
    n_new: int = 32
    k: int = 4
    drafts: tuple[str, ...] = (LOOKUP, EXIT, WANDA, CUT, HALF)


QUICK = Sizes(texts=2, length=24, begin=6, written=2, n_new=4, k=2)


def steps(sizes: Sizes) -> list[Step]:
    pairs = product(sizes.drafts, (RUNNING, COPYING))
    return [Step(f"{name}: {kind}", partial(drafted, sizes, name, kind)) for name, kind in pairs]


def drafted(sizes: Sizes, name: str, kind: str, seed: int) -> Tables:
    """Measure one draft on one kind of text."""
    of, texts = {"draft": name, "kind": kind}, given(sizes, kind, seed)
    overlaps = {"overlap": [of | overlaps_of(name, texts)]}
    return overlaps | {"speculated": [of | written(sizes, name, texts[: sizes.written], seed)]}


@dataclass(frozen=True, eq=False)
class Given:
    """A text whose tokens from `start` on are predicted."""

    ids: Int[Tensor, "N"]
    start: int


def given(sizes: Sizes, kind: str, seed: int) -> list[Given]:
    windows = article_windows(sizes.texts, sizes.length, seed)
    if kind == RUNNING:
        return [Given(window, sizes.length // 3) for window in windows]
    half = sizes.length // 2
    return [Given(torch.cat([window[:half], window[:half]]), half + sizes.begin) for window in windows]


def overlaps_of(name: str, texts: list[Given]) -> Row:
    """Compute α of every text, given the tokens before. Positions at which a lookup proposes nothing do not count."""
    by_text, n_proposed, n_places = [], 0, 0
    for one in texts:
        p, n = probabilities(loaded()[0], one), len(one.ids) - one.start
        if name == LOOKUP:
            proposals = [lookup().propose(one.ids[: one.start + i], 1, CERTAIN).tokens for i in range(n)]
            overlaps = torch.tensor([p[i, tokens[0]] for i, tokens in enumerate(proposals) if tokens])
        else:
            model, inside = drafting(name)
            with inside():
                overlaps = overlap(p, probabilities(model, one))
        n_proposed, n_places = n_proposed + len(overlaps), n_places + n
        by_text += [round(float(overlaps.mean()), 5)] if len(overlaps) else []
    return {"alpha": by_text, "proposed": n_proposed / n_places, "n_tokens": n_places}


@torch.no_grad()
def probabilities(model: PreTrainedModel, one: Given) -> Float[Tensor, "n V"]:
    """Return the probabilities of each token from the start on, given those before it."""
    n = len(one.ids) - one.start
    return model(one.ids[None], use_cache=False, logits_to_keep=n + 1).logits[0, :-1].double().softmax(dim=-1)


def written(sizes: Sizes, name: str, texts: list[Given], seed: int) -> Row:
    """Let the model continue the texts from their start, with a draft."""
    draft = lookup() if name == LOOKUP else model_draft(*drafting(name))
    runs = []
    for i, one in enumerate(texts):
        chance = torch.Generator().manual_seed(seed + i)
        runs.append(speculate(loaded()[0], one.ids[: one.start], sizes.n_new, draft, sizes.k, 1.0, chance))
    rounds = [each for run in runs for each in run.rounds]
    n_tried = sum(each.n_tried for each in rounds)
    counts = {"new": [len(run.new) for run in runs], "passes": [len(run.rounds) for run in runs], "k": sizes.k}
    counts |= {"tried": n_tried, "stayed": sum(each.n_stayed for each in rounds)}
    return counts | {"drafted": sum(each.n_drafted for each in rounds), "read": round(read_share(name), 4)}


def lookup() -> Lookup:
    return Lookup(loaded()[0].config.vocab_size)


@lru_cache(maxsize=1)
def drafting(name: str) -> tuple[PreTrainedModel, Callable[[], AbstractContextManager]]:
    """Return a smaller model, or the model itself with a block in which it computes less."""
    model = loaded()[0]
    if name in STORED:
        return stored(name).model, nullcontext
    if name in NEURONS:
        return model, partial(contextual, model, Oracle(), NEURONS[name])
    return first_blocks(model, round(SHARE_OF_BLOCKS * len(blocks(model)))), nullcontext


@lru_cache(maxsize=1)
def stored(name: str) -> Compressed:
    """Load a model from the user's cache, or make it in a minute or two."""
    return compressed(STORED[name], progress=False)


def read_share(name: str) -> float:
    """Return the bytes read by a pass of the draft, relative to a pass of the model; both in 16 bits."""
    if name == LOOKUP:
        return 0.0
    if name in STORED:
        return stored(name).n_bytes / compressed(DENSE).n_bytes
    model = loaded()[0]
    whole = sum(weight.numel() for weight in model.parameters())
    per_block = sum(weight.numel() for weight in blocks(model).parameters()) / len(blocks(model))
    if name == EXIT:
        return 1 - (len(blocks(model)) - len(blocks(drafting(name)[0]))) * per_block / whole
    mlps = sum(layer.module.weight.numel() for layer in layers_of(model) if ".mlp." in layer.name)
    return 1 - (1 - NEURONS[name]) * mlps / whole


EXPERIMENT = Experiment("Drafts for speculative decoding", Sizes(), QUICK, steps)
