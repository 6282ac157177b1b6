"""Tables and verdicts on what goes over: a prompt of one model on another, on another text, and words for prompts."""

import math

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import said
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.claims import on_other_text, sources, targets
from course_lib.lessons.compress.found import called, shown
from course_lib.prompts.compressed.store import DENSE
from course_lib.prompts.transfer import Ratio


def moved(measured: Measured) -> str:
    """Ratios of perplexities with moved prompts, and the shares of the gain beyond the dense model's that go over."""
    froms, tos = sources(measured), targets(measured)
    lines = ["Ratio of perplexities; rows: where a prompt was learned; columns: where it is used"]
    lines += _matrix(froms, tos, lambda source, to: _ratio(measured, source, to))
    lines.append("Share of the own prompt's gain beyond the dense model's gain; – where there is none to share")
    lines += _matrix(froms, tos, lambda source, to: None if to == DENSE else found.share(measured, source, to))
    return "\n".join([*lines, report((claims.MOVES, claims.HALF_TRANSFERS, claims.BETTER_TEACHER), measured)])


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
    for name in found.models(measured):
        pair = on_other_text(measured, name)
        if not pair:
            continue
        alone, own = pair
        ratio, won = found.ratio(own, alone), found.wins(own, alone)
        cells = f"{shown(alone['perplexity']):>10}{shown(own['perplexity']):>10}"
        cells += f"{f'{ratio.value:.3f} ± {ratio.standard_error:.3f}':>16}{said(won):>18}"
        if beyond := claims.beyond_elsewhere(measured, name):
            cells += f"{said(beyond):>18}"
        lines.append(f"{called(name):<28}{cells}")
    return "\n".join([*lines, report((claims.OTHER_TEXT, claims.BEYOND_ON_OTHER_TEXT), measured)])


def sentences(measured: Measured) -> str:
    """Both sentences and tokens by lot, by model."""
    lines = [f"{'':<28}{'alone':>10}{'slides':>18}{'code':>18}{'by lot':>18}"]
    for name in found.models(measured):
        alone, rows = found.one(measured, "models", model=name), found.some(measured, "words", model=name)
        if not rows or not alone:
            continue
        lots = found.mean_of([row for row in rows if row["prompt"].startswith("lot")])
        real = claims.sentence_rows(measured, name)
        cells = "".join(f"{said(found.wins(row, alone)):>18}" for row in (*real.values(), lots))
        lines.append(f"{called(name):<28}{shown(alone['perplexity']):>10}{cells}")
    lines.append("Nats a token won, the mean over the draws by lot; below 0 the model reads worse than alone.")
    return "\n".join([*lines, report((claims.SENTENCE, claims.THAN_RANDOM_TOKENS), measured)])
