"""The row of a table that says how well a model reads, with the loss of every window, so that rows can be paired."""

import math
from collections.abc import Sequence
from typing import Any

from course_lib.measure.paired import mean_and_error


def losses_row(losses: Sequence[float], n_tokens: int) -> dict[str, Any]:
    """Perplexity, its standard error by the delta method, and the loss of every window."""
    mean, error = mean_and_error(losses)
    # A lost model's perplexity is a large number, but one that a table can hold.
    row = {"perplexity": math.exp(mean), "standard_error": math.exp(mean) * error, "n_tokens": n_tokens}
    return row | {"losses": [round(loss, 5) for loss in losses]}
