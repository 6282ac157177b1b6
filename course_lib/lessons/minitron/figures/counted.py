"""Claims of lesson 05 that are counted or timed: the parameters of published shapes, and cut models on a clock."""

import math
from typing import Any

from course_lib.lessons.common.effects import of_repetitions
from course_lib.lessons.common.tables import load_bench, load_published, rows
from course_lib.lessons.common.verdicts import Effect, verdict
from course_lib.pruning.structured.shape import Shape, count

AGREE = 0.01  # of the parameters: what rounding to two digits leaves


def shapes_verdict(published: dict[str, Any] | None = None) -> str:
    """Whether the published shapes have the parameters that are printed beside them."""
    effects = []
    for row in rows(published or load_published("minitron"), "shapes"):
        shape = Shape(**{key: row[key] for key in ("width", "blocks", "neurons", "heads", "groups")})
        n = sum(count(shape, vocabulary=256_000, head_size=128, mlp_matrices=2, tied=False).values())
        effects.append(Effect(value=AGREE - abs(math.log(n / 1e9 / row["billions"])), error=0.0))
    return f"Claim: the shapes have the printed parameters within {100 * AGREE:.0f} %: {verdict(effects)}"


def speed_verdict(bench: dict[str, Any] | None = None) -> str:
    """Whether each cut model is faster than the whole one, by dense kernels alone."""
    sides = (bench or load_bench("cpu_structured"))["tables"]["sides"]
    effects = [of_repetitions(row) for row in sides if row["side"] != row["anchor"]]
    return f"Claim: a model that was cut is faster without kernels of its own: {verdict(effects)}"
