"""The exercise classic.obd_saliency, "OBD's saliency"; its named mistakes are in obd_saliency.md."""

import torch

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.classic.exercises.common import vector
from course_lib.lessons.common.answers import compare_bars

OBD_SALIENCY = Exercise(
    id="classic.obd_saliency",
    title="OBD's saliency",
    difficulty=1,
    minutes=4,
    points=2,
    reference=lambda weight, diagonal: 0.5 * diagonal * weight.square(),
    cases=lambda generator: [
        Case("two weights by hand", (vector(0.2, -0.3), vector(4.0, 1.0))),
        Case("ten weights", (randn(generator, 10), randn(generator, 10).square())),
        Case("some curvatures are negative", (randn(generator, 8), vector(*[(-1.0) ** i for i in range(8)]))),
        Case("a weight that is zero already", (vector(1.0, 0.0, 2.0), vector(1.0, 5.0, 0.5))),
    ],
    picture=lambda case, got, expected: compare_bars(
        got, expected, tuple(str(k) for k in range(len(expected))), "rise of the error when the weight is deleted"
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("in place", lambda w, h: w.square_().mul_(h).div_(2)),
        Variant("a loop", lambda w, h: torch.stack([h_k * w_k * w_k / 2 for w_k, h_k in zip(w, h, strict=True)])),
    ),
    hints=(
        "Insert the change for one deletion, −w_k in component k and zero elsewhere, into ½ δᵀHδ with a diagonal H.",
        "With a diagonal Hessian only one product remains: ½ h_k w_k².",
    ),
)
