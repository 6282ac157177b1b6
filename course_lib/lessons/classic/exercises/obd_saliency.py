"""The exercise classic.obd_saliency, "OBD's saliency": its cases and its named mistakes."""

import torch

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
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
        Case("curvatures of which some are negative", (randn(generator, 8), vector(*[(-1.0) ** i for i in range(8)]))),
        Case("a weight that is zero already", (vector(1.0, 0.0, 2.0), vector(1.0, 5.0, 0.5))),
    ],
    picture=lambda case, got, expected: compare_bars(
        got, expected, tuple(str(k) for k in range(len(expected))), "rise of the error when it is deleted"
    ),
    mistakes=(
        Mistake(
            "half forgotten",
            "The order is right, but each number is twice what the deletion costs: the Taylor term carries ½.",
            lambda w, h: h * w.square(),
        ),
        Mistake(
            "weight not squared",
            "A deletion moves the weight by −w, and the term is quadratic in the move: w².",
            lambda w, h: 0.5 * h * w.abs(),
            also=(lambda w, h: h * w.abs(), lambda w, h: 0.5 * h * w, lambda w, h: h * w),
        ),
        Mistake(
            "magnitude alone",
            "The curvature is unused: this ranks like magnitude pruning.",
            lambda w, h: 0.5 * w.square(),
            also=(lambda w, h: w.abs(), lambda w, h: w.square()),
        ),
        Mistake(
            "curvature made positive",
            "Where the error bends down, deleting makes it fall, to second order. Keep the sign of h.",
            lambda w, h: 0.5 * h.abs() * w.square(),
            also=(lambda w, h: 0.5 * h.clamp(min=0) * w.square(),),
        ),
        Mistake(
            "curvature squared",
            "The curvature enters once: ½ h w². Squaring h w squares it as well.",
            lambda w, h: 0.5 * (h * w).square(),
            also=(lambda w, h: (h * w).square(),),
        ),
        Mistake(
            "root of the cost",
            "The root orders positive costs alike, but it is no cost, and where the curvature is negative it has none.",
            lambda w, h: (0.5 * h * w.square()).abs().sqrt(),
            also=(lambda w, h: (0.5 * h * w.square()).sqrt(), lambda w, h: w.abs() * h.abs().sqrt()),
        ),
        Mistake(
            "added up",
            "This is the cost of deleting all of them. Return one number for each weight.",
            lambda w, h: (0.5 * h * w.square()).sum(),
            also=(lambda w, h: 0.5 * w @ torch.diag(h) @ w,),
        ),
        Mistake(
            "a share of the whole",
            "Divided by the sum the costs keep their order, but they no longer say by how much the error rises.",
            lambda w, h: h * w.square() / (h * w.square()).sum(),
        ),
        Mistake(
            "sign reversed",
            "The error rises by + ½ h w²: the change is −w, and it is squared.",
            lambda w, h: -0.5 * h * w.square(),
        ),
        Mistake(
            "a quarter",
            "The ½ was taken inside the square, where it counts twice: ½ · w², not (½ · w)².",
            lambda w, h: h * (0.5 * w).square(),
            also=(lambda w, h: 0.5 * h * (0.5 * w).square(),),
        ),
        Mistake(
            "divided by the curvature",
            "A flat direction (small h) is cheap to move along, so the saliency must grow with h.",
            lambda w, h: 0.5 * w.square() / h,
            also=(lambda w, h: w.square() / (h + 1e-8) / 2,),
        ),
    ),
    also_right=(
        Variant("in place", lambda w, h: w.square_().mul_(h).div_(2)),
        Variant("a loop", lambda w, h: torch.stack([h_k * w_k * w_k / 2 for w_k, h_k in zip(w, h, strict=True)])),
    ),
    hints=(
        "Put the change of one deletion, −w_k at place k and zero elsewhere, into ½ δᵀHδ with a diagonal H.",
        "With a diagonal Hessian one product is left: ½ h_k w_k².",
    ),
)
