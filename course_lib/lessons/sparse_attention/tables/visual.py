"""What VFlowOpt's paper claims, judged on the small model: verdicts and tables of `course reproduce visual_tokens`.

Yang and others, 2025, https://arxiv.org/abs/2508.05211. Ways to choose are compared question by question.
"""

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.tables import Measured, load_measured, origin, rows
from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates.visual import BY_HAND, PARTS, dense, mean_accuracy, shares
from course_lib.lessons.sparse_attention.experiments.experiment_visual_tokens import ALL, ALONE, METHOD, RANDOM, TOLD

AS_PUBLISHED = {"without calibration": BY_HAND}  # what the paper's ablation calls it


def results() -> Measured:
    """The committed measurement."""
    return load_measured("sparse_attention", "experiments/visual_tokens")


def trained() -> Measured:
    """That of `course reproduce visual_model`: how the model came about."""
    return load_measured("sparse_attention", "experiments/visual_model")


def published() -> Measured:
    """The paper's own numbers."""
    return load_measured("sparse_attention", "published_visual")


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
        values = {name: 100 * mean_accuracy(measured, method, share) for name, share in fractions.items()}
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
    """What the paper claims, and what becomes of it here."""
    return report(claims.VISUAL_CLAIMS, measured)


def published_table(measured: Measured) -> Table:
    """What is left of all tokens' answers: the paper's numbers and ours."""
    published_rows, whole = published()["tables"], dense(measured)["accuracy"]
    theirs = {percent(row["share"]): row["of_all"] for row in published_rows["vflowopt_kept"]}
    ours = {
        percent(row["share"]): mean_accuracy(measured, METHOD, row["share"]) for row in published_rows["vflowopt_kept"]
    }
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
            | {"here": 100 * mean_accuracy(measured, AS_PUBLISHED.get(row["what"], row["what"]), 0.25)}
            for row in published()["tables"]["vflowopt_parts"]
        ],
        caption="Right answers (%) with 25 % of the tokens, without one part at a time",
        formats=dict.fromkeys(("published, MMStar", "here"), number(1)),
    )
