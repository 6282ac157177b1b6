"""Tables and verdicts from what `course reproduce moe_classic` measured: vowels, trees by EM, experts between LSTMs."""

from statistics import fmean, stdev
from typing import Any

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.moe import claims

Row = dict[str, Any]


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


def vowel_claims(measured: Measured) -> str:
    """What competition is good for, and how soon a mixture learns."""
    return report((claims.VOWELS_ALONE, claims.VOWELS_SOONER, claims.VOWELS_BLENDED), measured)


def arms(measured: Measured) -> str:
    """Of trees of each depth: the error before and after EM, and whether the likelihood ever fell."""
    lines = [f"{'depth':<8}{'error before':>14}{'after':>9}"]
    for depth in dict.fromkeys(row["depth"] for row in rows(measured, "arm")):
        found = rows(measured, "arm", depth=depth)
        first, last = (fmean(row["error"][place] for row in found) for place in (0, -1))
        lines.append(f"{depth:<8}{first:>14.3f}{last:>9.3f}")
    return "\n".join([*lines, str(claims.EM_CLIMBS.judge(measured))])


def recurrent(measured: Measured) -> str:
    """Experts between two LSTMs compared with as many neurons that are dense."""
    return report((claims.RECURRENT, claims.RECURRENT_BALANCED), measured)
