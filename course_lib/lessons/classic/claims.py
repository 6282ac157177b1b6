"""Claims of the decks on retraining, from the measurement of the digits: networks are the sample."""

from typing import Any

from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import of_samples, verdict

SPARSITY = 0.7  # at which the decks' example is pruned
POINT = 0.01  # of the test digits


def retraining_verdict(measured: dict[str, Any]) -> str:
    """What pruning at once costs at 70 %, and how much of it one retraining brings back."""
    back = [
        (near["retrained"] - near["pruned"]) - 0.5 * (dense["pruned"] - near["pruned"])
        for dense, near in _pairs(measured, "magnitude")
    ]
    harm = [dense["pruned"] - near["pruned"] for dense, near in _pairs(measured, "OBD")]
    return "\n".join(
        (
            f"Claim: at {100 * SPARSITY:.0f} % retraining brings back over half of what magnitude has cost: "
            f"{verdict(of_samples(back))}",
            f"Claim: OBD alone costs over a point at {100 * SPARSITY:.0f} %: {verdict(of_samples(harm, POINT))}",
        )
    )


def _pairs(measured: dict[str, Any], method: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Of each network: the row with all weights, and that with a sparsity next to SPARSITY."""
    found = []
    for seed in dict.fromkeys(row["seed"] for row in rows(measured, "digits")):
        curve = rows(measured, "digits", method=method, seed=seed)
        found.append(tuple(min(curve, key=lambda row, at=at: abs(row["sparsity"] - at)) for at in (0.0, SPARSITY)))
    return found
