"""Tables and verdicts of what changes slowly, and of other activations, as `course reproduce dejavu` measured them."""

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.verdicts import of_samples, said
from course_lib.lessons.dejavu import claims, results
from course_lib.lessons.dejavu.effects import OFF, as_asked, between_levels
from course_lib.lessons.dejavu.experiments.steps.teal import ALL, BY_INPUT, DENSE, SECOND_HALF, SWAPPED
from course_lib.lessons.dejavu.results import Measured


def slow(measured: Measured) -> str:
    """How much a block turns the residual, and how long what it adds is."""
    lines = []
    for model in results.models(measured, "slow_change"):
        first, *blocks = rows(measured, "slow_change", model=model)
        cosines, added = ([row[column] for row in blocks] for column in ("cosine", "size_ratio_mlp"))
        lines.append(
            f"{model}: cosine {first['cosine']:.2f} in block 0, then {min(cosines):.2f} to {max(cosines):.2f}; "
            f"‖MLP(X)‖ / ‖X‖ {first['size_ratio_mlp']:.1f}, then {min(added):.2f} to {max(added):.2f} (medians)"
        )
    return "\n".join([*lines, report((claims.SLOW, claims.RESIDUAL_DOMINATES), measured)])


def depth(measured: Measured) -> str:
    """What it costs when blocks are computed in parallel, or skipped."""
    return report((claims.IN_PARALLEL, claims.PAIRS_IN_PARALLEL, claims.SKIP_FOURTH, claims.SKIP_SECOND), measured)


def activations_table(measured: Measured) -> Table:
    """Thresholds on the gate (CATS), on what every matrix reads (TEAL, two ways), and ReLU in place of SiLU."""
    frame = []
    for row in rows(measured, "activations", tokens=ALL) + rows(measured, "activations", method=SWAPPED):
        above = results.above_dense(measured, row)
        frame.append(
            {"method": row["method"], "density asked for": row["density"], "density reached": row["reached"]}
            | {"perplexity": row["perplexity"], "nats above dense": above.value, "error": above.error}
            | {"compared": as_asked(row)}
        )
    return Table(
        frame,
        caption="Sparse activations",
        formats={
            "density asked for": percent,
            "density reached": percent,
            "perplexity": number(2),
            ("nats above dense", "error"): plus_minus(3, sign=True),
        },
        note=f"± one standard error. Methods more than {percent(OFF)} from what was asked for are not compared.",
    )


def activations(measured: Measured) -> str:
    """Whether levels found greedily are better than one density, and what ReLU in place of SiLU costs."""
    judged = [claims.GREEDY_LEVELS] if between_levels(measured) else []
    return report([*judged, claims.SWAPPED_RELU], measured)


def half_windows(measured: Measured) -> str:
    """TEAL's evaluation and ours, on the same positions: the second half of each window."""
    dense = results.one(measured, "activations", method=DENSE)["losses_second_half"]
    lines = []
    for row in rows(measured, "activations", method=BY_INPUT, tokens=ALL):
        half = results.one(measured, "activations", method=BY_INPUT, tokens=SECOND_HALF, density=row["density"])
        ours, theirs = (
            said(of_samples([cut - whole for cut, whole in zip(each["losses_second_half"], dense, strict=True)]))
            for each in (row, half)
        )
        lines.append(
            f"{percent(row['density'])} of the inputs, nats above dense: {ours} where all tokens are sparse,\n"
            f"    {theirs} where the first half is dense"
        )
    return "\n".join([*lines, str(claims.HALF_WINDOWS.judge(measured))])
