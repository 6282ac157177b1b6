"""AutoPASTA: does steering help to answer, does the model find the sentence, and do the controls do as well?"""

import textwrap
from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import COLUMNS, Measured, percent
from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates import rows as found
from course_lib.lessons.sparse_attention.estimates.steering import chance_of_key, whole_layers
from course_lib.lessons.sparse_attention.experiments.experiment_steering import further
from course_lib.lessons.sparse_attention.measuring.items import READING, RESIDENTS
from course_lib.lessons.sparse_attention.measuring.steering_sets import Sizes


def results() -> Measured:
    """The committed measurement of `course reproduce steering`, and of `sparse_attention_further` where that is."""
    return found.load_joined("experiments/steering", "experiments/sparse_attention_further")


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    tried = {row["part"]: row["tried"] for row in measured["tables"]["gate"]}
    amounts = f"{sizes['tested']} questions of each kind, {sizes['developed']} others to choose heads, α = "
    amounts += f"{sizes['alpha']}; {tried['test']} residents were tried for those that the key sentence alone answers"
    return found.provenance(measured, amounts, further(Sizes()))


def answers(measured: Measured, data: str = RESIDENTS) -> str:
    """Accuracy and log-probability of each condition, and what steering is worth beside its controls."""
    every = found.some(measured, "answers", data=data)
    if not every:
        return str(claims.ANSWER_CLAIMS[data][0][0].judge(measured))
    chance = percent(every[0]["chance"])
    lines = [f"{f'{data}: heads':<30}{'steered or told':<18}{'right':>8}{'log-probability':>17}   (chance {chance})"]
    for row in every:
        share, likely = percent(row["accuracy"]), fmean(row["log_probability"])
        lines.append(f"{row['heads']:<30}{row['steered']:<18}{share:>8}{likely:>17.2f}")
    for pair in claims.ANSWER_CLAIMS[data]:
        right, likely = (claim.judge(measured) for claim in pair)
        if right.effects:
            lines.append(f"Claim: {right.claim.text}")
            lines.append(_wrapped(f"    Here, right answers: {right.ours}. Verdict: {right.words}"))
            lines.append(_wrapped(f"    Here, log-probability: {likely.ours}. Verdict: {likely.words}"))
    return "\n".join(lines)


def _wrapped(line: str) -> str:
    return textwrap.fill(line, COLUMNS, subsequent_indent=" " * 8)


def reading(measured: Measured) -> str:
    """The same on SciQ with its supporting text."""
    return answers(measured, READING)


def named(measured: Measured) -> str:
    """How often the sentence that the model names is the key, against any sentence at random."""
    lines = []
    for row in found.some(measured, "named"):
        n_right, chance = row["right"].count("1"), percent(chance_of_key(row))
        lines.append(f"{row['data']}: the key sentence in {n_right} of {row['n']}; at random {chance}")
        first = sum(place == 0 for place in row["place"])
        lines.append(f"    the first sentence of the text in {first} of {row['n']}")
    return "\n".join([*lines, report([claims.NAMES_THE_KEY], measured)])


def searched(measured: Measured) -> str:
    """What the search tried, and what it chose."""
    tried = measured["tables"]["search"]
    layers = sorted(whole_layers(measured), key=lambda row: -row["log_probability"])
    sets = [row for row in tried if "heads" in row]
    lines = [f"{'steered':<24}{'log-probability of the right answer (development set)':>56}"]
    for row in [tried[0], *layers[:3], *sets]:
        mark = "  chosen" if row.get("chosen") else ""
        lines.append(f"{row['what']:<24}{row['log_probability']:>56.2f}{mark}")
    return "\n".join(lines)
