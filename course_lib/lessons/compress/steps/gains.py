"""What a prompt wins, from the losses of the same windows with and without it.

Dimension key: N windows, T tokens of a window, P vectors of the prompt.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.prompts import transfer


def paired_ratio(
    prompted: Float[Tensor, "N prompted"], plain: Float[Tensor, "N plain"], real: Bool[Tensor, "N T"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """exp(mean of d) and its standard error, d = a window's loss with the prompt less without.

    Args:
        prompted: (N, P + T − 1), the loss of predicting what stands behind each place, 0 where that is the prompt.
        plain: (N, T − 1), without a prompt. Token 0 has a loss in `prompted` alone, and is left out of both.
    """
    n_prompt = prompted.shape[1] - plain.shape[1]
    if plain.shape[1] != real.shape[1] - 1 or n_prompt < 1:
        raise ValueError(
            f"got {prompted.shape[1]} losses with a prompt and {plain.shape[1]} without for {real.shape[1]} tokens; "
            "expected P + T − 1 and T − 1, with P of at least 1."
        )
    scored = real.narrow(1, 1, plain.shape[1])
    behind = prompted.narrow(1, n_prompt, plain.shape[1])
    of_windows = (losses.double().masked_fill(~scored, 0).sum(1) / scored.sum(1) for losses in (behind, plain))
    return _as_tensors(transfer.paired_ratio(*of_windows), plain)


def share_that_goes_over(
    plain: Float[Tensor, "N"],
    own: Float[Tensor, "N"],
    moved: Float[Tensor, "N"],
    dense: Float[Tensor, "N"],
    dense_own: Float[Tensor, "N"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """mean(a) / mean(b) with its standard error, s = std(a − share · b) / (√N |mean(b)|), the delta method.

    a and b are what the moved and the own prompt win on the compressed model, beyond what its own prompt wins on the
    dense one: share 1 is as good as a prompt that was trained for this model, share 0 no better than for any model.

    Args:
        plain, own, moved: losses of the compressed model's windows without a prompt, with its own, with the moved one.
        dense, dense_own: of the dense model, without a prompt and with its own.
    """
    if len(plain) < 2:
        raise ValueError(f"got {len(plain)} windows; expected at least two, for an error.")
    lists = (losses.double() for losses in (moved, own, plain))
    return _as_tensors(transfer.share(*transfer.gains_beyond(*lists, (dense.double(), dense_own.double()))), plain)


def _as_tensors(ratio: transfer.Ratio, like: Tensor) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    return like.new_tensor(ratio.value), like.new_tensor(ratio.standard_error)
