"""What VFlowOpt's paper claims, judged on the small model: verdicts and tables of `course reproduce visual_tokens`.

Yang and others, 2025, https://arxiv.org/abs/2508.05211. Ways to choose are compared question by question.
"""

from course_lib.lessons.common.claim import report
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


def table(measured: Measured) -> str:
    """Accuracy in per cent: a way to choose a row, a share of the tokens a column; means of draws and calibrations."""
    columns, whole = shares(measured), dense(measured)
    methods = (METHOD, BY_HAND, *(f"without {part}" for part in PARTS), *ALONE, RANDOM, TOLD)
    lines = [f"{'tokens read, mean over layers':<30}" + "".join(f"{f'{100 * share:.0f} %':>9}" for share in columns)]
    lines.append(f"{ALL:<30}{100 * whole['accuracy']:>9.1f}  (of {whole['n']} questions)")
    for method in methods:
        lines.append(
            f"{method:<30}" + "".join(f"{100 * mean_accuracy(measured, method, share):>9.1f}" for share in columns)
        )
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
    """What the paper claims, and what becomes of it here."""
    return report(claims.VISUAL_CLAIMS, measured)


def published_table(measured: Measured) -> str:
    """The paper's numbers, and ours beside them: what is left of all tokens' answers, and with a part less."""
    tables, whole = published()["tables"], dense(measured)["accuracy"]
    columns = [row["share"] for row in tables["vflowopt_kept"]]
    theirs = [row["of_all"] for row in tables["vflowopt_kept"]]
    ours = [mean_accuracy(measured, METHOD, share) / whole for share in columns]
    lines = [f"{'of what all tokens answer':<34}" + "".join(f"{f'{100 * share:.0f} %':>9}" for share in columns)]
    for name, values in {"published, LLaVA-OneVision": theirs, "here": ours}.items():
        lines.append(f"{name:<34}" + "".join(f"{f'{100 * value:.1f} %':>9}" for value in values))
    lines.append(f"{'right at 25 % of the tokens (%)':<34}{'published, MMStar':>19}{'here':>8}")
    for row in tables["vflowopt_parts"]:
        mine = mean_accuracy(measured, AS_PUBLISHED.get(row["what"], row["what"]), 0.25)
        lines.append(f"{row['what']:<34}{row['mmstar']:>19.1f}{100 * mine:>8.1f}")
    costs = [
        f"{row['what']} {row['milliseconds']} ms, {row['megabytes']} MB of keys and values"
        for row in tables["vflowopt_cost"]
    ]
    return "\n".join([*lines, *(f"published cost: {each}" for each in costs)])
