"""Does the order of shapes right after the cut tell the order after a few steps of distillation?"""

from collections.abc import Sequence
from dataclasses import asdict, replace

from course_lib.attention.small_models.byte_model import byte_windows, load_byte_model
from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import BEST, evaluation, evidence, scores, text
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.search import Ranking, candidates, search
from course_lib.pruning.structured.shape import n_parameters, shape_of

BYTES, BYTE_BUDGET = "byte model", 0.76  # of its parameters


def of_bytes(sizes: Sizes, seed: int) -> Tables:
    """The nearest candidates of three quarters of the byte model."""
    model, held_out, training = load_byte_model(sizes.byte_evaluation)
    found = Evidence(model, byte_windows(64, "calibration", seed=1), progress=False)
    budget = int(BYTE_BUDGET * n_parameters(model, shape_of(model)))
    shapes = candidates(model, budget)[: sizes.byte_candidates]
    scored = Minitron("l2", "l2").score(found) | BlockInfluence().score(found)
    schedule = Schedule(sizes.search_steps, 16, training.shape[1], 1e-3, 2, decay=0.01)
    recipe = Recipe(schedule=schedule, seed=seed)
    return tables(BYTES, sizes, search(model, shapes, scored, held_out, training, recipe, progress=False))


def of_model(sizes: Sizes, seed: int) -> Tables:
    """Four shapes of one size, one for each axis that can be cut."""
    model, _ = loaded(sizes.model)
    now = shape_of(model)
    shapes = [replace(now, **dict(changes)) for changes in sizes.searched]
    scored = scores(sizes, seed, "activations", BEST) | BlockInfluence().score(evidence(sizes, seed))
    held_out = evaluation(sizes, seed)[: sizes.search_evaluation]
    schedule = Schedule(sizes.search_steps, sizes.batch, sizes.text_length, sizes.rate, sizes.warm_up, decay=0.01)
    recipe = Recipe(schedule=schedule, seed=seed)
    return tables(sizes.model, sizes, search(model, shapes, scored, held_out, text(sizes, seed), recipe, False))


def tables(name: str, sizes: Sizes, ranking: Ranking) -> Tables:
    """A row a candidate, and one of both orders."""
    rows = []
    for index, shape in enumerate(ranking.shapes):
        row = {"model": name} | asdict(shape) | {"parameters": ranking.parameters[index]}
        for when, losses, order in (
            ("before", ranking.before[index], ranking.order_before),
            ("after", ranking.after[index], ranking.order_after),
        ):
            row |= {when: losses.mean().item(), f"rank_{when}": order.index(index)}
            row |= {f"losses_{when}": rounded(losses.tolist())}
        rows.append(row)
    order = {"model": name, "n": len(rows), "steps": sizes.search_steps, "tau": ranking.tau}
    order |= {"agrees": ranking.agrees, "best_before": ranking.order_before[0], "best_after": ranking.order_after[0]}
    return {"search": rows, "search_order": [order]}


def rounded(losses: Sequence[float]) -> list[float]:
    return [round(loss, 5) for loss in losses]
