"""Are norms of activations enough? One kind of group leaves, by every score and at random."""

from dataclasses import replace

import torch

from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import (
    METHODS,
    PAPERS,
    evidence,
    n_weights,
    perplexity_row,
    scores,
)
from course_lib.lessons.minitron.experiments.shapes import block_scores
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.shape import Shape, shape_of
from course_lib.pruning.structured.surgery import cut

OF_HEADS = {("activations", "l2, mean"), ("activations", "l2, l2"), ("output energy", ""), ("weight norm", "")}
OF_HEADS |= {("LLM-Pruner", "param_first")}


def dense(sizes: Sizes, seed: int) -> Tables:
    """The model that everything is compared with."""
    model, _ = loaded(sizes.model)
    return {"dense": [{"parameters": n_weights(model)} | perplexity_row(sizes, model, seed)]}


def blocks(sizes: Sizes, seed: int) -> Tables:
    """How much every block turns the stream, and the log perplexity without it."""
    influence, without = (block_scores(sizes, seed, by) for by in ("influence", "perplexity drop"))
    pairs = enumerate(zip(influence.tolist(), without.tolist(), strict=True))
    return {"blocks": [{"block": i, "influence": turned, "log_perplexity_without": log} for i, (turned, log) in pairs]}


def target(now: Shape, kind: str, size: int) -> Shape:
    """The shape when this kind alone leaves; a group leaves with its heads."""
    heads = {"heads": size * (now.heads // now.groups)} if kind == "groups" else {}
    return replace(now, **{kind: size}, **heads)


def scored(sizes: Sizes, kind: str, size: int, seed: int) -> Tables:
    """Every score that has an opinion of this kind."""
    rows, factor = [], []
    for method, setting in METHODS:
        if kind in ("heads", "groups") and (method, setting) not in OF_HEADS:
            continue
        if kind == "width" and method != "activations":
            continue
        label = {"kind": kind, "size": size, "method": method, "setting": setting, "draw": None}
        found = scores(sizes, seed, method, setting)
        row = cut_row(sizes, kind, size, found, seed)
        rows.append(label | row)
        if kind == "width" and setting == PAPERS:
            plain = cut_row(sizes, kind, size, found, seed, rescale=False)
            factor = [{"size": size, "rescaled": True} | row, {"size": size, "rescaled": False} | plain]
    return {"cuts": rows} | ({"norm_factor": factor} if factor else {})


def random(sizes: Sizes, kind: str, size: int, seed: int) -> Tables:
    """Several draws of chance, on fewer windows."""
    rows = []
    for draw in range(sizes.draws):
        label = {"kind": kind, "size": size, "method": "random", "setting": "", "draw": draw}
        found = Random(seed + draw).score(evidence(sizes, seed))
        rows.append(label | cut_row(sizes, kind, size, found, seed, n=sizes.draw_evaluation))
    return {"cuts": rows}


@torch.no_grad()
def cut_row(
    sizes: Sizes, kind: str, size: int, found: Scores, seed: int, rescale: bool = True, n: int | None = None
) -> dict:
    """Parameters and perplexity of a cut."""
    model, _ = loaded(sizes.model)
    smaller = cut(model, target(shape_of(model), kind, size), found, rescale)
    return {"parameters": n_weights(smaller)} | perplexity_row(sizes, smaller, seed, n)
