"""The exercise wanda.accumulate, "Norms over many batches": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _accumulate_cases(generator: torch.Generator) -> list[Case]:
    batch = torch.tensor([[[1.0, 2.0], [3.0, 0.0]], [[0.0, -2.0], [1.0, 1.0]]])
    return [
        Case("two sequences of two tokens, starting from (10, 20)", (torch.tensor([10.0, 20.0]), batch)),
        Case("starting from zero", (torch.zeros(7), torch.randn(3, 5, 7, generator=generator))),
        Case("one token", (torch.rand(6, generator=generator), torch.randn(1, 1, 6, generator=generator))),
        Case(
            "as many tokens as features",
            (torch.rand(4, generator=generator), torch.randn(4, 4, 4, generator=generator)),
        ),
    ]


def _library(total: Tensor, batch: Tensor) -> Tensor:
    from course_lib.pruning.layerwise.gram import Gram

    gram = Gram(len(total), needs="diagonal")
    gram.add(batch)
    return total + gram.diagonal


ACCUMULATE = Exercise(
    id="wanda.accumulate",
    title="Norms over many batches",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda total, batch: total + batch.square().sum(dim=(0, 1)),
    cases=_accumulate_cases,
    library=_library,
    mistakes=(
        Mistake(
            "norms added up",
            "Norms do not add: ‖(a, b)‖ is not ‖a‖ + ‖b‖. Add squares, and take one root at the very end.",
            lambda total, batch: total + batch.flatten(0, 1).norm(dim=0),
        ),
        Mistake(
            "root taken too early",
            "The root was taken inside. The next call would add squares to a root: keep the sum of squares, and take "
            "one root at the very end.",
            lambda total, batch: (total + batch.square().sum(dim=(0, 1))).sqrt(),
        ),
        Mistake(
            "a norm in place of the sum of squares",
            "The total was squared and the root taken again, as if it were a norm. It is a sum of squares: add to it "
            "as it is, and take one root at the very end.",
            lambda total, batch: (total.square() + batch.square().sum(dim=(0, 1))).sqrt(),
        ),
        Mistake(
            "total squared again",
            "The total holds squares already: add to it as it is.",
            lambda total, batch: total.square() + batch.square().sum(dim=(0, 1)),
        ),
        Mistake(
            "not squared",
            "The norm is a root of a sum of squares: square every entry before summing.",
            lambda total, batch: total + batch.sum(dim=(0, 1)),
            also=(lambda total, batch: total + batch.abs().sum(dim=(0, 1)),),
        ),
        Mistake(
            "squared after summing",
            "Positive and negative entries cancel in the sum. Square first, then sum.",
            lambda total, batch: total + batch.sum(dim=(0, 1)).square(),
        ),
        Mistake(
            "earlier batches forgotten",
            "The result is this batch alone. Add it to the running total.",
            lambda total, batch: batch.square().sum(dim=(0, 1)),
        ),
        Mistake(
            "one number for all",
            "All features got the same sum. One number is kept for each: sum over sequences and tokens alone.",
            lambda total, batch: total + batch.square().sum(),
        ),
        Mistake(
            "summed over the wrong axes",
            "The last axis holds the features and stays; the first two are sequences and tokens, and go.",
            lambda total, batch: total + batch.square().sum(dim=(1, 2)),
            also=(
                lambda total, batch: total + batch.square().sum(dim=(0, 2)),
                lambda total, batch: total + batch.square().sum(dim=0),
                lambda total, batch: total + batch.square().sum(dim=1),
                lambda total, batch: total + batch.square().sum(dim=2),
            ),
        ),
        Mistake(
            "largest instead of sum",
            "Only the largest token is counted. Sum over all of them.",
            lambda total, batch: total + batch.square().amax(dim=(0, 1)),
        ),
        Mistake(
            "mean over the batch",
            "A mean gives a short batch the weight of a long one. Sum over sequences and tokens.",
            lambda total, batch: total + batch.square().mean(dim=(0, 1)),
            also=(
                lambda total, batch: total + batch.square().mean(dim=0).sum(dim=0),
                lambda total, batch: total + batch.square().mean(dim=1).sum(dim=0),
            ),
        ),
        Mistake(
            "only some tokens",
            "Only one token of each sequence, or one sequence, is counted. Every token passes through the layer.",
            lambda total, batch: total + batch[:, -1].square().sum(dim=0),
            also=(
                lambda total, batch: total + batch[:, 0].square().sum(dim=0),
                lambda total, batch: total + batch[0].square().sum(dim=0),
                lambda total, batch: total + batch[-1].square().sum(dim=0),
            ),
        ),
    ),
    also_right=(
        Variant("flattened", lambda total, batch: total + (batch.reshape(-1, batch.shape[-1]) ** 2).sum(0)),
        Variant("in place", lambda total, batch: total.add_(batch.pow(2).sum((0, 1)))),
        Variant("einsum", lambda total, batch: total + torch.einsum("bti,bti->i", batch, batch)),
    ),
    hints=(
        "‖X_j‖² is a sum over tokens, so it can be built up batch by batch. ‖X_j‖ cannot.",
        "Square the batch, then sum over its first two axes.",
    ),
)
