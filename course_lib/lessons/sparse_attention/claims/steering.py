"""AutoPASTA: does steering help to answer, does the model find the sentence, and do the controls do as well?"""

from statistics import fmean

from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.tables import Measured, percent
from course_lib.lessons.common.verdicts import Effect, claim, of_samples, said
from course_lib.lessons.sparse_attention.claims import rows as found
from course_lib.lessons.sparse_attention.experiments.experiment_steering import (
    ALL,
    ALL_SINK,
    CHOSEN,
    LAYER,
    NAMED,
    NO_HEADS,
    NOTHING,
    PROMPTED,
    RANDOM,
    TRUE,
    WHOLE,
    further,
)
from course_lib.lessons.sparse_attention.measuring.items import READING, RESIDENTS
from course_lib.lessons.sparse_attention.measuring.steering_sets import Sizes
from course_lib.measure.paired import error_of_share

Condition = tuple[str, str]  # which heads, what is steered


def results() -> Measured:
    """The committed measurement of `course reproduce steering`, and of `sparse_attention_further` where that is."""
    return found.joined("experiments/steering", "experiments/sparse_attention_further")


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    tried = {row["part"]: row["tried"] for row in measured["tables"]["gate"]}
    amounts = f"{sizes['tested']} questions of each kind, {sizes['developed']} others to choose heads, α = "
    amounts += f"{sizes['alpha']}; {tried['test']} residents were tried for those that the key sentence alone answers"
    return found.provenance(measured, amounts, further(Sizes()))


def condition(measured: Measured, data: str, heads: str, what: str) -> Row | None:
    """One row of the answers; None where that was not asked of these questions."""
    return found.one(measured, "answers", data=data, heads=heads, steered=what)


def answers(measured: Measured, data: str = RESIDENTS) -> str:
    """Accuracy and log-probability of each condition, and what steering is worth beside its controls."""
    every = found.some(measured, "answers", data=data)
    if not every:
        return claim(f"{data}: steered to the key sentence it answers better", [])
    chance = percent(every[0]["chance"])
    lines = [f"{f'{data}: heads':<30}{'steered or told':<18}{'right':>8}{'log-probability':>17}   (chance {chance})"]
    for row in every:
        share, likely = percent(row["accuracy"]), fmean(row["log_probability"])
        lines.append(f"{row['heads']:<30}{row['steered']:<18}{share:>8}{likely:>17.2f}")
    for text, (better, worse) in _compared(data).items():
        pair = (condition(measured, data, *better), condition(measured, data, *worse))
        lines += _judged(text, *pair) if all(pair) else []
    return "\n".join(lines)


def _compared(data: str) -> dict[str, tuple[Condition, Condition]]:
    """What each claim compares."""
    plain = (NO_HEADS, NOTHING)
    both = {
        "told the key sentence it answers better": ((PROMPTED, TRUE), plain),
        "steered to it with all heads, it answers better": ((ALL, TRUE), plain),
        "steered to it with the chosen heads, it answers better": ((CHOSEN, TRUE), plain),
        "steering to it is better than telling it": ((CHOSEN, TRUE), (PROMPTED, TRUE)),
        "the key sentence is better to steer to than a random one": ((CHOSEN, TRUE), (CHOSEN, RANDOM)),
        "and than the whole context": ((CHOSEN, TRUE), (CHOSEN, WHOLE)),
        "steered to the sentence that it named itself, it answers better": ((CHOSEN, NAMED), plain),
    }
    if data == READING:
        return both
    return both | {
        "chosen heads are better than all": ((CHOSEN, TRUE), (ALL, TRUE)),
        "chosen heads are better than the best layer": ((CHOSEN, TRUE), (LAYER, TRUE)),
        "with all heads it is better to spare the first token": ((ALL, TRUE), (ALL_SINK, TRUE)),
    }


def _judged(text: str, better: Row, worse: Row) -> list[str]:
    """By right answers, and by the log-probability of the answer."""
    right = accuracy_gap(better, worse)
    pairs = zip(better["log_probability"], worse["log_probability"], strict=True)
    likely = of_samples([one - other for one, other in pairs])
    return [
        claim(f"{text} (right answers, {said(right, 2)})", right, larger_models=True),
        claim(f"{text} (log-probability, {said(likely, 2)})", likely, larger_models=True),
    ]


def reading(measured: Measured) -> str:
    """The same on SciQ with its supporting text."""
    return answers(measured, READING)


def named(measured: Measured) -> str:
    """How often the sentence that the model names is the key, against any sentence at random."""
    lines, effects = [], []
    for row in found.some(measured, "named"):
        chance = fmean(1 / n for n in row["sentences"])
        n_right = row["right"].count("1")
        lines.append(f"{row['data']}: the key sentence in {n_right} of {row['n']}; at random {percent(chance)}")
        first = sum(place == 0 for place in row["place"])
        lines.append(f"    the first sentence of the text in {first} of {row['n']}")
        effects.append(Effect(value=n_right / row["n"] - chance, error=error_of_share(n_right, row["n"]), n=row["n"]))
    lines.append(claim("the model names the key sentence more often than at random", effects, larger_models=True))
    return "\n".join(lines)


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


def whole_layers(measured: Measured) -> list[Row]:
    """Of the search: what steering each layer with all of its heads is worth."""
    return [row for row in measured["tables"]["search"] if row["what"].startswith("layer ") and "," not in row["what"]]
