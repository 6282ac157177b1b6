"""The row of a table that says how well a model reads, with the loss of every window, so that rows can be paired."""

import math
from collections.abc import Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.paired import mean_and_error
from course_lib.measure.perplexity import perplexity


def perplexity_row(model: PreTrainedModel, windows: Int[Tensor, "N L"]) -> dict[str, Any]:
    """Perplexity of a model on windows, its standard error, and the loss of each window."""
    result = perplexity(model, windows, progress=False)
    row = {"perplexity": result.value, "standard_error": result.standard_error, "n_tokens": result.n_tokens}
    return row | {"losses": _rounded(result.losses)}


def losses_row(losses: Sequence[float], n_tokens: int) -> dict[str, Any]:
    """The same of losses that are known already, of parts of the windows for example."""
    mean, error = mean_and_error(losses)
    # A lost model's perplexity is a large number, but one that a table can hold.
    row = {"perplexity": math.exp(mean), "standard_error": math.exp(mean) * error, "n_tokens": n_tokens}
    return row | {"losses": _rounded(losses)}


def _rounded(losses: Sequence[float]) -> list[float]:
    return [round(loss, 5) for loss in losses]
