"""VFlowOpt on the small model that sees and answers: accuracy by the fraction of visual tokens that its layers read.

Two tables. answers: a row per way of choosing, with the result of every question (1 right, 0 wrong), one question per
canvas, the same for all rows. settings: the result of calibration, on canvases that are not used for tests.
"""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity

from course_lib.attention.visual.baselines import AllAlike, AttentionReceived, EntropyAlone, RandomTokens
from course_lib.attention.visual.calibrate import Search, by_hand, calibrate, fitting, whole
from course_lib.attention.visual.canvas import NOTHING, Canvases, draw, question_ids
from course_lib.attention.visual.importance import Importance, TokenScore
from course_lib.attention.visual.model import N_TOKENS, SmallVLM
from course_lib.attention.visual.prune import Pruning, Seen, read, see
from course_lib.attention.visual.stages import Ratios
from course_lib.attention.visual.training import load
from course_lib.measure.experiment import Experiment, Step, Tables

ALL, METHOD, TOLD = "all tokens", "VFlowOpt", "told where digits are"
ALONE = {"attention alone": AttentionReceived(), "entropy alone": EntropyAlone()}
RANDOM = "random"


@dataclass(frozen=True)
class Sizes:
    """Fractions of the tokens, numbers of questions, and the calibration."""

    shares: tuple[float, ...] = (0.75, 0.5, 0.33, 0.25, 0.1)
    canvases: int = 1000
    calibration: int = 30  # canvases, as in the paper
    n_first: int = 12
    n_steps: int = 50
    calibrations: int = 2  # how often, each on other canvases and from other starting points
    draws: int = 3  # trials with random tokens


QUICK = Sizes((0.5, 0.1), canvases=6, calibration=3, n_first=3, n_steps=4, calibrations=2, draws=2)


def steps(sizes: Sizes) -> list[Step]:
    """List the steps: all tokens; then for each fraction the methods without search and one search; more searches."""
    plan = [Step(ALL, partial(dense, sizes))]
    for share in sizes.shares:
        plan.append(Step(f"simple, {share}", partial(simple, sizes, share)))
        plan.append(Step(f"calibrated, {share}, 0", partial(searched, sizes, share, 0)))
    further = [(number, share) for number in range(1, sizes.calibrations) for share in sizes.shares]
    return plan + [Step(f"calibrated, {share}, {n}", partial(searched, sizes, share, n)) for n, share in further]


@dataclass(frozen=True, eq=False)
class Given(TokenScore):
    """A score that uses the true positions of the digits, which no real rule has."""

    score: Float[Tensor, "B N"]

    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        return self.score


class Asked(NamedTuple):
    """Canvases, one question on each, and the model's outputs with all tokens."""

    model: SmallVLM
    canvases: Canvases
    seen: Seen
    words: Int[Tensor, "B W"]
    answers: Int[Tensor, "B"]
    last: Float[Tensor, "B C"]


@lru_cache(maxsize=2)
def asked(split: str, n: int, seed: int) -> Asked:
    """Return canvases with questions; each question is equally frequent, in turn."""
    model, canvases = load(), draw(n, split, seed)
    seen, which = see(model, canvases.images), torch.arange(n) % len(question_ids())
    words, answers = question_ids()[which], canvases.answers.gather(1, which[:, None])[:, 0]
    return Asked(model, canvases, seen, words, answers, whole(model, seen, words))


def tested(sizes: Sizes, seed: int) -> Asked:
    """Return the test set: digits outside of the training set, canvases outside of the calibration set."""
    return asked("test", sizes.canvases, seed + 100)


def answered(of: Asked, method: str, share: float, pruning: Pruning, **more: Any) -> dict[str, Any]:
    """Return a row: which questions are answered correctly, and the cosine with the vector from all tokens."""
    last = read(of.model, of.seen, of.words, pruning).last
    right = of.model.logits(last[:, None])[:, 0].argmax(dim=1) == of.answers
    kept = sum(pruning.ratios.counts(N_TOKENS)) / (3 * N_TOKENS)
    row = {"method": method, "share": share, **more, "kept": round(kept, 4), "n": len(right)}
    row |= {"accuracy": right.float().mean().item(), "right": "".join(str(int(each)) for each in right)}
    return row | {"cosine": round(cosine_similarity(last, of.last, dim=1).mean().item(), 5)}


def dense(sizes: Sizes, seed: int) -> Tables:
    """Measure without pruning."""
    return {"answers": [answered(tested(sizes, seed), ALL, 1.0, Pruning(AttentionReceived(), Ratios()))]}


def simple(sizes: Sizes, share: float, seed: int) -> Tables:
    """Measure one stage without recycling, settings by hand, and an oracle that has the positions of the digits."""
    of, ratios = tested(sizes, seed), Ratios(first=share)
    rows = [answered(of, name, share, Pruning(score, ratios)) for name, score in ALONE.items()]
    rows += [answered(of, RANDOM, share, Pruning(RandomTokens(draw), ratios), draw=draw) for draw in range(sizes.draws)]
    told = Given((of.canvases.belongs < NOTHING).float())
    rows.append(answered(of, TOLD, share, Pruning(told, ratios)))
    return {"answers": [*rows, answered(of, "settings by hand", share, by_hand(share))]}


def searched(sizes: Sizes, share: float, number: int, seed: int) -> Tables:
    """Search for settings; with the first ones, also measure them without one part at a time."""
    of = asked("train", sizes.calibration, seed + 1000 + number)
    search = Search(mean=share, n_first=sizes.n_first, n_steps=sizes.n_steps)
    found = calibrate(of.model, of.seen, of.words, search, seed + number)
    label = {"share": share, "calibration": number}
    values = [round(trial.value, 5) for trial in found.trials]
    settings = label | described(found.pruning) | {"cosine": round(found.cosine, 5), "tried": values}
    ways = {METHOD: found.pruning} | (without(found.pruning, share) if number == 0 else {})
    on = tested(sizes, seed)
    rows = [answered(on, name, share, pruning, calibration=number) for name, pruning in ways.items()]
    return {"answers": rows, "settings": [settings]}


def without(pruning: Pruning, share: float) -> dict[str, Pruning]:
    """Return the settings without one part each."""
    one_stage = Ratios(first=share)
    return {
        "without recycling": replace(pruning, side=None),
        "without stages": replace(pruning, ratios=one_stage, side=fitting((pruning.side, 4, 6, 12), one_stage)[0]),
        "without entropy": replace(pruning, score=replace(pruning.score, alpha=0.0)),
        "without attention": replace(pruning, score=EntropyAlone()),
        "without a score": replace(pruning, score=AllAlike()),
    }


def described(pruning: Pruning) -> dict[str, Any]:
    """Return settings in the form of a row, which `pruning_of` reads."""
    first, second, third = (round(ratio, 6) for ratio in pruning.ratios.each)
    score = {name: round(value, 6) for name, value in asdict(pruning.score).items()}
    return score | {"first": first, "second": second, "third": third, "side": pruning.side}


def pruning_of(row: dict[str, Any]) -> Pruning:
    """Return the settings in a row of the table settings."""
    ratios = Ratios(row["first"], row["second"], row["third"])
    return Pruning(Importance(row["t"], row["alpha"]), ratios, row["side"])


EXPERIMENT = Experiment("Visual tokens pruned by VFlowOpt", Sizes(), QUICK, steps)
