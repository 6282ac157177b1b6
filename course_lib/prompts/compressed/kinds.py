"""Two kinds of compression: layer by layer in the model's own shape, or structured pruning to a smaller shape."""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.models import layers_of, weight_of
from course_lib.prompts.compressed.layouts import Codes, Grouped, Halves, Layout, NonZeroCodes, NonZeros
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.sequential import prune_model
from course_lib.pruning.structured.choice import Kept, choose
from course_lib.pruning.structured.scorer import Evidence, Scorer
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.shape import Shape, counter, shape_of
from course_lib.pruning.structured.surgery import take
from course_lib.sparsity.patterns import NofM, Unstructured

KEPT = ("blocks", "width", "neurons", "heads", "groups")


class Compression(ABC):
    """How a model is compressed and stored. The `repr` lists all settings and so identifies a compression."""

    layout: Layout

    @abstractmethod
    def compress(
        self, model: PreTrainedModel, calibration: Int[Tensor, "n N"], progress: bool = True
    ) -> tuple[PreTrainedModel, dict[str, Tensor]]:
        """Compress a copy. Returns it, and the tensors that `rebuilt` needs in addition to the linear weights."""

    def rebuilt(self, model: PreTrainedModel, beside: dict[str, Tensor]) -> PreTrainedModel:
        """Build a model of the compressed shape with the dense model's embeddings and norms.

        The weights of its linears are decoded later. `compress` returned the additional tensors.
        """
        return copy.deepcopy(model)

    def sources(self, model: PreTrainedModel, beside: dict[str, Tensor]) -> PreTrainedModel:
        """Return the model of the compressed shape whose dense linears determine the quantization grids."""
        return model


@dataclass(frozen=True)
class Layerwise(Compression):
    """Pruning or quantization by `prune_model`. The layout follows from the sparsity pattern and the bits."""

    pruner: LayerPruner

    @property
    def layout(self) -> Layout:
        quantization, pattern = getattr(self.pruner, "quantization", None), self.pruner.pattern
        is_sparse = not (isinstance(pattern, Unstructured) and pattern.sparsity == 0)
        if quantization is not None:
            return NonZeroCodes(quantization) if is_sparse else Codes(quantization)
        # Not quantized: N:M in groups, every other pattern with a bitmap.
        return Grouped(pattern.n, pattern.m) if isinstance(pattern, NofM) else NonZeros()

    def compress(
        self, model: PreTrainedModel, calibration: Int[Tensor, "n N"], progress: bool = True
    ) -> tuple[PreTrainedModel, dict[str, Tensor]]:
        smaller = copy.deepcopy(model)
        prune_model(smaller, self.pruner, calibration, progress)
        return smaller, {}


@dataclass(frozen=True)
class Cut(Compression):
    """Structured pruning as in Minitron: blocks by block influence, then neurons of the kept blocks by activations.

    The width and the embeddings stay unchanged, so prompts transfer. `shape` keeps as many neurons as fit into the
    budget of parameters.

    Args:
        depth: fraction of the blocks to keep.
        share: budget, as a fraction of the parameters in the linear layers of all blocks.
    """

    depth: float
    share: float
    layout: Layout = field(default_factory=Halves)
    scorer: Scorer = field(default_factory=lambda: Minitron("l2", "l2"))

    def shape(self, model: PreTrainedModel) -> Shape:
        """Return the shape with the most neurons within the budget.

        Raises:
            ValueError: the kept blocks exceed the budget even with one neuron each.
        """
        full, count = shape_of(model), counter(model)
        n_blocks = round(self.depth * full.blocks)
        linears = sum(weight_of(layer.module).numel() for layer in layers_of(model))
        # Limit: all parameters outside the linears, and the given fraction of those in the linears.
        limit = count(full) - linears + self.share * linears
        n_fitting = [n for n in range(1, full.neurons + 1) if count(replace(full, blocks=n_blocks, neurons=n)) <= limit]
        if not n_fitting or not 1 <= n_blocks <= full.blocks:
            raise ValueError(
                f"got {n_blocks} blocks in {self.share:.0%} of the parameters of {full.blocks} blocks; not even one "
                "neuron fits. Lower depth, or raise share."
            )
        return replace(full, blocks=n_blocks, neurons=n_fitting[-1])

    def compress(
        self, model: PreTrainedModel, calibration: Int[Tensor, "n N"], progress: bool = True
    ) -> tuple[PreTrainedModel, dict[str, Tensor]]:
        evidence = Evidence(model, calibration, progress)
        scores = self.scorer.score(evidence) | BlockInfluence().score(evidence)
        selection = choose(scores, shape_of(model), self.shape(model))
        return take(model, selection), {f"kept.{name}": getattr(selection, name) for name in KEPT}

    def rebuilt(self, model: PreTrainedModel, beside: dict[str, Tensor]) -> PreTrainedModel:
        return take(model, Kept(**{name: beside[f"kept.{name}"] for name in KEPT}))

    sources = rebuilt
