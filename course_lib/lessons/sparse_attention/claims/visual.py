"""What VFlowOpt's paper claims, judged on the small model: verdicts and tables of `course reproduce visual_tokens`.

Yang and others, 2025, https://arxiv.org/abs/2508.05211. Ways to choose are compared question by question.
"""

from collections.abc import Iterable

from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.table import Table, number, percent
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


def table(measured: Measured) -> Table:
    """Accuracy in per cent by way to choose and fraction of the tokens; means of random trials and calibrations."""
    fractions, whole = {percent(share): share for share in shares(measured)}, dense(measured)
    methods = (METHOD, BY_HAND, *(f"without {part}" for part in PARTS), *ALONE, RANDOM, TOLD)
    frame = [{"tokens chosen by": ALL, "100 %": 100 * whole["accuracy"]}]
    for method in methods:
        values = {name: 100 * _mean(measured, method, share) for name, share in fractions.items()}
        frame.append({"tokens chosen by": method} | values)
    return Table(
        frame,
        caption="Right answers (%) by the fraction of the tokens that is read, mean over layers",
        formats=dict.fromkeys(("100 %", *fractions), number(1)),
        note=f"{whole['n']} questions.",
    )


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


def published_table(measured: Measured) -> Table:
    """What is left of all tokens' answers: the paper's numbers and ours."""
    published_rows, whole = published()["tables"], dense(measured)["accuracy"]
    theirs = {percent(row["share"]): row["of_all"] for row in published_rows["vflowopt_kept"]}
    ours = {percent(row["share"]): _mean(measured, METHOD, row["share"]) for row in published_rows["vflowopt_kept"]}
    costs = [
        f"{row['what']} {row['milliseconds']} ms, {row['megabytes']} MB of keys and values"
        for row in published_rows["vflowopt_cost"]
    ]
    return Table(
        [
            {"model": "published, LLaVA-OneVision"} | theirs,
            {"model": "here"} | {name: accuracy / whole for name, accuracy in ours.items()},
        ],
        caption="Right answers compared with those of all tokens, by the fraction of the tokens",
        formats=dict.fromkeys(theirs, number(1, "%", 100)),
        note=f"Published cost: {'; '.join(costs)}.",
    )


def published_parts(measured: Measured) -> Table:
    """What each part of the method is worth: the paper's ablation and ours."""
    return Table(
        [
            {"what": row["what"], "published, MMStar": row["mmstar"]}
            | {"here": 100 * _mean(measured, AS_PUBLISHED.get(row["what"], row["what"]), 0.25)}
            for row in published()["tables"]["vflowopt_parts"]
        ],
        caption="Right answers (%) with 25 % of the tokens, without one part at a time",
        formats=dict.fromkeys(("published, MMStar", "here"), number(1)),
    )


def _mean(measured: Measured, method: str, share: float) -> float:
    """Accuracy, the mean of draws and calibrations."""
    right = questions(at(measured, method, share))
    return sum(right) / len(right)


def _claim(text: str, effects: list[Effect]) -> str:
    points = ", ".join(f"{100 * effect.value:+.1f} ± {100 * effect.error:.1f}" for effect in effects)
    return f"Claim: {text} ({points}): {verdict(effects, larger_models=True)}"
