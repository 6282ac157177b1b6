"""Why does one head of every group cost more than a whole group? Sets of heads are silenced and compared.

A head whose columns of the output projection read zeros writes nothing: silenced, not cut, so that any set of heads can
be asked about, those that no configuration describes too.

Dimension key: L blocks, H query heads, G key-value groups, R heads of a group.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import PAPERS, Row, perplexity_row, scores
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.models import architecture, blocks, heads

EACH, WHOLE, ANY = "one of every group", "a whole group", "any"
SETS = (EACH, WHOLE, ANY)


def leaving(which: str, score: Float[Tensor, "L H"], n_groups: int) -> Bool[Tensor, "L H"]:
    """The heads that score lowest: one of every group, all of the lowest group, or as many wherever they are."""
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
def silenced(model: PreTrainedModel, out: Bool[Tensor, "L H"]) -> Iterator[None]:
    """Inside, these heads write nothing."""
    handles, size = [], heads(model).size
    try:
        for block, silent in zip(blocks(model), out, strict=True):
            factor = (~silent).repeat_interleave(size).to(model.device, model.dtype)
            linear = block.get_submodule(architecture(block).attention[-1])
            handles.append(linear.register_forward_pre_hook(lambda _, args, factor=factor: (args[0] * factor,)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def row(sizes: Sizes, seed: int, out: Bool[Tensor, "L H"], score: Float[Tensor, "L H"], n: int) -> Row:
    """Perplexity with these heads silenced, and which share of all scores they had, the mean over the blocks."""
    model, _ = loaded(sizes.model)
    share = ((score * out).sum(1) / score.sum(1))[out.any(1)].mean().item()
    with silenced(model, out):
        return {"share_of_score": share} | perplexity_row(sizes, model, seed, n)


def sets(sizes: Sizes, which: str, seed: int) -> Tables:
    """The lowest heads of every block by score, then drawn at random: as many heads in every set."""
    score, rows = head_scores(sizes, seed), []
    n_groups = heads(loaded(sizes.model)[0]).n_key_value
    label = {"set": which, "chosen": "score", "draw": None}
    rows.append(label | row(sizes, seed, leaving(which, score, n_groups), score, sizes.evaluation))
    for draw in range(sizes.draws):
        noise = torch.rand(score.shape, generator=torch.Generator().manual_seed(seed + draw))
        label = {"set": which, "chosen": "random", "draw": draw}
        rows.append(label | row(sizes, seed, leaving(which, noise, n_groups), score, sizes.draw_evaluation))
    return {"heads": rows}


def by_block(sizes: Sizes, which: str, seed: int) -> Tables:
    """The lowest heads by score, in one block alone: where the cost comes from."""
    score, rows = head_scores(sizes, seed), []
    every = leaving(which, score, heads(loaded(sizes.model)[0]).n_key_value)
    for index in range(len(every)):
        alone = torch.zeros_like(every)
        alone[index] = every[index]
        rows.append({"set": which, "block": index} | row(sizes, seed, alone, score, sizes.block_evaluation))
    return {"heads_by_block": rows}


def head_scores(sizes: Sizes, seed: int) -> Float[Tensor, "L H"]:
    return scores(sizes, seed, "activations", PAPERS).heads
