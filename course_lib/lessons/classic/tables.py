"""The tables of lesson 02, from the stored results."""

from collections.abc import Mapping
from typing import Any

from course_lib.lessons.classic.claims import METHODS
from course_lib.lessons.classic.experiments.small import REFERENCE, Result, stored
from course_lib.lessons.common.results import load_measured, origin, rows
from course_lib.lessons.common.table import Table, plus_minus
from course_lib.measure.paired import mean_and_error

Results = Mapping[str, Any]


def provenance(results: Results | None = None) -> str:
    """Return what was run, where, when, and with how many networks."""
    results = results or load_measured("classic")
    sizes = results["sizes"]
    n_networks = (
        f"{sizes['xor_starts']} XOR networks for each weight decay, {sizes['monks_seeds']} networks for each MONK's "
        f"problem, {sizes['digits_seeds']} for the digits"
    )
    return origin(results, n_networks, weights="")


def xor(results: Results | None = None) -> Table:
    """Count the XOR networks that are right after one deletion, by choice of the weight and update of the others."""
    results = results or load_measured("classic")
    table = []
    for method in METHODS:
        of_method = rows(results, "xor", method=method)
        counts = {key: sum(row[key] for row in of_method) for key in ("right_without", "right_with_update")}
        fixed, updated = counts.values()
        table.append({"choice of the weight": method, "others fixed": fixed, "others updated by OBS": updated})
    decays = [f"{row['decay']:.0e}" for row in of_method]
    return Table(
        table,
        caption=f"Of {sum(row['n_nets'] for row in of_method)} XOR networks, right after one deletion",
        note=f"All trained networks that solve XOR, with a weight decay of {', '.join(decays[:-1])} or {decays[-1]}.",
    )


def smallest(attempt: list[Result] | None = None, ideas: Mapping[str, list[Result]] | None = None) -> Table:
    """Compare ideas for the open task with OBS alone, network by network; your attempt comes last."""
    ideas = ideas or stored()
    reference, table = ideas[REFERENCE], []
    for name, results in {**ideas, **({"yours": attempt} if attempt else {})}.items():
        mean, error = mean_and_error([float(result.n_left) for result in results])
        solved = [result.n_left for result in results if result.solved]
        pairs = [float(other.n_left - result.n_left) for other, result in zip(reference, results, strict=True)]
        fewer, error_of_fewer = (None, None) if results is reference else mean_and_error(pairs)
        table.append(
            {"idea": name, "remaining weights": mean, "error": error, "fewest": min(solved, default=None)}
            | {"networks that are right": len(solved), "of": len(results)}
            | {"fewer than OBS alone": fewer, "error of fewer": error_of_fewer}
        )
    return Table(
        table,
        caption="How few weights each idea leaves",
        formats={
            ("remaining weights", "error"): plus_minus(1),
            ("networks that are right", "of"): "{} of {}".format,
            ("fewer than OBS alone", "error of fewer"): plus_minus(1, sign=True),
        },
        note="± one standard error over the networks. A network is right if it classifies all 432 robots correctly; "
        "fewest: the fewest weights of such a network.",
    )


def in_words(n_bytes: int | float) -> str:
    """Write a number of bytes with its unit: 1,300,000 as 1.3 MB."""
    for unit, size in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.3g} {unit}"
    return f"{n_bytes:.0f} bytes"
