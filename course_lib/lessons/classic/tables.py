"""The tables and verdicts of lesson 02, from the committed measurement. Every verdict is computed."""

from math import inf, log
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.classic import schematics
from course_lib.lessons.classic.fisher import SAME_ORDER, SITUATIONS, order_verdict
from course_lib.lessons.classic.measured import METHODS, PUBLISHED, digits_by_sparsity, median_left, reached, row_ratio
from course_lib.lessons.common.effects import share_above
from course_lib.lessons.common.table import Table, percent
from course_lib.lessons.common.tables import origin, rows
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.measure.paired import mean_and_error

FURTHER = 0.05  # of all weights: a method that goes that much further needs less retraining
SPARSITY, POINT = 0.7, 0.01  # at which the decks' example is pruned; of the test digits


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
    """That of the three only OBS leaves every XOR network right; and whether only OBS chooses the correct weight.

    The abstract says the second. A choice is correct where OBS's update mends the deletion of that weight. All networks
    are counted, so the effect is exact: those that OBS alone gets right, where it misses none.
    """
    xor_rows = rows(measured, "xor")
    n = sum(r["n_nets"] for r in xor_rows if r["method"] == "OBS")
    lines = []
    for claim, key in (("leaves XOR right", "right"), ("chooses a correct weight", "right_with_update")):
        total = {m: sum(r[key] for r in xor_rows if r["method"] == m) for m in METHODS}
        others = max(total["magnitude"], total["OBD"])
        alone = total["OBS"] - others if total["OBS"] == n else total["OBS"] - n
        listing = ", ".join(f"{m} {count}" for m, count in total.items())
        said = verdict(Effect(value=alone / n, error=0.0, n=n))
        lines.append(f"of {n} networks: {listing}\n  Claim: only OBS {claim} in every case: {said}.")
    return "\n".join(lines)


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
    """Whether OBS, with nothing retrained, reaches the published counts; and magnitude with refitting beside it.

    The stop watches the training patterns; "no accuracy lost on all 432" is asked after it. The claim on the published
    count is that more than half of the networks reach it without loss.
    """
    lines = []
    for problem, published in PUBLISHED.items():
        runs = rows(measured, "monks", problem=problem, method="OBS", refit=False)
        left = [r["n_left"] for r in runs]
        lossless = [r["n_left"] if r["test"] >= r["dense_test"] - 1e-12 else inf for r in runs]
        n_kept = sum(n < inf for n in lossless)
        reach = sum(n <= published for n in lossless)
        lines.append(
            f"problem {problem}: published {published} weights; OBS without refitting leaves {median(left):g} "
            f"(median, {min(left)}–{max(left)}).\n"
            f"  {n_kept} of {len(runs)} networks lose nothing on all 432, {reach} of them with {published} or fewer.\n"
            f"  Claim: on problem {problem} more than half do so: {verdict(share_above(reach, len(runs), 0.5))}"
        )
    ahead = [
        median_left(measured, p, "OBS", False) - min(median_left(measured, p, m, False) for m in ("magnitude", "OBD"))
        for p in PUBLISHED
    ]
    listed_ahead = ", ".join(f"{gap:+g}" for gap in ahead)
    fewer = [of_samples(_fewer_by_network(measured, problem)) for problem in PUBLISHED]
    lines.append(
        f"OBS beside the better of the others, nothing retrained: {listed_ahead} weights (median);\n"
        f"  {', '.join(f'{-each.value:+.1f} ± {each.error:.1f}' for each in fewer)} network by network.\n"
        f"  Claim: without retraining OBS leaves fewer weights than both others: {verdict(fewer)}"
    )
    gaps = [median_left(measured, p, "magnitude", True) - median_left(measured, p, "OBS", False) for p in PUBLISHED]
    same = max(abs(gap) for gap in gaps) <= 2
    listed_gaps = ", ".join(f"{gap:+g}" for gap in gaps)
    lines.append(
        f"magnitude with refitting beside OBS without: {listed_gaps} weights (median), "
        f"{'about as good' if same else 'not as good' if max(gaps) > 2 else 'better in places'}"
    )
    return "\n".join(lines)


def _fewer_by_network(measured: dict[str, Any], problem: int) -> list[int]:
    """How many weights OBS leaves less than the better of the two others, of the same trained network."""
    left = {
        m: {row["seed"]: row["n_left"] for row in rows(measured, "monks", problem=problem, method=m, refit=False)}
        for m in METHODS
    }
    return [min(left["magnitude"][seed], left["OBD"][seed]) - left["OBS"][seed] for seed in left["OBS"]]


def take_home(measured: dict[str, Any], small: dict[str, Any]) -> Figure:
    """What the papers claim, what was measured, and the verdicts, as a table that is drawn."""
    (of_alone, alone), (of_chosen, chosen) = _in_pairs(xor_verdict(measured))
    medians = "; ".join(f"{median_left(measured, p, 'OBS', False):g} (published {n})" for p, n in PUBLISHED.items())
    ratios = ", ".join(f"{ratio:.0f}" for ratio in row_ratio(measured))
    order = [mean_and_error([r["squared_order"] for r in rows(small, "curvature", situation=s)]) for s in SITUATIONS]
    correlations = "; ".join(f"{name}: {mean:.2f}" for name, (mean, _) in zip(SITUATIONS, order, strict=True))
    lines = [
        ["only OBS leaves XOR right in every case", "OBS, 1992", of_alone, _word(alone, "Claim")],
        ["only OBS chooses a correct weight", "OBS, 1992", of_chosen, _word(chosen, "Claim")],
        [
            "OBS alone leaves fewer weights than both others",
            "OBS, 1992",
            f"MONK's, medians: {medians}",
            _word(monks_verdict(measured), "than both others"),
        ],
        [
            "OBS's error is below OBD's",
            "a row, lesson 03",
            f"{ratios} % of it, by layer",
            _word(rows_verdict(measured), "is smaller"),
        ],
        [
            f"squared gradients rank like the Hessian (above {SAME_ORDER})",
            "used by LLM-Pruner, 2023",
            correlations,
            _word(order_verdict(small), "as the Hessian does"),
        ],
    ]
    header = ["claim", "from", "measured here", "verdict"]
    return schematics.table(header, lines, [26, 13, 34, 18], "What this lesson measured, on its own networks")


def _in_pairs(said: str) -> list[tuple[str, str]]:
    """(what was counted, the claim) of lines that come in pairs."""
    lines = said.splitlines()
    return list(zip(lines[::2], lines[1::2], strict=True))


def _word(said: str, claim: str) -> str:
    """The verdict at the end of the line that makes a claim."""
    (line,) = (line for line in said.splitlines() if claim in line)
    return line.rsplit(": ", 1)[1].rstrip(".")


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
    ahead = of_samples(_further_by_network(measured), FURTHER)
    points = f"{100 * (ahead.value + FURTHER):+.0f} ± {100 * ahead.error:.0f} points of sparsity, {ahead.n} networks"
    claim = f"Claim: with nothing retrained OBS goes over {100 * FURTHER:.0f} points further than both others"
    return (
        f"{points}\n  {claim}: {verdict(ahead)}.\n"
        f"With retraining after every round the three lie within {apart:.0f} points of sparsity."
    )


def _further_by_network(measured: dict[str, Any]) -> list[float]:
    """How much sparser than the better of the two others OBS stays within a point of dense, of the same network."""
    further = []
    for seed in dict.fromkeys(row["seed"] for row in rows(measured, "digits")):
        of_network = {"tables": {"digits": rows(measured, "digits", seed=seed)}}
        reach = {m: reached(curve) for m, curve in digits_by_sparsity(of_network, "pruned").items()}
        further.append(reach["OBS"] - max(reach["magnitude"], reach["OBD"]))
    return further


def rows_verdict(measured: dict[str, Any]) -> str:
    """OBS against OBD on single outputs of the language model, row by row, with each layer a case."""
    percentages = ", ".join(f"{ratio:.0f} %" for ratio in row_ratio(measured))
    effects = []
    for layer in dict.fromkeys(row["layer"] for row in rows(measured, "rows")):
        errors = {m: [row["held_out"] for row in rows(measured, "rows", layer=layer, method=m)] for m in ("OBD", "OBS")}
        effects.append(of_samples([log(obd / obs) for obd, obs in zip(errors["OBD"], errors["OBS"], strict=True)]))
    below = ", ".join(f"{effect.value:.2f} ± {effect.error:.2f}" for effect in effects)
    return (
        f"OBS's error in per cent of OBD's, median of each layer, unseen text: {percentages}.\n"
        f"Logarithm of OBD's over OBS's, row by row: {below}.\n"
        f"  Claim: OBS's error is smaller: {verdict(effects)}."
    )


def retraining_verdict(measured: dict[str, Any]) -> str:
    """What pruning at once costs at 70 %, and how much of it one retraining brings back."""
    back = [
        (near["retrained"] - near["pruned"]) - 0.5 * (dense["pruned"] - near["pruned"])
        for dense, near in _dense_and_pruned(measured, "magnitude")
    ]
    harm = [dense["pruned"] - near["pruned"] for dense, near in _dense_and_pruned(measured, "OBD")]
    return "\n".join(
        (
            f"Claim: at {100 * SPARSITY:.0f} % retraining brings back over half of what magnitude has cost: "
            f"{verdict(of_samples(back))}",
            f"Claim: OBD alone costs over a point at {100 * SPARSITY:.0f} %: {verdict(of_samples(harm, POINT))}",
        )
    )


def generalisation_verdict(measured: dict[str, Any]) -> str:
    """Whether networks that OBS has pruned do better on all 432 robots than before: a case a MONK's problem."""
    effects = []
    for problem in PUBLISHED:
        runs = rows(measured, "monks", problem=problem, method="OBS", refit=False)
        effects.append(of_samples([row["test"] - row["dense_test"] for row in runs]))
    return f"Claim: pruned by OBS, networks are right on more of all 432 than before: {verdict(effects)}"


def _dense_and_pruned(measured: dict[str, Any], method: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Of each network: the row with all weights, and that with a sparsity next to SPARSITY."""
    found = []
    for seed in dict.fromkeys(row["seed"] for row in rows(measured, "digits")):
        curve = rows(measured, "digits", method=method, seed=seed)
        found.append(tuple(min(curve, key=lambda row, at=at: abs(row["sparsity"] - at)) for at in (0.0, SPARSITY)))
    return found
