"""The compressed models there are. A new one is a line here; how it is stored and kept follows.

Grids are of 64 columns. The default model was rounded to 4 bits once, in groups of 32, and grids of those very groups
might find what that left. These do not: they hold zero, and the rounding error of its weights is within 1 % of that of
the same weights with the lost half steps drawn anew (`before_rounding`), in groups of 64 as in whole rows. A scale and
a zero cost 0.3 bits a weight at 64 columns; whole rows would cost 0.04, and half as much error again.
"""

from course_lib.prompts.compressed.kinds import Compression, Cut, Layerwise
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.quantization.gptq import gptq
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.patterns import NofM, Unstructured

GROUP = 64  # columns that share a scale
HALF, QUARTER = 9 / 16, 5 / 16  # bits a weight of 50 and 75 % sparsity in 16 bits and a bitmap, of 16

SPARSITIES = {"50": 0.5, "62.5": 0.625, "75": 0.75}

CATALOGUE: dict[str, Compression] = {
    **{f"wanda-{name}": Layerwise(Wanda(Unstructured(share, per="row"))) for name, share in SPARSITIES.items()},
    "wanda-2of4": Layerwise(Wanda(NofM(2, 4))),
    **{
        f"sparsegpt-{name}": Layerwise(SparseGPT(Unstructured(share, per="layer")))
        for name, share in SPARSITIES.items()
    },
    "sparsegpt-2of4": Layerwise(SparseGPT(NofM(2, 4))),
    **{f"gptq-{bits}": Layerwise(gptq(Quantization(bits, GROUP))) for bits in (4, 3, 2)},
    "sparsegpt-50-4bit": Layerwise(SparseGPT(Unstructured(0.5, per="layer"), quantization=Quantization(4, GROUP))),
    "minitron-50": Cut(depth=0.8, share=HALF),
    "minitron-75": Cut(depth=0.6, share=QUARTER),
}


def named(name: str) -> Compression:
    """Raises ValueError that lists the names there are."""
    if name not in CATALOGUE:
        raise ValueError(f"got the compressed model {name!r}; expected one of {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]
