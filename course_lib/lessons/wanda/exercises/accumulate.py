"""The exercise wanda.accumulate, "Norms over many batches": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("flattened", lambda total, batch: total + (batch.reshape(-1, batch.shape[-1]) ** 2).sum(0)),
        Variant("in place", lambda total, batch: total.add_(batch.pow(2).sum((0, 1)))),
        Variant("einsum", lambda total, batch: total + torch.einsum("bti,bti->i", batch, batch)),
    ),
    hints=(
        "‖X_j‖² is a sum over tokens, so you can build it up batch by batch. ‖X_j‖ is not a sum.",
        "Which of the three axes of the batch, (B, T, I), count tokens? The result keeps only the other one.",
    ),
)
