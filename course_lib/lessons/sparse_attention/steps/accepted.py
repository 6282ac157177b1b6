"""Which drafted tokens stay, with the random numbers given: speculative decoding, one pass.

Dimension key: k drafted tokens, V words of the vocabulary.
"""

from jaxtyping import Float, Int
from torch import Tensor

from course_lib.attention.speculative.accept import residual


def stays_and_next(
    drafted: Int[Tensor, "k"], q: Float[Tensor, "k V"], p: Float[Tensor, "k+1 V"], luck: Float[Tensor, "k"]
) -> tuple[int, Float[Tensor, "V"]]:
    """How many of the drafted tokens stay, and the distribution of the token behind them: of equation 1's k + 1.

    Token i stays where luck_i < min(1, p_i(x) / q_i(x)); the first that does not ends the pass, and another is drawn
    from (p − q)₊ / Σ (p − q)₊. `attention/speculative/accept.verify` draws both by a generator.
    """
    if len(p) != len(drafted) + 1:
        raise ValueError(f"got {len(p)} distributions of the model for {len(drafted)} tokens; expected one more.")
    for i, token in enumerate(drafted.tolist()):
        if not luck[i] < p[i, token] / q[i, token]:
            return i, residual(p[i], q[i])
    return len(drafted), p[-1]
