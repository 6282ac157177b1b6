"""Jensen–Shannon divergence between two distributions. Lin, 1991, https://doi.org/10.1109/18.61115

Dimension key: N outcomes.
"""

from math import log

from jaxtyping import Float
from torch import Tensor
from torch.special import xlogy


def jensen_shannon(p: Float[Tensor, "*rows N"], q: Float[Tensor, "*rows N"]) -> Float[Tensor, "*rows"]:
    """JSD = ½ Σ p log(p/m) + ½ Σ q log(q/m), m = (p + q)/2, in nats: 0 if p = q, log 2 if they have nothing in common.

    An outcome of probability 0 adds 0 · log 0 = 0; with the logarithm of a quotient the whole sum would be NaN.
    """
    p, q = p.double(), q.double()
    both = p + q  # 2 m, which unlike m is not rounded to 0 if p and q are tiny
    terms = xlogy(p, p) + xlogy(q, q) - xlogy(both, both) + both * log(2)
    return (terms.sum(dim=-1) / 2).clamp(min=0)  # for equal distributions, rounding may give less than 0
