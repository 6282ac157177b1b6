"""The catalogue of compressed models. A new model is one entry of CATALOGUE; its storage layout follows from that.

Quantization grids cover 64 columns. The default model's weights were already rounded to 4 bits in groups of 32, so
grids over these groups could recover the rounded values and understate the error. Groups of 64 and whole rows do not:
their rounding error is within 1 % of the error for weights with random rounding noise added (`before_rounding`). A
scale and a zero point cost 0.3 bits per weight in groups of 64; for whole rows they would cost 0.04 bits, with 1.5
times the rounding error.
"""

from course_lib.prompts.compressed.kinds import Compression, Cut, Layerwise
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.quantization.gptq import gptq
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.patterns import NofM, Unstructured

GROUP = 64  # columns that share a scale
# Size of a 50 % and a 75 % sparse matrix relative to 16 bits per weight: (16 (1 − sparsity) + 1 bit of bitmap) / 16.
HALF, QUARTER = 9 / 16, 5 / 16

SPARSITIES = {"50": 0.5, "62.5": 0.625, "75": 0.75}

CATALOGUE: dict[str, Compression] = {
    **{f"wanda-{name}": Layerwise(Wanda(Unstructured(sparsity, per="row"))) for name, sparsity in SPARSITIES.items()},
    "wanda-2of4": Layerwise(Wanda(NofM(2, 4))),
    **{
        f"sparsegpt-{name}": Layerwise(SparseGPT(Unstructured(sparsity, per="layer")))
        for name, sparsity in SPARSITIES.items()
    },
    "sparsegpt-2of4": Layerwise(SparseGPT(NofM(2, 4))),
    **{f"gptq-{bits}": Layerwise(gptq(Quantization(bits, GROUP))) for bits in (4, 3, 2)},
    "sparsegpt-50-4bit": Layerwise(SparseGPT(Unstructured(0.5, per="layer"), quantization=Quantization(4, GROUP))),
    "minitron-50": Cut(depth=0.8, share=HALF),
    "minitron-75": Cut(depth=0.6, share=QUARTER),
}


def named(name: str) -> Compression:
    """Return the compression with this name. Raises ValueError, which lists the names, for an unknown one."""
    if name not in CATALOGUE:
        raise ValueError(f"got the compressed model {name!r}; expected one of {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]
