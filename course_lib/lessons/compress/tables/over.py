"""Tables and verdicts on what goes over: a prompt of one model on another, on another text, and words for prompts."""

import math
from collections.abc import Callable

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.claims import on_other_text, sources, targets
from course_lib.lessons.compress.found import called, shown
from course_lib.prompts.compressed.store import DENSE
from course_lib.prompts.transfer import Ratio


def moved_table(measured: Measured) -> Table:
    """Ratios of perplexities with prompts of other models; rows: where it was learned, columns: where it is used."""
    return _matrix(
        measured,
        lambda source, to: _ratio(measured, source, to),
        caption="Ratio of perplexities: rows say where a prompt was learned, columns where it is used",
        note="± one standard error. A dash: not measured.",
    )


def shares_table(measured: Measured) -> Table:
    """The fractions of the own prompt's gain beyond the dense model's that another model's prompt brings."""
    return _matrix(
        measured,
        lambda source, to: None if to == DENSE else found.share(measured, source, to),
        caption="Fraction of the own prompt's gain, beyond the dense model's gain, that another prompt brings",
        note="± one standard error. A dash: not measured, or there is no gain to share.",
    )


def moved(measured: Measured) -> str:
    """What transfers from one model's prompt to another model."""
    return report((claims.MOVES, claims.HALF_TRANSFERS, claims.BETTER_TEACHER), measured)


def _ratio(measured: Measured, source: str, to: str) -> Ratio | None:
    alone, row = found.one(measured, "models", model=to), found.moved(measured, source, to)
    return found.ratio(row, alone) if row and alone else None


def _matrix(measured: Measured, cell: Callable[[str, str], Ratio | None], caption: str, note: str) -> Table:
    """A row per source, a column per target; a ratio that is not finite is missing."""
    frame, names = [], targets(measured)
    for source in sources(measured):
        frame.append({"learned on": called(source)})
        for to in names:
            ratio = cell(source, to)
            is_known = ratio is not None and math.isfinite(ratio.value)
            frame[-1] |= {short(to): ratio.value if is_known else None}
            frame[-1] |= {f"{short(to)}: error": ratio.standard_error if is_known else None}
    formats = {(short(to), f"{short(to)}: error"): plus_minus(2) for to in names}
    return Table(frame, caption=caption, formats=formats, note=note)


def short(name: str) -> str:
    """For the head of a narrow column."""
    return called(name).replace("SparseGPT 50 % and 4 bits", "50 %, 4 bits").replace("Minitron's cut", "cut")


def other_text_table(measured: Measured) -> Table:
    """Prompts learned on Wikipedia, on paragraphs of another collection."""
    frame, control = [], on_other_text(measured, DENSE)
    for name in found.models(measured):
        if pair := on_other_text(measured, name):
            more = found.more_than(pair, control) if control and name != DENSE else None
            frame.append({"model": called(name)} | found.gain_columns(pair, more))
    return Table(
        frame,
        caption="On other text: perplexity alone and with a prompt of its own",
        formats=found.GAIN_FORMATS,
        note="± one standard error over the windows.",
    )


def other_text(measured: Measured) -> str:
    """Whether prompts learned on Wikipedia help on another collection, and more than the dense model's there."""
    return report((claims.OTHER_TEXT, claims.BEYOND_ON_OTHER_TEXT), measured)


def sentences_table(measured: Measured) -> Table:
    """The authors' sentences in front of every text: nats per token that each gains, by model."""
    frame = []
    for name, alone, real, random in _sentences(measured):
        effects = {which: found.wins(row, alone) for which, row in real.items()}
        effects["random tokens"] = found.wins(random, alone)
        frame.append({"model": called(name), "alone": alone["perplexity"]})
        for which, effect in effects.items():
            frame[-1] |= {which: effect.value, f"{which}: error": effect.error}
    headings = [which for which in frame[0] if f"{which}: error" in frame[0]] if frame else []
    return Table(
        frame,
        caption="Nats per token that a sentence before the text gains",
        formats={(which, f"{which}: error"): plus_minus(3, sign=True) for which in headings} | {"alone": shown},
        note="alone: perplexity without a sentence. Below 0 the loss is higher than alone. Random tokens: the mean "
        "over the random trials.",
    )


def _sentences(measured: Measured) -> list[tuple[str, Row, dict[str, Row], Row]]:
    """By model: its name, its row alone, those with the authors' sentences, and the mean with random tokens."""
    cases = []
    for name in found.models(measured):
        alone, rows = found.one(measured, "models", model=name), found.some(measured, "words", model=name)
        if rows and alone:
            lots = found.mean_of([row for row in rows if row["prompt"].startswith("lot")])
            real = claims.sentence_rows(measured, name)
            cases.append((name, alone, real, lots))
    return cases


def sentences(measured: Measured) -> str:
    """Whether the authors' sentences help compressed models, and more than random tokens."""
    return report((claims.SENTENCE, claims.THAN_RANDOM_TOKENS), measured)
