"""Checks of routers and layers; each error message says what it got, what was expected, and what to do.

Dimension key: T tokens, E experts.
"""

import torch
from torch import Tensor

from course_lib.settings import check_count, check_number


def check_settings(k: object, capacity_factor: object) -> None:
    """Raise ValueError for a number of experts or a capacity factor that no layer can have."""
    check_count("k", k)
    if capacity_factor is not None:
        check_number("capacity_factor", capacity_factor, above=True)


def check_logits(logits: object, real: object, k: int) -> None:
    """Raise ValueError for logits that cannot be routed. The rows of padding may have any values."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
        what = f"{tuple(logits.shape)} {logits.dtype}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"got logits {what}; expected floats of shape (tokens, experts): flatten sequences first.")
    if logits.is_meta:
        raise ValueError("got logits on the meta device, which hold no numbers; load the model's weights first.")
    n_tokens, n_experts = logits.shape
    if n_experts < 2:
        raise ValueError(f"got {n_experts} expert(s); expected 2 or more: with one there is nothing to choose.")
    if k > n_experts:
        raise ValueError(f"got k = {k} of {n_experts} experts; expected at most {n_experts}. Lower k or add experts.")
    if real is not None and (
        not isinstance(real, Tensor) or real.dtype != torch.bool or real.shape != logits.shape[:1]
    ):
        raise ValueError(
            f"got real {_what(real)}; expected booleans of shape ({n_tokens},), True where a token is real."
        )
    rows = logits if real is None else logits[real]
    if len(rows) == 0:
        raise ValueError(f"got no tokens to route ({n_tokens} rows, all padding); expected at least one.")
    if not bool(rows.isfinite().all()):
        bad = int((~rows.isfinite()).sum())
        raise ValueError(
            f"got logits with {bad} of {rows.numel()} values that are NaN or infinite; expected finite ones. Look for "
            "what diverged before the gate, or mark padding in `real`."
        )


def check_given(needs: str, logits: Tensor, real: object, ids: object, noise: object) -> None:
    """Raise ValueError if a router does not get what it needs in addition to the logits."""
    if needs == "ids" and (not isinstance(ids, Tensor) or ids.shape != logits.shape[:1] or ids.is_floating_point()):
        raise ValueError(f"got ids {_what(ids)}; expected token ids of shape ({len(logits)},): this router reads them.")
    if needs == "noise" and (not isinstance(noise, Tensor) or noise.shape != logits.shape):
        raise ValueError(
            f"got noise {_what(noise)}; expected a second set of logits of shape {tuple(logits.shape)}: this router "
            "learns how much noise it wants."
        )
    if needs == "noise" and not bool((rows := noise if real is None else noise[real]).isfinite().all()):
        raise ValueError(
            f"got noise with {int((~rows.isfinite()).sum())} of {rows.numel()} values that are NaN or infinite; "
            "expected finite ones. Look for what diverged before the gate."
        )


def check_bias(bias: object, n_experts: int | None = None) -> None:
    """Raise ValueError for a router bias that does not have one finite number per expert."""
    if bias is None:
        return
    is_row = isinstance(bias, Tensor) and bias.ndim == 1 and bias.is_floating_point()
    if not is_row or (n_experts is not None and len(bias) != n_experts):
        expected = f"shape ({n_experts},), one number for each expert" if n_experts else "shape (experts,)"
        raise ValueError(f"got bias {_what(bias)}; expected floats of {expected}, or None.")
    if not bool(bias.isfinite().all()):
        raise ValueError(
            f"got a bias with {int((~bias.isfinite()).sum())} of {len(bias)} values that are NaN or infinite; expected "
            "finite ones. Look for NaN in the loads that moved it."
        )


def check_table(table: object) -> None:
    """Raise ValueError for a table of experts that is not a row of integers."""
    if table is not None and (not isinstance(table, Tensor) or table.ndim != 1 or table.is_floating_point()):
        raise ValueError(f"got table {_what(table)}; expected a row of whole numbers, the expert of each id, or None.")


def check_experts(expert: Tensor, n_experts: int) -> None:
    """Raise ValueError for an expert that does not exist."""
    if (low := int(expert.min())) < 0 or (high := int(expert.max())) >= n_experts:
        wrong = low if low < 0 else high
        raise ValueError(f"got expert {wrong} from the table, and {n_experts} experts; expected 0 to {n_experts - 1}.")


def checked_load(load: Tensor) -> Tensor:
    """Return the loads; raise ValueError if a load is NaN or infinite, since their signs would still be numbers."""
    if not bool(load.isfinite().all()):
        raise ValueError(
            f"got loads with {int((~load.isfinite()).sum())} of {load.numel()} values that are NaN or infinite; "
            "expected finite shares. Look for steps without any real token."
        )
    return load


def check_cluster(n_groups: object, kept_groups: object) -> None:
    """Raise ValueError for numbers of groups that no layer can have."""
    check_count("n_groups", n_groups)
    check_count("kept_groups", kept_groups)


def check_groups(n_experts: int, n_groups: int, kept: int, k: int) -> int:
    """Return the number of experts per group. Raise ValueError for groups that are impossible or too small."""
    if n_experts % n_groups or kept > n_groups or k > kept * (n_experts // n_groups):
        raise ValueError(
            f"got {n_experts} experts, {n_groups} groups, {kept} kept, k = {k}; expected groups of one size, "
            "and k or more experts in those that are kept."
        )
    return n_experts // n_groups


def check_capacity(places: int, factor: float, k: int, n_tokens: int, n_experts: int) -> None:
    """Raise ValueError if the capacity of an expert is less than one token."""
    if places < 1:
        least = n_experts / (k * n_tokens)
        raise ValueError(
            f"got a capacity of {factor:g} x {k} x {n_tokens} tokens / {n_experts} experts, below 1 token; expected a "
            f"factor of at least {least:.4g} here, or None for no limit, as when generating token by token."
        )


def _what(value: object) -> str:
    return f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else repr(value)
