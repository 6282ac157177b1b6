"""Tables and verdicts from what `course reproduce moe_classic` measured: vowels, trees by EM, experts between LSTMs."""

from statistics import fmean, stdev
from typing import Any

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.moe import claims

Row = dict[str, Any]


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


def vowel_claims(measured: Measured) -> str:
    """What competition is good for, and how soon a mixture learns."""
    return report((claims.VOWELS_ALONE, claims.VOWELS_SOONER, claims.VOWELS_BLENDED), measured)


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
    return str(claims.EM_CLIMBS.judge(measured))


def recurrent(measured: Measured) -> str:
    """Experts between two LSTMs compared with as many neurons that are dense."""
    return report((claims.RECURRENT, claims.RECURRENT_BALANCED), measured)
