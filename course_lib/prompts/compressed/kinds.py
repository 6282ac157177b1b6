"""Two ways to compress: layer by layer, which leaves the shape of a model alone, or a cut to a smaller shape."""

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
    """What is done to a model; a text of the same settings is the same compression (`repr`)."""

    layout: Layout

    @abstractmethod
    def compress(
        self, model: PreTrainedModel, calibration: Int[Tensor, "n N"], progress: bool = True
    ) -> tuple[PreTrainedModel, dict[str, Tensor]]:
        """A compressed copy, and what beside its linears is needed to build it again. The model stays as it is."""

    def rebuilt(self, model: PreTrainedModel, beside: dict[str, Tensor]) -> PreTrainedModel:
        """A copy of the compressed shape, with the dense model's embeddings and norms, whose linears are to come."""
        return copy.deepcopy(model)

    def sources(self, model: PreTrainedModel, beside: dict[str, Tensor]) -> PreTrainedModel:
        """The model from whose linears grids are fixed, of the compressed shape."""
        return model


@dataclass(frozen=True)
class Layerwise(Compression):
    """Pruned or rounded by `prune_model`; how it is stored follows from the pattern and the bits."""

    pruner: LayerPruner

    @property
    def layout(self) -> Layout:
        quantization, pattern = getattr(self.pruner, "quantization", None), self.pruner.pattern
        prunes = not (isinstance(pattern, Unstructured) and pattern.sparsity == 0)
        if quantization is not None:
            return NonZeroCodes(quantization) if prunes else Codes(quantization)
        return Grouped(pattern.n, pattern.m) if isinstance(pattern, NofM) else NonZeros()

    def compress(
        self, model: PreTrainedModel, calibration: Int[Tensor, "n N"], progress: bool = True
    ) -> tuple[PreTrainedModel, dict[str, Tensor]]:
        smaller = copy.deepcopy(model)
        prune_model(smaller, self.pruner, calibration, progress)
        return smaller, {}


@dataclass(frozen=True)
class Cut(Compression):
    """Minitron's cut: whole blocks by their influence and, in those that stay, neurons by activations.

    The width stays, and with it the embeddings, so that prompts go over. As many neurons stay as a share of the bytes
    of the blocks pays for.

    Args:
        depth: share of the blocks that stay.
        share: of the parameters of the blocks.
    """

    depth: float
    share: float
    layout: Layout = field(default_factory=Halves)
    scorer: Scorer = field(default_factory=lambda: Minitron("l2", "l2"))

    def shape(self, model: PreTrainedModel) -> Shape:
        """The largest within the share.

        Raises:
            ValueError: when the blocks that stay are too large with a single neuron.
        """
        now, count = shape_of(model), counter(model)
        n_blocks = round(self.depth * now.blocks)
        linears = sum(weight_of(layer.module).numel() for layer in layers_of(model))
        most = count(now) - linears + self.share * linears
        fitting = [n for n in range(1, now.neurons + 1) if count(replace(now, blocks=n_blocks, neurons=n)) <= most]
        if not fitting or not 1 <= n_blocks <= now.blocks:
            raise ValueError(
                f"got {n_blocks} blocks in {self.share:.0%} of the parameters of {now.blocks}; not one neuron "
                "would fit in. Keep fewer blocks, or a larger share."
            )
        return replace(now, blocks=n_blocks, neurons=fitting[-1])

    def compress(
        self, model: PreTrainedModel, calibration: Int[Tensor, "n N"], progress: bool = True
    ) -> tuple[PreTrainedModel, dict[str, Tensor]]:
        evidence = Evidence(model, calibration, progress)
        scores = self.scorer.score(evidence) | BlockInfluence().score(evidence)
        kept = choose(scores, shape_of(model), self.shape(model))
        return take(model, kept), {f"kept.{name}": getattr(kept, name) for name in KEPT}

    def rebuilt(self, model: PreTrainedModel, beside: dict[str, Tensor]) -> PreTrainedModel:
        return take(model, Kept(**{name: beside[f"kept.{name}"] for name in KEPT}))

    sources = rebuilt
