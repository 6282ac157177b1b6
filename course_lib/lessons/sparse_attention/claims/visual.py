"""What VFlowOpt's paper claims, judged on the small model: verdicts and tables of `course reproduce visual_tokens`.

Yang and others, 2025, https://arxiv.org/abs/2508.05211. Ways to choose are compared question by question.
"""

from collections.abc import Iterable

from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.tables import Measured, load_measured, origin, rows
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.lessons.sparse_attention.experiments.experiment_visual_tokens import ALL, ALONE, METHOD, RANDOM, TOLD

COMPARABLE = 0.05  # of the answers: what "comparable" may lose here
BY_HAND = "settings by hand"
AS_PUBLISHED = {"without calibration": BY_HAND}  # what the paper's ablation calls it
PARTS = ("recycling", "stages", "entropy", "attention", "a score")


def results() -> Measured:
    """The committed measurement."""
    return load_measured("sparse_attention", "experiments/visual_tokens")


def trained() -> Measured:
    """That of `course reproduce visual_model`: how the model came about."""
    return load_measured("sparse_attention", "experiments/visual_model")


def published() -> Measured:
    """The paper's own numbers."""
    return load_measured("sparse_attention", "published_visual")


def shares(measured: Measured) -> list[float]:
    """Of the tokens, from many to few; all of them are not among these."""
    return sorted({row["share"] for row in rows(measured, "answers") if row["method"] != ALL}, reverse=True)


def dense(measured: Measured) -> Row:
    """All tokens."""
    return rows(measured, "answers", method=ALL)[0]


def questions(found: Iterable[Row]) -> list[float]:
    """Of each question, the share of the rows that answer it rightly: of several draws or calibrations, their mean."""
    answers = [row["right"] for row in found]
    return [sum(map(int, each)) / len(answers) for each in zip(*answers, strict=True)]


def gap(better: list[Row], worse: list[Row], threshold: float = 0.0) -> Effect:
    """By how much more is answered rightly, question by question, measured from a threshold."""
    if len(better) == len(worse) == 1 and threshold == 0:
        return accuracy_gap(better[0], worse[0])
    pairs = zip(questions(better), questions(worse), strict=True)
    return of_samples([one - other for one, other in pairs], threshold)


def at(measured: Measured, method: str, share: float) -> list[Row]:
    """The rows of a way to choose at a share: several where it was drawn or calibrated several times."""
    return rows(measured, "answers", method=method, share=share)


def ahead(measured: Measured, of: str, first: bool = False) -> dict[float, Effect]:
    """By share: how much more VFlowOpt answers than another way; its first calibration, or the mean of all."""
    effects = {}
    for share in shares(measured):
        own = at(measured, METHOD, share)
        effects[share] = gap(own[:1] if first else own, at(measured, of, share))
    return effects


def parts(measured: Measured) -> dict[str, dict[float, Effect]]:
    """What each part adds, by share: the first calibration, with it and without it."""
    return {part: ahead(measured, f"without {part}", first=True) for part in PARTS}


def lost(measured: Measured, share: float, method: str = METHOD) -> Effect:
    """How much less than COMPARABLE it loses of what all tokens answer."""
    return gap(at(measured, method, share), [dense(measured)], -COMPARABLE)


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes, model = measured["sizes"], trained()["tables"]["models"][0]
    amounts = (
        f"{sizes['canvases']} canvases of digits that nothing was trained on, a question each; calibration on "
        f"{sizes['calibration']} others, {sizes['n_steps']} settings, {sizes['calibrations']} times"
    )
    weights = f"a model of {model['parameters']:,} weights, trained by `course reproduce visual_model`"
    return origin(measured, amounts, weights)


def table(measured: Measured) -> str:
    """Accuracy in per cent: a way to choose a row, a share of the tokens a column; means of draws and calibrations."""
    columns, whole = shares(measured), dense(measured)
    methods = (METHOD, BY_HAND, *(f"without {part}" for part in PARTS), *ALONE, RANDOM, TOLD)
    lines = [f"{'tokens read, mean over layers':<30}" + "".join(f"{f'{100 * share:.0f} %':>9}" for share in columns)]
    lines.append(f"{ALL:<30}{100 * whole['accuracy']:>9.1f}  (of {whole['n']} questions)")
    for method in methods:
        lines.append(f"{method:<30}" + "".join(f"{100 * _mean(measured, method, share):>9.1f}" for share in columns))
    return "\n".join(lines)


def settings(measured: Measured) -> str:
    """What calibration found, and the cosine that it was after; beside it that of unseen questions."""
    head = f"{'share':>6}{'t':>7}{'alpha':>8}{'side':>6}{'R1':>7}{'R2':>7}{'R3':>7}{'cosine':>9}{'unseen':>9}"
    lines = [head]
    for share in shares(measured):
        for row in rows(measured, "settings", share=share):
            (own,) = rows(measured, "answers", method=METHOD, share=share, calibration=row["calibration"])
            ratios = "".join(f"{row[name]:>7.2f}" for name in ("first", "second", "third"))
            cosines = f"{row['cosine']:>9.4f}{own['cosine']:>9.4f}"
            lines.append(f"{100 * share:>4.0f} %{row['t']:>7.2f}{row['alpha']:>8.1f}{row['side']:>6}{ratios}{cosines}")
    return "\n".join(lines)


def verdicts(measured: Measured) -> str:
    """A line a claim: what is said of it here."""
    least = min(shares(measured))
    rivals = {name: list(ahead(measured, name).values()) for name in (*ALONE, RANDOM)}
    comparable = f"with {100 * least:.0f} % of the tokens it answers at most {100 * COMPARABLE:.0f} points less"
    lines = [_claim(comparable, [lost(measured, least)])]
    lines += [_claim(f"it answers more than {name} at every share", found) for name, found in rivals.items()]
    lines += [
        _claim(f"it answers more with {part} than without at every share", list(by.values()))
        for part, by in parts(measured).items()
    ]
    calibrated = list(ahead(measured, BY_HAND).values())
    return "\n".join(
        [*lines, _claim("it answers more with calibration than with settings by hand at every share", calibrated)]
    )


def published_table(measured: Measured) -> str:
    """The paper's numbers, and ours beside them: what is left of all tokens' answers, and with a part less."""
    tables, whole = published()["tables"], dense(measured)["accuracy"]
    columns = [row["share"] for row in tables["vflowopt_kept"]]
    theirs = [row["of_all"] for row in tables["vflowopt_kept"]]
    ours = [_mean(measured, METHOD, share) / whole for share in columns]
    lines = [f"{'of what all tokens answer':<34}" + "".join(f"{f'{100 * share:.0f} %':>9}" for share in columns)]
    for name, values in {"published, LLaVA-OneVision": theirs, "here": ours}.items():
        lines.append(f"{name:<34}" + "".join(f"{f'{100 * value:.1f} %':>9}" for value in values))
    lines.append(f"{'right at 25 % of the tokens (%)':<34}{'published, MMStar':>19}{'here':>8}")
    for row in tables["vflowopt_parts"]:
        mine = _mean(measured, AS_PUBLISHED.get(row["what"], row["what"]), 0.25)
        lines.append(f"{row['what']:<34}{row['mmstar']:>19.1f}{100 * mine:>8.1f}")
    costs = [
        f"{row['what']} {row['milliseconds']} ms, {row['megabytes']} MB of keys and values"
        for row in tables["vflowopt_cost"]
    ]
    return "\n".join([*lines, *(f"published cost: {each}" for each in costs)])


def _mean(measured: Measured, method: str, share: float) -> float:
    """Accuracy, the mean of draws and calibrations."""
    right = questions(at(measured, method, share))
    return sum(right) / len(right)


def _claim(text: str, effects: list[Effect]) -> str:
    points = ", ".join(f"{100 * effect.value:+.1f} ± {100 * effect.error:.1f}" for effect in effects)
    return f"Claim: {text} ({points}): {verdict(effects, larger_models=True)}"
