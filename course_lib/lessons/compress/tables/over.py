"""Tables and verdicts on what goes over: a prompt of one model on another, on another text, and words for prompts."""

import math
from collections.abc import Callable
from statistics import fmean

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import Effect, claim
from course_lib.lessons.compress.tables import found
from course_lib.lessons.compress.tables.found import called, shown
from course_lib.prompts.compressed.store import DENSE
from course_lib.prompts.transfer import Ratio


def sources(measured: Measured) -> list[str]:
    """Models whose prompts were tried on others, in the order of the models."""
    there = {row["source"] for row in found.some(measured, "moved")}
    return [name for name in found.models(measured) if name in there]


def targets(measured: Measured) -> list[str]:
    """Models that were given the prompts of others."""
    there = {row["model"] for row in found.some(measured, "moved")}
    return [name for name in found.models(measured) if name in there]


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
    lines = []
    helped, halves, taught = effects(measured)
    lines.append(claim("a prompt from another model lowers the perplexity", helped, True))
    lines.append(claim("more than half of the own gain beyond the dense one goes over", halves, True))
    lines.append(claim("another compressed model's prompt beats the dense model's", taught))
    return "\n".join(lines)


def effects(measured: Measured) -> tuple[list[Effect], list[Effect], list[Effect]]:
    """Of all pairs: nats won; shares above a half; nats by which it is better than the dense model's prompt."""
    helped, halves, taught = [], [], []
    for to in targets(measured):
        alone, of_dense = found.one(measured, "models", model=to), found.moved(measured, DENSE, to)
        for source in sources(measured):
            row = found.moved(measured, source, to)
            if source == to or row is None:
                continue
            helped.append(found.wins(row, alone))
            share = found.share(measured, source, to) if to != DENSE else None
            if share and math.isfinite(share.value) and source != DENSE:
                halves.append(Effect(value=share.value - 0.5, error=share.standard_error, n=len(row["losses"])))
            if of_dense and DENSE not in (source, to):
                taught.append(found.wins(row, of_dense))
    return helped, halves, taught


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
    control = on_other_text(measured, DENSE)
    pairs = {name: pair for name in found.models(measured) if (pair := on_other_text(measured, name))}
    helped = [found.wins(own, alone) for alone, own in pairs.values()]
    more = [found.more_than(pair, control) for name, pair in pairs.items() if control and name != DENSE]
    first = claim("a prompt helps on a text that it has not learned from", helped)
    second = claim("by more nats than the dense model's prompt helps the dense model there", more)
    return f"{first}\n{second}"


def on_other_text(measured: Measured, name: str) -> tuple[Row, Row] | None:
    """A model alone, and with its own prompt, on a text that no prompt has learned from."""
    alone, own = (found.one(measured, "other_text", model=name, prompted=is_so) for is_so in (False, True))
    return (alone, own) if alone and own else None


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
            lots = mean_of([row for row in rows if row["prompt"].startswith("lot")])
            real = {row["prompt"]: row for row in rows if not row["prompt"].startswith("lot")}
            cases.append((name, alone, real, lots))
    return cases


def sentences(measured: Measured) -> str:
    """Whether the authors' sentences help compressed models, and more than random tokens."""
    compressed = [case for case in _sentences(measured) if case[0] != DENSE]
    helped = [found.wins(row, alone) for _, alone, real, _ in compressed for row in real.values()]
    meant = [found.wins(row, lots) for _, _, real, lots in compressed for row in real.values()]
    first = claim("the authors' sentences help a compressed model", helped, True)
    return f"{first}\n{claim('they do more than as many tokens by lot', meant, True)}"


def mean_of(rows: list[Row]) -> Row:
    """Window by window."""
    return {"losses": [fmean(losses) for losses in zip(*(row["losses"] for row in rows), strict=True)]}
