"""Check that tensors are finite before their values are compared."""

import torch
from torch import Tensor


def check_finite(what: str, *tensors: Tensor) -> None:
    """Raise ValueError if tensors contain NaN or infinity, so that no choice depends on comparing with these."""
    if all(tensor.is_cuda for tensor in tensors):  # one read and one wait; NaN is both minimum and maximum
        ends = [end.float() for tensor in tensors for end in tensor.aminmax()]
        if bool(torch.stack(ends).isfinite().all()):
            return
    bad = sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    if bad:
        n_all = sum(tensor.numel() for tensor in tensors)
        raise ValueError(
            f"got {what} of which {bad} of {n_all} values are NaN or infinite; expected numbers. Look for NaN in the "
            "model's weights, or for an overflow."
        )
