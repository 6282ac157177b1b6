"""What a model reads and what it should say when a prompt of vectors stands before a text.

Dimension key: B texts, T tokens, P vectors of the prompt, D width, N = P + T places.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

NOT_SCORED = -100  # what cross_entropy leaves out


def with_prompt(
    prompt: Float[Tensor, "P D"], text: Float[Tensor, "B T width"], real: Bool[Tensor, "B T"]
) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"], Int[Tensor, "B N"]]:
    """The vectors [prompt; text], which of them are seen, and the position of each: how many are seen before it.

    Padding, wherever it stands, is not seen and moves nobody. Its own position is 0.
    """
    if prompt.shape[1] != text.shape[2]:
        raise ValueError(
            f"got a prompt of width {prompt.shape[1]} and a text of width {text.shape[2]}; expected those of one model."
        )
    n = prompt.shape[0]
    seen = pad(real, (n, 0), value=True)
    vectors = pad(text, (0, 0, n, 0))
    vectors[:, :n] = prompt
    positions = (seen.long().cumsum(1) - seen.long()) * seen
    return vectors, seen, positions


def targets(ids: Int[Tensor, "B T"], real: Bool[Tensor, "B T"], n_prompt: int) -> Int[Tensor, "B N"]:
    """y_i = the token at place i + 1 of [prompt; text], NOT_SCORED where that is no real token."""
    if n_prompt < 0:
        raise ValueError(f"got a prompt of {n_prompt} vectors; expected 0 or more.")
    real_ids = ids.masked_fill(~real, NOT_SCORED)
    return pad(real_ids, (n_prompt, 1), value=NOT_SCORED).narrow(1, 1, n_prompt + ids.shape[1])
