"""Table rows with the perplexity of a model and the loss of every window, so that rows can be compared in pairs."""

import math
from collections.abc import Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.paired import mean_and_error
from course_lib.measure.perplexity import perplexity


def perplexity_row(model: PreTrainedModel, windows: Int[Tensor, "N L"]) -> dict[str, Any]:
    """Measure the perplexity of a model on windows, its standard error, and the loss of each window."""
    result = perplexity(model, windows, progress=False)
    row = {"perplexity": result.value, "standard_error": result.standard_error, "n_tokens": result.n_tokens}
    return row | {"losses": _rounded(result.losses)}


def losses_row(losses: Sequence[float], n_tokens: int) -> dict[str, Any]:
    """Return the same row from known losses, for example those of parts of the windows."""
    mean, error = mean_and_error(losses)
    # A broken model has a very large perplexity, but not too large for a table.
    row = {"perplexity": math.exp(mean), "standard_error": math.exp(mean) * error, "n_tokens": n_tokens}
    return row | {"losses": _rounded(losses)}


def _rounded(losses: Sequence[float]) -> list[float]:
    return [round(loss, 5) for loss in losses]
