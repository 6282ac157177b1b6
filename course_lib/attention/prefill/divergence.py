"""How far apart two distributions are: Jensen–Shannon divergence. Lin, 1991, https://doi.org/10.1109/18.61115

Dimension key: N outcomes.
"""

from math import log

from jaxtyping import Float
from torch import Tensor
from torch.special import xlogy


def jensen_shannon(p: Float[Tensor, "*rows N"], q: Float[Tensor, "*rows N"]) -> Float[Tensor, "*rows"]:
    """JSD = ½ Σ p log(p/m) + ½ Σ q log(q/m), m = (p + q)/2, in nats: 0 for equals, log 2 where nothing is shared.

    An outcome of probability 0 adds nothing, 0 · log 0 = 0: written as a quotient it would make the whole sum NaN.
    """
    p, q = p.double(), q.double()
    both = p + q  # 2 m, which unlike m is not rounded to 0 where the two are nearly so
    terms = xlogy(p, p) + xlogy(q, q) - xlogy(both, both) + both * log(2)
    return (terms.sum(dim=-1) / 2).clamp(min=0)  # of equals, rounding may leave less than 0
