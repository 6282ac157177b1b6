"""Are activation norms enough? Prune one kind of part by every score and at random; ablate sets of heads.

An ablated head outputs zeros, but its weights stay. So any set of heads can be tested, also sets that no configuration
can describe.

Dimension key: L blocks, H query heads, G key-value groups, R heads of a group.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import (
    METHODS,
    PAPERS,
    Row,
    Sizes,
    evidence,
    n_weights,
    perplexity_row,
    scores,
)
from course_lib.lessons.minitron.experiments.students import block_scores
from course_lib.measure.experiment import Tables
from course_lib.models import architecture, blocks, heads
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.shape import Shape, shape_of
from course_lib.pruning.structured.surgery import cut

FOR_HEADS = {("activations", "l2, mean"), ("activations", "l2, l2"), ("output energy", ""), ("weight norm", "")}
FOR_HEADS |= {("LLM-Pruner", "param_first")}
EACH, WHOLE, ANY = "one of every group", "a whole group", "any"
SETS = (EACH, WHOLE, ANY)


def dense(sizes: Sizes, seed: int) -> Tables:
    """Evaluate the dense model, with which all others are compared."""
    model, _ = loaded(sizes.model)
    return {"dense": [{"parameters": n_weights(model)} | perplexity_row(sizes, model, seed)]}


def block_rows(sizes: Sizes, seed: int) -> Tables:
    """Measure the influence of each block and the log-perplexity without it."""
    influence, without = (block_scores(sizes, seed, by) for by in ("influence", "perplexity drop"))
    pairs = enumerate(zip(influence.tolist(), without.tolist(), strict=True))
    return {"blocks": [{"block": i, "influence": value, "log_perplexity_without": log} for i, (value, log) in pairs]}


def target(now: Shape, kind: str, size: int) -> Shape:
    """Return the shape after pruning this kind alone; a group is pruned with its query heads."""
    query_heads = {"heads": size * (now.heads // now.groups)} if kind == "groups" else {}
    return replace(now, **{kind: size}, **query_heads)


def by_scores(sizes: Sizes, kind: str, size: int, seed: int) -> Tables:
    """Prune by every score that exists for this kind."""
    rows, factor = [], []
    for method, setting in METHODS:
        if kind in ("heads", "groups") and (method, setting) not in FOR_HEADS:
            continue
        if kind == "width" and method != "activations":
            continue
        label = {"kind": kind, "size": size, "method": method, "setting": setting, "draw": None}
        values = scores(sizes, seed, method, setting)
        row = cut_row(sizes, kind, size, values, seed)
        rows.append(label | row)
        if kind == "width" and setting == PAPERS:
            plain = cut_row(sizes, kind, size, values, seed, rescale=False)
            factor = [{"size": size, "rescaled": True} | row, {"size": size, "rescaled": False} | plain]
    return {"cuts": rows} | ({"norm_factor": factor} if factor else {})


def at_random(sizes: Sizes, kind: str, size: int, seed: int) -> Tables:
    """Prune at random several times; evaluate on fewer windows."""
    rows = []
    for draw in range(sizes.draws):
        label = {"kind": kind, "size": size, "method": "random", "setting": "", "draw": draw}
        values = Random(seed + draw).score(evidence(sizes, seed))
        rows.append(label | cut_row(sizes, kind, size, values, seed, n=sizes.draw_evaluation))
    return {"cuts": rows}


@torch.no_grad()
def cut_row(
    sizes: Sizes, kind: str, size: int, values: Scores, seed: int, rescale: bool = True, n: int | None = None
) -> Row:
    """Return parameters and perplexity of a structurally pruned model."""
    model, _ = loaded(sizes.model)
    smaller = cut(model, target(shape_of(model), kind, size), values, rescale)
    return {"parameters": n_weights(smaller)} | perplexity_row(sizes, smaller, seed, n)


def lowest_heads(which: str, score: Float[Tensor, "L H"], n_groups: int) -> Bool[Tensor, "L H"]:
    """Mark the heads with the lowest scores: one of every group, all of the lowest group, or as many anywhere."""
    inside, out = score.unflatten(1, (n_groups, -1)), torch.zeros(score.shape, dtype=torch.bool)  # (L, G, R)
    grouped = out.unflatten(1, (n_groups, -1))
    if which == EACH:
        grouped.scatter_(2, inside.argmin(2, keepdim=True), True)
    elif which == WHOLE:
        grouped[torch.arange(len(score)), inside.sum(2).argmin(1)] = True
    else:
        out.scatter_(1, score.argsort(dim=1)[:, :n_groups], True)
    return out


@contextmanager
def ablating(model: PreTrainedModel, out: Bool[Tensor, "L H"]) -> Iterator[None]:
    """Inside the block, these heads output zeros."""
    handles, size = [], heads(model).size
    try:
        for block, ablated in zip(blocks(model), out, strict=True):
            factor = (~ablated).repeat_interleave(size).to(model.device, model.dtype)
            linear = block.get_submodule(architecture(block).attention[-1])
            handles.append(linear.register_forward_pre_hook(lambda _, args, factor=factor: (args[0] * factor,)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def ablated_row(sizes: Sizes, seed: int, out: Bool[Tensor, "L H"], score: Float[Tensor, "L H"], n: int) -> Row:
    """Return the perplexity without these heads, and the fraction of all scores that they hold (mean over blocks)."""
    model, _ = loaded(sizes.model)
    fraction = ((score * out).sum(1) / score.sum(1))[out.any(1)].mean().item()
    with ablating(model, out):
        return {"share_of_score": fraction} | perplexity_row(sizes, model, seed, n)


def head_sets(sizes: Sizes, which: str, seed: int) -> Tables:
    """Ablate a set of heads in every block: the lowest by score, then as many at random."""
    score, rows = head_scores(sizes, seed), []
    n_groups = heads(loaded(sizes.model)[0]).n_key_value
    label = {"set": which, "chosen": "score", "draw": None}
    rows.append(label | ablated_row(sizes, seed, lowest_heads(which, score, n_groups), score, sizes.evaluation))
    for draw in range(sizes.draws):
        noise = torch.rand(score.shape, generator=torch.Generator().manual_seed(seed + draw))
        label = {"set": which, "chosen": "random", "draw": draw}
        out = lowest_heads(which, noise, n_groups)
        rows.append(label | ablated_row(sizes, seed, out, score, sizes.draw_evaluation))
    return {"heads": rows}


def heads_by_block(sizes: Sizes, which: str, seed: int) -> Tables:
    """Ablate the lowest heads by score in one block at a time: where does the cost come from?"""
    score, rows = head_scores(sizes, seed), []
    every = lowest_heads(which, score, heads(loaded(sizes.model)[0]).n_key_value)
    for index in range(len(every)):
        alone = torch.zeros_like(every)
        alone[index] = every[index]
        row = ablated_row(sizes, seed, alone, score, sizes.block_evaluation)
        rows.append({"set": which, "block": index} | row)
    return {"heads_by_block": rows}


def head_scores(sizes: Sizes, seed: int) -> Float[Tensor, "L H"]:
    return scores(sizes, seed, "activations", PAPERS).heads
