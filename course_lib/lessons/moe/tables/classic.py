"""Tables and verdicts from what `course reproduce moe_classic` measured: vowels, trees by EM, experts between LSTMs."""

from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_count, of_samples, verdict

Row = dict[str, Any]

MIXTURE, BLENDED = "4 experts, mixture", "4 experts, cooperative"
PERCEPTRONS = ("perceptron, 6 hidden", "perceptron, 12 hidden")


def vowels(measured: Measured) -> str:
    """Of every learner: accuracy on new speakers, by the likeliest expert alone, experts in use, and epochs."""
    lines = [f"{'learner':<26}{'accuracy, %':>13}{'by one expert':>16}{'experts used':>14}{'epochs to 90 %':>18}"]
    for name in dict.fromkeys(row["learner"] for row in rows(measured, "vowels")):
        found = rows(measured, "vowels", learner=name)
        cells = [_spread(found, "accuracy", 100, 1), _spread(found, "likeliest_accuracy", 100, 1)]
        cells += [_spread(found, "experts_used", 1, 1), _spread(found, "epochs_to_90", 1, 0)]
        lines.append(f"{name:<26}{cells[0]:>13}{cells[1]:>16}{cells[2]:>14}{cells[3]:>18}")
    return "\n".join(lines) + f"\nMean ± standard deviation of {len(found)} starts; the epochs are those in training."


def _spread(found: list[Row], key: str, times: int, digits: int) -> str:
    values = [times * row[key] for row in found if row[key] is not None]
    if len(values) < len(found):
        return f"in {len(values)} of {len(found)}" if values else ""
    return f"{fmean(values):.{digits}f} ± {stdev(values):.{digits}f}"


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


def arms(measured: Measured) -> str:
    """Of trees of each depth: the error before and after EM, and whether the likelihood ever fell."""
    lines = [f"{'depth':<8}{'error before':>14}{'after':>9}"]
    climbing = [row["log_likelihood"] for row in rows(measured, "arm") if row["log_likelihood"]]
    for depth in dict.fromkeys(row["depth"] for row in rows(measured, "arm")):
        found = rows(measured, "arm", depth=depth)
        first, last = (fmean(row["error"][place] for row in found) for place in (0, -1))
        lines.append(f"{depth:<8}{first:>14.3f}{last:>9.3f}")
    n_rising = sum(_rises(climb) for climb in climbing)
    never = verdict(of_count(n_rising, len(climbing), more_than=1 - 0.5 / len(climbing)))
    return "\n".join(lines) + f"\nClaim: no step of EM lowers the likelihood ({len(climbing)} runs): {never}"


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
