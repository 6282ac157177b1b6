"""What a prompt wins, from the losses of the same windows with and without it.

Dimension key: N windows, T tokens of a window, P vectors of the prompt.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


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
    apart = (prompted.narrow(1, n_prompt, plain.shape[1]).double() - plain.double()).masked_fill(~scored, 0)
    of_window = apart.sum(1) / scored.sum(1)
    variance, mean = torch.var_mean(of_window)
    ratio = mean.exp()
    return ratio.to(plain.dtype), (ratio * (variance / len(plain)).sqrt()).to(plain.dtype)


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
    any_model = dense.double() - dense_own
    both = torch.stack([plain.double() - moved - any_model, plain.double() - own - any_model])
    of_moved, of_own = both.mean(dim=1)
    share = of_moved / of_own
    left = both[0] - share * both[1]
    error = left.std() / (len(left) ** 0.5 * of_own.abs())
    return share.to(plain.dtype), error.to(plain.dtype)
