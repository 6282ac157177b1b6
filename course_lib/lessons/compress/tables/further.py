"""A claim of lesson 10 on prompts of both kinds: learned vectors beside written words."""

from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import Effect, claim
from course_lib.lessons.compress.tables import found
from course_lib.prompts.compressed.store import DENSE


def written(measured: Measured) -> str:
    """By compressed model and sentence: how much better a model reads behind its own vectors than behind the words."""
    effects: list[Effect] = []
    for row in found.some(measured, "words"):
        own = found.one(measured, "own", model=row["model"])
        if own and row["model"] != DENSE and not row["prompt"].startswith("lot"):
            effects.append(found.wins(own, row))
    return claim("a learned prompt is better than the authors' sentences", effects)
