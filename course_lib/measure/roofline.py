"""What inference costs: FLOPs, bytes, and the time a device needs at least (its roofline).

Dimension key: O outputs (rows), I inputs (columns), N tokens in a sequence, L blocks.
A multiply-add counts as two FLOPs. Bytes are those that must cross the memory bus once; what stays on the chip is free,
so every time here is a lower bound. GB is 10^9 bytes, GiB is 2^30: 7 % apart, and often confused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from course_lib.settings import check_count, check_flag, check_number

GB = 10**9
GIB = 2**30


@dataclass(frozen=True)
class Device:
    """How fast a device can multiply and how fast it can read; `source` is where the two numbers come from."""

    name: str
    flops_per_second: int | float
    bytes_per_second: int | float
    source: str

    def __post_init__(self) -> None:
        # In FLOP and bytes per second, not tera or giga.
        check_number("flops_per_second", self.flops_per_second, above=True)
        check_number("bytes_per_second", self.bytes_per_second, above=True)

    @property
    def ridge(self) -> float:
        """FLOP/byte at which arithmetic and memory take equally long; below it, memory decides."""
        return self.flops_per_second / self.bytes_per_second


# Peak rates of the makers' data sheets: dense float16 with float32 sums on tensor cores, and memory bandwidth. The
# sheets' headline numbers "with sparsity" are twice these: they count the products that 2:4 skips.
A100 = Device("A100 SXM 80 GB", 312e12, 2.039e12, "NVIDIA A100 data sheet, nvidia.com/en-us/data-center/a100")
H100 = Device("H100 SXM", 989.4e12, 3.35e12, "NVIDIA H100 data sheet, nvidia.com/en-us/data-center/h100")
H200 = Device("H200 SXM", 989.4e12, 4.8e12, "NVIDIA H200 data sheet, nvidia.com/en-us/data-center/h200")


@dataclass(frozen=True)
class Work:
    """FLOPs to compute and bytes to move; the work of two steps adds up."""

    flops: int | float
    bytes: int | float

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    @property
    def intensity(self) -> float:
        """The arithmetic intensity, in FLOP/byte."""
        return self.flops / self.bytes

    def seconds(self, device: Device) -> float:
        """The roofline: the longer of the two times, if arithmetic and memory overlap perfectly."""
        return max(self.flops / device.flops_per_second, self.bytes / device.bytes_per_second)

    def bound(self, device: Device) -> Literal["compute", "memory"]:
        return "compute" if self.intensity > device.ridge else "memory"


def linear_work(
    rows: int,
    columns: int,
    n_tokens: int,
    value_bytes: int = 2,
    n_stored: int | None = None,
    weight_bytes: int | None = None,
) -> Work:
    """The work of one linear layer on n_tokens inputs: 2 Z N FLOPs; weight, inputs and outputs are moved once.

    Args:
        n_stored: weights that are multiplied; all of them when dense.
        weight_bytes: bytes of the weight in its format, such as `encoded.n_bytes`; dense when not given.
    """
    n_stored = rows * columns if n_stored is None else n_stored
    weight_bytes = n_stored * value_bytes if weight_bytes is None else weight_bytes
    return Work(2 * n_stored * n_tokens, weight_bytes + n_tokens * (rows + columns) * value_bytes)


def pass_seconds(
    flops: Sequence[int | float],
    n_bytes: Sequence[int | float],
    flops_per_second: int | float,
    bytes_per_second: int | float,
) -> float:
    """Add up the rooflines of layers that run one after the other: reading overlaps with computing inside a layer only.

    Args:
        flops, n_bytes: of each layer.
    """
    device = Device("any", flops_per_second, bytes_per_second, "given")
    return sum(Work(*layer).seconds(device) for layer in zip(flops, n_bytes, strict=True))


def factor_needed(fraction: float, goal: float) -> float:
    """Compute how many times as fast a part of the time must become for the whole to become `goal` times as fast.

    Amdahl's law solved for the part: (1 − p) + p / s = 1 / g gives s = p / (p − (1 − 1 / g)), where that is positive.

    Args:
        fraction: p, of the time that the part takes now. goal: g.

    Returns:
        The factor s, or 0 if no factor is enough.
    """
    may_take = fraction - (1 - 1 / goal)
    return fraction / may_take if may_take > 0 else 0.0


@dataclass(frozen=True)
class Transformer:
    """The sizes of a Llama-like model: grouped-query attention, a gated MLP of three matrices, two norms per block."""

    n_blocks: int
    width: int
    n_query: int
    n_key_value: int
    head_size: int
    n_neurons: int
    vocabulary: int
    tied: bool = False  # the head is the embedding

    def __post_init__(self) -> None:
        for name in ("n_blocks", "width", "n_query", "n_key_value", "head_size", "n_neurons", "vocabulary"):
            check_count(name, getattr(self, name))
        check_flag("tied", self.tied)

    @classmethod
    def of(cls, model: nn.Module) -> "Transformer":
        """Return the sizes of a loaded Llama-like model."""
        from course_lib import models  # here, since the roofline of a kernel needs no transformers

        blocks, heads, head = models.blocks(model), models.heads(model), models.head(model).weight
        family = models.architecture(blocks[0])
        if len(family.mlp) != 3 or family.fused:
            raise ValueError(f"got a model of the family {family.family}; expected a Llama-like one with a gated MLP")
        return cls(
            len(blocks),
            head.shape[1],
            heads.n_query,
            heads.n_key_value,
            heads.size,
            models.n_neurons(blocks[0]),
            head.shape[0],
            tied=head is model.get_input_embeddings().weight,
        )

    @property
    def block_weights(self) -> int:
        """Entries of the seven matrices of one block: query and output, key and value, gate, up and down."""
        attention = 2 * self.width * self.head_size * (self.n_query + self.n_key_value)
        return attention + 3 * self.width * self.n_neurons

    @property
    def matrix_weights(self) -> int:
        """Weights that every token is multiplied with: those of all blocks and the LM head."""
        return self.n_blocks * self.block_weights + self.vocabulary * self.width

    @property
    def n_weights(self) -> int:
        """All parameters: matrices, norms, and the embedding if it is not tied to the LM head; without biases."""
        norms = (2 * self.n_blocks + 1) * self.width
        return self.matrix_weights + norms + (0 if self.tied else self.vocabulary * self.width)

    def cache_bytes(self, n_tokens: int, batch: int = 1, value_bytes: int = 2) -> int:
        """The key-value cache: 2 L H D values per token, for keys and values of every key-value head in every block.

        For example, Llama-2-70B at 8192 tokens x 64 sequences in float16 has 2 * 80 * 8 * 128 * 2 = 327 680 bytes per
        token, in total 171.8 GB, which is exactly 160 GiB. The often-quoted "140 GB + 160 GB" mixes units: 70e9 * 2
        bytes = 140 GB is decimal and 160 is binary. In one unit it is 140 GB + 172 GB, or 128 GiB + 160 GiB with the
        model's exact number of 68.98e9 parameters. Without grouped-query attention (64 heads) the cache would be 8
        times as large.
        """
        return 2 * self.n_blocks * self.n_key_value * self.head_size * value_bytes * n_tokens * batch

    def attention_flops(self, n_pairs: int) -> int:
        """Scores and weighted sum for n_pairs (query, key) pairs in every head of every block: 4 D FLOPs each."""
        return 4 * self.n_blocks * self.n_query * self.head_size * n_pairs

    def decode_step(self, context: int, batch: int = 1, value_bytes: int = 2, weight_bytes: int | None = None) -> Work:
        """The work of decoding one token for each of `batch` sequences with `context` tokens in the cache.

        It reads every matrix once and the whole cache, and writes one position. `weight_bytes`: bytes of the matrices
        if they are stored sparse (FLOPs are then still those of the dense ones).
        """
        weight_bytes = self.matrix_weights * value_bytes if weight_bytes is None else weight_bytes
        flops = batch * (2 * self.matrix_weights + self.attention_flops(context + 1))
        return Work(flops, weight_bytes + self.cache_bytes(context + 1, batch, value_bytes))

    def prefill(self, n_tokens: int, batch: int = 1, value_bytes: int = 2, weight_bytes: int | None = None) -> Work:
        """The work of reading a prompt of n_tokens: N (N + 1) / 2 causal pairs, logits only for the last token.

        The bytes do not include hidden states: a fused implementation keeps them on the chip. At lengths where they
        would matter, arithmetic is the bottleneck.
        """
        weight_bytes = self.matrix_weights * value_bytes if weight_bytes is None else weight_bytes
        every_token = 2 * self.n_blocks * self.block_weights * n_tokens
        pairs = n_tokens * (n_tokens + 1) // 2
        flops = batch * (every_token + 2 * self.vocabulary * self.width + self.attention_flops(pairs))
        return Work(flops, weight_bytes + self.cache_bytes(n_tokens, batch, value_bytes))


def weight_memory(n_weights: int | float, value_bytes: int) -> int | float:
    """Bytes of n_weights at one width: 7e9 in float32 take 28 GB, 70e9 in float16 take 140 GB."""
    return n_weights * value_bytes


# From the models' published configurations.
LLAMA2_7B = Transformer(32, 4096, 32, 32, 128, 11008, 32000)
LLAMA2_70B = Transformer(80, 8192, 64, 8, 128, 28672, 32000)
