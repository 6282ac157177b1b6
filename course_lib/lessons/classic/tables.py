"""The printed tables and verdicts of lesson 02, from the committed measurement. Every verdict is computed."""

from statistics import median
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.classic import claims, schematics
from course_lib.lessons.classic.measured import METHODS, PUBLISHED, digits_by_sparsity, median_left, reached, row_ratio
from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import origin, per_cent, rows

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


def recursion_table(measured: dict[str, Any]) -> str:
    """How far LeCun's diagonal is from the exact one, by network and layer of weights, counted from the inputs."""
    networks = list(dict.fromkeys(row["network"] for row in rows(measured, "recursion")))
    deepest = max(row["layer"] for row in rows(measured, "recursion"))
    lines = [f"{'relative error (%) in layer':<29}" + "".join(f"{i:>8}" for i in range(1, deepest + 1))]
    for network in networks:
        errors = {row["layer"]: row["relative_error"] for row in rows(measured, "recursion", network=network)}
        cells = "".join(f"{'exact' if error < 1e-9 else f'{100 * error:.0f}':>8}" for error in errors.values())
        lines.append(f"{network.replace('1 hidden layers', '1 hidden layer'):<29}{cells}")
    return "\n".join(lines)


def xor_table(measured: dict[str, Any]) -> str:
    """Networks that are still right after one deletion, by decay; by method, and by what was possible."""
    lines = [
        f"{'decay':>7}{'networks':>10}" + "".join(f"{m:>11}" for m in METHODS) + f"{'some plain deletion works':>28}"
    ]
    for decay in dict.fromkeys(row["decay"] for row in rows(measured, "xor")):
        by_method = {row["method"]: row for row in rows(measured, "xor", decay=decay)}
        (possible,) = rows(measured, "xor_possible", decay=decay)
        cells = "".join(f"{by_method[m]['right']:>11}" for m in METHODS)
        lines.append(f"{decay:>7.0e}{possible['n_nets']:>10}{cells}{possible['some_plain']:>28}")
    return "\n".join(lines)


def xor_verdict(measured: dict[str, Any]) -> str:
    """Whether OBS alone leaves every XOR network right, and whether OBS alone chooses a correct weight.

    The abstract claims the second. A choice is correct where OBS's update compensates the deletion of that weight.
    """
    return report((claims.XOR_RIGHT, claims.XOR_CHOICE), measured)


def monks_table(measured: dict[str, Any]) -> str:
    """Weights left and accuracy on all 432 robots at the stop, over the networks: the median and the range."""
    lines = [f"{'':<23}" + "".join(f"{f'problem {p}, published {n}':>25}" for p, n in PUBLISHED.items())]
    lines.append(f"{'':<23}" + f"{'left':>13}{'right (%)':>12}" * 3)
    kinds = [(m, r) for r in (False, True) for m in (*METHODS, "OBS, alpha 1e-8")]
    for method, refit in kinds:
        cells = ""
        for problem in PUBLISHED:
            runs = rows(measured, "monks", problem=problem, method=method, refit=refit)
            left, test = [r["n_left"] for r in runs], [100 * r["test"] for r in runs]
            cells += f"{f'{median(left):g} ({min(left)}–{max(left)})':>13}{f'{min(test):.1f}–{max(test):.1f}':>12}"
        lines.append(f"{method + (' + refit' if refit else ''):<23}{cells}")
    return "\n".join(lines)


def monks_verdict(measured: dict[str, Any]) -> str:
    """Whether OBS, with nothing retrained, reaches the published counts; and magnitude with refitting beside it.

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


def take_home(measured: dict[str, Any], small: dict[str, Any]) -> Figure:
    """What the papers claim, what was measured, and the verdicts, as a table that is drawn."""
    judged = [claim.judge(measured) for claim in (claims.XOR_RIGHT, claims.XOR_CHOICE, claims.MONKS_FEWER, claims.ROWS)]
    judged.append(claims.FISHER_ORDER.judge(small))
    lines = [[each.claim.text, each.claim.source.split(",")[0], each.ours, each.words] for each in judged]
    header = ["claim", "from", "measured here", "verdict"]
    return schematics.table(header, lines, [26, 13, 34, 18], "What this lesson measured, on its own networks")


def digits_verdict(measured: dict[str, Any]) -> str:
    """How far each method goes within a point of the dense network, without and with retraining."""
    reach = {
        key: {m: reached(curve) for m, curve in digits_by_sparsity(measured, key).items()}
        for key in ("pruned", "retrained", "retrained_each_round")
    }
    lines = [f"{'within a point of dense up to a sparsity of':<46}" + "".join(f"{m:>11}" for m in METHODS)]
    names = {
        "pruned": "nothing retrained",
        "retrained": "retrained once",
        "retrained_each_round": "retrained every round",
    }
    for key, name in names.items():
        lines.append(f"  {name:<44}" + "".join(f"{per_cent(reach[key][m]):>11}" for m in METHODS))
    lines.append(str(claims.DIGITS.judge(measured)))
    close = max(reach["retrained_each_round"].values()) - min(reach["retrained_each_round"].values())
    lines.append(f"With retraining after every round the three lie within {100 * close:.0f} points of sparsity.")
    return "\n".join(lines)


def rows_verdict(measured: dict[str, Any]) -> str:
    """OBS against OBD on single outputs of the language model, row by row, with each layer a case."""
    percentages = ", ".join(f"{ratio:.0f} %" for ratio in row_ratio(measured))
    median_line = f"OBS's error in per cent of OBD's, median of each layer, unseen text: {percentages}."
    return f"{median_line}\n{claims.ROWS.judge(measured)}"
