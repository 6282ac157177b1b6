"""The tables and verdicts of lesson 02, from the committed measurement. Every verdict is computed."""

from statistics import median
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.classic import claims, schematics
from course_lib.lessons.classic.measured import (
    METHODS,
    PUBLISHED,
    digits_by_sparsity,
    median_left,
    reached,
    results,
    row_ratio,
)
from course_lib.lessons.common.claim import report
from course_lib.lessons.common.table import Table, percent
from course_lib.lessons.common.tables import load_measured, origin, rows

MONKS_CLAIMS = (claims.MONKS_1, claims.MONKS_2, claims.MONKS_3)


def provenance(measured: dict[str, Any]) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    return origin(
        measured,
        f"{sizes['xor_starts']} XOR networks for each decay, {sizes['monks_seeds']} networks for each MONK's problem, "
        f"{sizes['digits_seeds']} for the digits",
        weights="",
    )


def recursion_table(measured: dict[str, Any]) -> Table:
    """How far LeCun's diagonal is from the exact one, by network and layer of weights, counted from the inputs."""
    frame = []
    for network in dict.fromkeys(row["network"] for row in rows(measured, "recursion")):
        errors = {row["layer"]: row["relative_error"] for row in rows(measured, "recursion", network=network)}
        name = network.replace("1 hidden layers", "1 hidden layer")
        frame.append({"network": name} | {f"layer {layer}": error for layer, error in errors.items()})
    layers = {name: None for row in frame for name in row if name != "network"}
    return Table(
        frame,
        caption="Relative error of the diagonal by recursion",
        formats={name: lambda error: "exact" if error < 1e-9 else percent(error) for name in layers},
        note="Layers of weights are counted from the inputs; a dash: the network has no such layer.",
    )


def xor_table(measured: dict[str, Any]) -> Table:
    """Networks that are still right after one deletion, by decay; by method, and by what was possible."""
    frame = []
    for decay in dict.fromkeys(row["decay"] for row in rows(measured, "xor")):
        by_method = {row["method"]: row for row in rows(measured, "xor", decay=decay)}
        (possible,) = rows(measured, "xor_possible", decay=decay)
        frame.append(
            {"weight decay": decay, "networks": possible["n_nets"]}
            | {method: by_method[method]["right"] for method in METHODS}
            | {"some deletion without an update": possible["some_plain"]}
        )
    return Table(
        frame,
        caption="XOR networks that are still right after one deletion",
        formats={"weight decay": "{:.0e}".format},
    )


def xor_verdict(measured: dict[str, Any]) -> str:
    """Whether OBS alone leaves every XOR network right, and whether OBS alone chooses a correct weight.

    The abstract claims the second. A choice is correct where OBS's update compensates the deletion of that weight.
    """
    return report((claims.XOR_RIGHT, claims.XOR_CHOICE), measured)


def monks_table(measured: dict[str, Any]) -> Table:
    """Weights left and accuracy on all 432 robots at the stop, over the networks: the median and the range."""
    frame, formats = [], {}
    for method, refit in [(m, r) for r in (False, True) for m in (*METHODS, "OBS, alpha 1e-8")]:
        row: dict[str, Any] = {"method": method + (" + refit" if refit else "")}
        for problem in PUBLISHED:
            runs = rows(measured, "monks", problem=problem, method=method, refit=refit)
            left, test = [r["n_left"] for r in runs], [100 * r["test"] for r in runs]
            n_left = [f"problem {problem}: {name}" for name in ("weights left", "fewest", "most")]
            right = [f"problem {problem}: {name}" for name in ("robots right (%)", "most right (%)")]
            row |= dict(zip(n_left, (median(left), min(left), max(left)), strict=True))
            row |= dict(zip(right, (min(test), max(test)), strict=True))
            formats |= {tuple(n_left): "{:g} ({:g}–{:g})".format, tuple(right): "{:.1f}–{:.1f}".format}
        frame.append(row)
    published = ", ".join(f"{n} for problem {problem}" for problem, n in PUBLISHED.items())
    return Table(
        frame,
        caption="Pruned networks for the MONK's problems",
        formats=formats,
        note="weights left: the median of the networks and their range. robots right: the range over the networks, of "
        f"all 432 robots. Published numbers of weights: {published}.",
    )


def monks_verdict(measured: dict[str, Any]) -> str:
    """Whether OBS, with nothing retrained, reaches the published counts; and compared with magnitude with refitting.

    The stop watches the training patterns; "no accuracy lost on all 432" is asked after it.
    """
    lines = []
    for claim, (problem, published) in zip(MONKS_CLAIMS, PUBLISHED.items(), strict=True):
        left = [row["n_left"] for row in claims.monks_runs(measured, problem)]
        n_lossless, n_reached, n = claims.lossless_counts(measured, problem)
        lines += [
            f"problem {problem}: published {published} weights; OBS without refitting leaves {median(left):g} "
            f"(median, {min(left)}–{max(left)}).",
            f"  {n_lossless} of {n} networks lose nothing on all 432, {n_reached} of them with {published} or fewer.",
            str(claim.judge(measured)),
        ]
    ahead = [
        median_left(measured, p, "OBS", False) - min(median_left(measured, p, m, False) for m in ("magnitude", "OBD"))
        for p in PUBLISHED
    ]
    listed_ahead = ", ".join(f"{gap:+g}" for gap in ahead)
    lines += [
        f"OBS beside the better of the others, nothing retrained: {listed_ahead} weights (median).",
        str(claims.MONKS_FEWER.judge(measured)),
    ]
    gaps = [median_left(measured, p, "magnitude", True) - median_left(measured, p, "OBS", False) for p in PUBLISHED]
    same = max(abs(gap) for gap in gaps) <= 2
    listed_gaps = ", ".join(f"{gap:+g}" for gap in gaps)
    lines.append(
        f"magnitude with refitting beside OBS without: {listed_gaps} weights (median), "
        f"{'about as good' if same else 'not as good' if max(gaps) > 2 else 'better in places'}"
    )
    return "\n".join(lines)


def take_home(measured: dict[str, Any] | None = None, small: dict[str, Any] | None = None) -> Figure:
    """What the papers claim, what was measured, and the verdicts, as a table that is drawn."""
    measured, small = measured or results(), small or load_measured("classic", "small")
    judged = [claim.judge(measured) for claim in (claims.XOR_RIGHT, claims.XOR_CHOICE, claims.MONKS_FEWER, claims.ROWS)]
    judged.append(claims.FISHER_ORDER.judge(small))
    lines = [[each.claim.text, each.claim.source.partition(")")[0] + ")", each.ours, each.words] for each in judged]
    header = ["claim", "from", "measured here", "verdict"]
    return schematics.table(header, lines, [26, 13, 34, 18], "What this lesson measured, on its own networks")


def digits_table(measured: dict[str, Any]) -> Table:
    """Up to which sparsity each method stays within a point of the dense network, without and with retraining."""
    return Table(
        [{"retraining": name} | _reach(measured, key) for key, name in RETRAINING.items()],
        caption="The highest sparsity within one percentage point of the dense network",
        formats=dict.fromkeys(METHODS, percent),
    )


RETRAINING = {
    "pruned": "nothing retrained",
    "retrained": "retrained once",
    "retrained_each_round": "retrained every round",
}


def _reach(measured: dict[str, Any], key: str) -> dict[str, float]:
    return {method: reached(curve) for method, curve in digits_by_sparsity(measured, key).items()}


def digits_verdict(measured: dict[str, Any]) -> str:
    """Whether OBS goes further than both others without retraining, and how close the three are with it."""
    reach = _reach(measured, "retrained_each_round").values()
    apart = 100 * (max(reach) - min(reach))
    return (
        f"{claims.DIGITS.judge(measured)}\n"
        f"With retraining after every round the three lie within {apart:.0f} points of sparsity."
    )


def rows_verdict(measured: dict[str, Any]) -> str:
    """OBS against OBD on single outputs of the language model, row by row, with each layer a case."""
    percentages = ", ".join(f"{ratio:.0f} %" for ratio in row_ratio(measured))
    median_line = f"OBS's error in per cent of OBD's, median of each layer, unseen text: {percentages}."
    return f"{median_line}\n{claims.ROWS.judge(measured)}"
