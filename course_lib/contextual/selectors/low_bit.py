"""A low-bit copy of gate and up; with one bit, Shin, Yang, Yi, SparseInfer, 2024, https://arxiv.org/abs/2411.12692

Dimension key: T tokens, n windows of N tokens, F neurons.
"""

from dataclasses import dataclass, field, replace

from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import Packed, dense_bytes


@dataclass(frozen=True, eq=False, kw_only=True)
class LowBit(NeuronSelector):
    """score_i = |ĥ_i| ‖w_i‖, with ĥ computed from quantized gate and up: this needs no training and no calibration.

    Deviation: SparseInfer compares only the signs of weights and inputs, for ReLU.
    """

    bits: int = 2
    group: int = 64
    copies: tuple[Neurons, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        Quantization(self.bits, self.group)  # raises ValueError for invalid settings

    @property
    def n_bytes(self) -> int:
        """The packed size of codes, scales and zeros in bytes; the copies in memory are unpacked and larger."""
        return sum(self._packed_bytes(copy) for copy in self.copies or ())

    def _packed_bytes(self, copy: Neurons) -> int:
        return (1 if copy.gate is None else 2) * dense_bytes(copy.n, copy.width, self.bits, self.group)

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        return replace(self, copies=tuple(self._rounded(each) for each in neurons_of(model)))

    def _rounded(self, neurons: Neurons) -> Neurons:
        gate = None if neurons.gate is None else self._stored(neurons.gate)
        return replace(neurons, gate=gate, up=self._stored(neurons.up))

    def _stored(self, weight: Float[Tensor, "F D"]) -> Float[Tensor, "F D"]:
        grid = Quantization(self.bits, self.group).grid(weight)
        return Packed.encode(weight, grid).decode().to(weight.dtype)

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.copies)
        return seen.neurons.importance(self.copies[block].values(seen.x))
