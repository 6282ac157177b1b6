"""How many of the neurons that a token needs a nearest-neighbor search finds, over all tokens of many windows.

`course reproduce dejavu_predictors` times a search on one token. Here a scan of all rows and a static set choose for
every token of the evaluation windows, and the recall of each window is one sample.

Dimension key: T tokens, D width, F neurons.
"""

from functools import partial
from statistics import fmean

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.contextual.seen import Seen, look_through
from course_lib.contextual.selector import n_kept
from course_lib.lessons.dejavu.experiments import trained
from course_lib.lessons.dejavu.experiments.ground import GATED, QUICK, Sizes, subject
from course_lib.lessons.dejavu.experiments.search import SCAN, keys
from course_lib.measure.experiment import Experiment, Step, Tables


def recall(sizes: Sizes, name: str, seed: int) -> Tables:
    """Return a row per way to choose: the fraction of the oracle's neurons that it finds, by window."""
    of, density = subject(sizes, name, seed), sizes.searched
    static = trained.fitted(sizes, name, trained.STATIC, seed)
    by_way: dict[str, list[float]] = {SCAN: [], trained.STATIC: []}
    for window in of.evaluation:
        found: dict[str, list[float]] = {way: [] for way in by_way}

        def look(block: int, seen: Seen, found: dict[str, list[float]] = found) -> None:
            needed = best(seen.neurons.importance(seen.hidden), density)
            scores = {SCAN: seen.x @ keys(seen.neurons).T, trained.STATIC: static.score(seen, block)}
            for way, score in scores.items():
                found[way].append(((best(score, density) & needed).sum() / needed.sum()).item())

        look_through(of.model, window[None], look)
        for way, blocks in found.items():
            by_way[way].append(round(fmean(blocks), 4))
    label = {"model": name, "density": density, "n_tokens": of.evaluation.numel()}
    return {"search_recall": [label | {"way": way, "recall": windows} for way, windows in by_way.items()]}


def best(score: Float[Tensor, "T F"], density: float) -> Bool[Tensor, "T F"]:
    """Mark the neurons of each token with the highest scores."""
    chosen = score.topk(n_kept(density, score.shape[1]), dim=1).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter(1, chosen, True)


def steps(sizes: Sizes) -> list[Step]:
    """List the one step, half a minute on an idle core."""
    return [Step("recall", partial(recall, sizes, GATED))]


EXPERIMENT = Experiment("Neurons found by a search", Sizes(), QUICK, steps)
