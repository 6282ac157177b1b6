"""Tables and verdicts on what goes over: a prompt of one model on another, on another text, and words for prompts."""

import math
from statistics import fmean

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import Effect, claim, said
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


def moved(measured: Measured) -> str:
    """Ratios of perplexities with moved prompts, and the shares of the gain beyond the dense model's that go over."""
    froms, tos = sources(measured), targets(measured)
    lines = ["Ratio of perplexities; rows: where a prompt was learned; columns: where it is used"]
    lines += _matrix(froms, tos, lambda source, to: _ratio(measured, source, to))
    lines.append("Share of the own prompt's gain beyond the dense model's gain; – where there is none to share")
    lines += _matrix(froms, tos, lambda source, to: None if to == DENSE else found.share(measured, source, to))
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


def _matrix(froms: list[str], tos: list[str], cell) -> list[str]:
    lines = [f"{'':<26}" + "".join(f"{short(to):>14}" for to in tos)]
    for source in froms:
        cells = (_cell(cell(source, to)) for to in tos)
        lines.append(f"{called(source):<26}" + "".join(f"{text:>14}" for text in cells))
    return lines


def _cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.value:.2f} ± {ratio.standard_error:.2f}" if math.isfinite(ratio.value) else "–"


def short(name: str) -> str:
    """For the head of a narrow column."""
    return called(name).replace("SparseGPT 50 % and 4 bits", "50 %, 4 bits").replace("Minitron's cut", "cut")


def other_text(measured: Measured) -> str:
    """Prompts learned on Wikipedia, on paragraphs of another collection, beside what the dense model's wins there."""
    lines = [f"{'on other text':<28}{'alone':>10}{'prompted':>10}{'ratio':>16}{'nats':>18}{'beyond dense':>18}"]
    helped, more, control = [], [], on_other_text(measured, DENSE)
    for name in found.models(measured):
        pair = on_other_text(measured, name)
        if not pair:
            continue
        alone, own = pair
        ratio, won = found.ratio(own, alone), found.wins(own, alone)
        helped.append(won)
        cells = f"{shown(alone['perplexity']):>10}{shown(own['perplexity']):>10}"
        cells += f"{f'{ratio.value:.3f} ± {ratio.standard_error:.3f}':>16}{said(won):>18}"
        if control and name != DENSE:
            more.append(found.more_than(pair, control))
            cells += f"{said(more[-1]):>18}"
        lines.append(f"{called(name):<28}{cells}")
    lines.append(claim("a prompt helps on a text that it has not learned from", helped))
    lines.append(claim("by more nats than the dense model's prompt helps the dense model there", more))
    return "\n".join(lines)


def on_other_text(measured: Measured, name: str) -> tuple[Row, Row] | None:
    """A model alone, and with its own prompt, on a text that no prompt has learned from."""
    alone, own = (found.one(measured, "other_text", model=name, prompted=is_so) for is_so in (False, True))
    return (alone, own) if alone and own else None


def sentences(measured: Measured) -> str:
    """Both sentences and tokens by lot, by model."""
    lines, helped, meant = [f"{'':<28}{'alone':>10}{'slides':>18}{'code':>18}{'by lot':>18}"], [], []
    for name in found.models(measured):
        alone, rows = found.one(measured, "models", model=name), found.some(measured, "words", model=name)
        if not rows or not alone:
            continue
        lots = mean_of([row for row in rows if row["prompt"].startswith("lot")])
        real = {row["prompt"]: row for row in rows if not row["prompt"].startswith("lot")}
        cells = "".join(f"{said(found.wins(row, alone)):>18}" for row in (*real.values(), lots))
        lines.append(f"{called(name):<28}{shown(alone['perplexity']):>10}{cells}")
        if name != DENSE:
            helped += [found.wins(row, alone) for row in real.values()]
            meant += [found.wins(row, lots) for row in real.values()]
    lines.append("Nats a token won, the mean over the draws by lot; below 0 the model reads worse than alone.")
    lines.append(claim("the authors' sentences help a compressed model", helped, True))
    lines.append(claim("they do more than as many tokens by lot", meant, True))
    return "\n".join(lines)


def mean_of(rows: list[Row]) -> Row:
    """Window by window."""
    return {"losses": [fmean(losses) for losses in zip(*(row["losses"] for row in rows), strict=True)]}
