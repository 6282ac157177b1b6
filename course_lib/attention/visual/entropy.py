"""Measure the information in a patch by the entropy of its grey levels. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: B canvases, P pixels of a side, N patches.
"""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from course_lib.attention.visual.model import patches

LEVELS = 256


def patch_entropy(images: UInt8[Tensor, "B P P"]) -> Float[Tensor, "B N"]:
    """H = −Σ_v p_v log₂ p_v over the 256 grey levels of each patch, in bits (equation 3).

    It is 0 for a single level, and at most log₂ of the number of pixels, for example 4 for 16 pixels.

    Raises:
        ValueError: the images have another size.
    """
    pixels = patches(images).long()
    counts = torch.zeros(*pixels.shape[:2], LEVELS).scatter_add_(2, pixels, torch.ones(pixels.shape))
    share = counts / pixels.shape[2]
    return torch.special.entr(share).sum(dim=2) / torch.log(torch.tensor(2.0))  # 0 · log 0 = 0
