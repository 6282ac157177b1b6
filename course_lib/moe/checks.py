"""What routers and layers refuse: got what, expected what, and what to do.

Dimension key: T tokens, E experts.
"""

from numbers import Integral, Real

import torch
from torch import Tensor


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raises ValueError for anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"got {name} {value!r}; expected a whole number, {least} or more.")


def check_number(name: str, value: object, least: float = 0.0, above: bool = False) -> None:
    """Raises ValueError for anything but a finite number of at least `least`, or above it."""
    number = isinstance(value, Real) and not isinstance(value, bool) and value < float("inf")
    if not number or not (value > least if above else value >= least):
        raise ValueError(f"got {name} {value!r}; expected a number {'above' if above else 'of at least'} {least:g}.")


def check_settings(k: object, capacity_factor: object) -> None:
    """Raises ValueError for a count of experts or a capacity that no layer can have."""
    check_count("k", k)
    if capacity_factor is not None:
        check_number("capacity_factor", capacity_factor, above=True)


def check_logits(logits: object, real: object, k: int) -> None:
    """Raises ValueError for what cannot be routed. Rows of padding may hold anything."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
        what = f"{tuple(logits.shape)} {logits.dtype}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"got logits {what}; expected floats of shape (tokens, experts): flatten sequences first.")
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
    """Raises ValueError where a router is not given what it reads beside the logits."""
    if needs == "ids" and (not isinstance(ids, Tensor) or ids.shape != logits.shape[:1] or ids.is_floating_point()):
        raise ValueError(f"got ids {_what(ids)}; expected token ids of shape ({len(logits)},): this router reads them.")
    if needs == "noise" and (not isinstance(noise, Tensor) or noise.shape != logits.shape):
        raise ValueError(
            f"got noise {_what(noise)}; expected a second set of logits of shape {tuple(logits.shape)}: this router "
            "learns how much noise it wants."
        )


def check_groups(n_experts: int, n_groups: int, kept: int, k: int) -> int:
    """The size of a group. Raises ValueError for groups of experts that cannot be made, or hold too few."""
    check_count("kept_groups", kept)
    if n_experts % n_groups or kept > n_groups or k > kept * (n_experts // n_groups):
        raise ValueError(
            f"got {n_experts} experts, {n_groups} groups, {kept} kept, k = {k}; expected groups of one size, "
            "and k or more experts in those that are kept."
        )
    return n_experts // n_groups


def check_capacity(places: int, factor: float, k: int, n_tokens: int, n_experts: int) -> None:
    """Raises ValueError where an expert would take no token at all."""
    if places < 1:
        least = n_experts / (k * n_tokens)
        raise ValueError(
            f"got a capacity of {factor:g} x {k} x {n_tokens} tokens / {n_experts} experts, below 1 token; expected a "
            f"factor of at least {least:.4g} here, or None for no limit, as when generating token by token."
        )


def _what(value: object) -> str:
    return f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else repr(value)
