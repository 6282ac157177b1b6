"""Tables and verdicts from what `course reproduce moe_classic` measured: vowels, trees by EM, experts between LSTMs."""

from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_count, of_samples, verdict

Row = dict[str, Any]

MIXTURE, BLENDED = "4 experts, mixture", "4 experts, cooperative"
PERCEPTRONS = ("perceptron, 6 hidden", "perceptron, 12 hidden")


def vowels(measured: Measured) -> Table:
    """For each learner: accuracy on new speakers, with the likeliest expert alone, experts in use, and epochs."""
    frame = []
    for name in dict.fromkeys(row["learner"] for row in rows(measured, "vowels")):
        found = rows(measured, "vowels", learner=name)
        row = {"learner": name}
        for key, heading in VOWELS.items():
            row |= _mean_and_deviation(heading, [each[key] for each in found])
        n_reached = sum(each["epochs_to_90"] is not None for each in found)
        frame.append(row | {"runs that reach 90 %": n_reached, "runs": len(found)})
    accuracies = [(heading, f"{heading}: deviation") for heading in list(VOWELS.values())[:2]]
    return Table(
        frame,
        caption="Classifying vowels",
        formats=dict.fromkeys(accuracies, plus_minus(1, scale=100))
        | {
            ("experts used", "experts used: deviation"): plus_minus(1),
            ("epochs to 90 %", "epochs to 90 %: deviation"): plus_minus(0),
            ("runs that reach 90 %", "runs"): "{} of {}".format,
        },
        note=f"Mean ± standard deviation over {len(found)} seeds; epochs of training; a dash where a run does not "
        "reach 90 % or has no experts.",
    )


VOWELS = {  # column of the result: heading
    "accuracy": "accuracy (%)",
    "likeliest_accuracy": "accuracy of one expert (%)",
    "experts_used": "experts used",
    "epochs_to_90": "epochs to 90 %",
}


def _mean_and_deviation(heading: str, values: list[Any]) -> dict[str, float | None]:
    """Two columns; empty where a value is missing."""
    mean, deviation = (None, None) if None in values else (fmean(values), stdev(values))
    return {heading: mean, f"{heading}: deviation": deviation}


def _beside(measured: Measured, key: str, name: str, other: str) -> Effect:
    """By how much `name` is above `other`, start by start."""
    mine, theirs = (
        {row["seed"]: row[key] for row in rows(measured, "vowels", learner=which)} for which in (name, other)
    )
    return of_samples([float(mine[seed] - theirs[seed]) for seed in mine])


def vowel_claims(measured: Measured) -> str:
    """What competition is good for, and how soon a mixture learns."""
    alone = _beside(measured, "likeliest_accuracy", MIXTURE, BLENDED)
    sooner = [_beside(measured, "epochs_to_90", other, MIXTURE) for other in PERCEPTRONS]
    later = _beside(measured, "epochs_to_90", MIXTURE, BLENDED)
    return "\n".join(
        (
            f"The likeliest expert alone: {100 * alone.value:+.1f} ± {100 * alone.error:.1f} points.",
            f"    Claim: experts of the mixture error can be used alone, blended ones cannot: {verdict(alone)}",
            f"Epochs saved: {', '.join(f'{each.value:.0f} ± {each.error:.0f}' for each in sooner)}.",
            f"    Claim: a mixture of four learns sooner than perceptrons of 6 and 12: {verdict(sooner)}",
            f"Epochs beside the blended error: {later.value:+.0f} ± {later.error:.0f}.",
            f"    Claim: the blended error learns sooner still: {verdict(later)}",
        )
    )


def arms_table(measured: Measured) -> Table:
    """For trees of each depth: the error before and after EM."""
    frame = []
    for depth in dict.fromkeys(row["depth"] for row in rows(measured, "arm")):
        found = rows(measured, "arm", depth=depth)
        first, last = (fmean(row["error"][place] for row in found) for place in (0, -1))
        frame.append({"depth": depth, "error before EM": first, "error after EM": last})
    return Table(
        frame,
        caption="Trees of experts for the robot arm, by depth",
        formats=dict.fromkeys(("error before EM", "error after EM"), number(3)),
    )


def arms(measured: Measured) -> str:
    """Whether a step of EM ever lowers the likelihood."""
    climbing = [row["log_likelihood"] for row in rows(measured, "arm") if row["log_likelihood"]]
    n_rising = sum(_rises(climb) for climb in climbing)
    never = verdict(of_count(n_rising, len(climbing), more_than=1 - 0.5 / len(climbing)))
    return f"Claim: no step of EM lowers the likelihood ({len(climbing)} runs): {never}"


def _rises(climb: list[float]) -> bool:
    slack = 1e-9 * max(map(abs, climb))  # of rounding
    return all(after >= before - slack for before, after in pairwise(climb))


def recurrent(measured: Measured) -> str:
    """By how many nats a byte experts between two LSTMs are below as many neurons that are dense; a case a seed."""
    dense, *others = dict.fromkeys(row["model"] for row in rows(measured, "recurrent"))
    lines = []
    for name in others:
        effects = []
        for row in rows(measured, "recurrent", model=name):
            (plain,) = rows(measured, "recurrent", model=dense, seed=row["seed"])
            effects.append(of_samples([high - low for low, high in zip(row["losses"], plain["losses"], strict=True)]))
        said = ", ".join(f"{effect.value:+.3f} ± {effect.error:.3f}" for effect in effects)
        lines += [
            f"{name}: {said} nats a byte below {dense}",
            f"    Claim: {name} between two LSTMs read better: {verdict(effects)}",
        ]
    return "\n".join(lines)
