"""The base class of all routers, which turn the logits of a gate into a `Routing`.

Dimension key: T tokens, E experts, D width of a token.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.moe.checks import check_capacity, check_given, check_logits, check_settings
from course_lib.moe.routed import Routing


@dataclass(frozen=True, eq=False)
class Given:
    """A router's inputs in addition to the logits. Without a generator, as in evaluation, nothing is random."""

    real: Bool[Tensor, "T"]
    ids: Int[Tensor, "T"] | None
    noise: Float[Tensor, "T E"] | None
    generator: torch.Generator | None


@dataclass(frozen=True)
class Router(ABC):
    """A router holds settings only. Subclasses implement `_route`; `route` validates the inputs once for all of them.

    `k` is the number of experts per token. `capacity_factor` is the maximal number of tokens per expert, relative to an
    even distribution, k T / E; None means no limit. Subclasses with these settings declare them as fields.
    """

    k: ClassVar[int] = 1
    capacity_factor: ClassVar[float | None] = None
    needs: ClassVar[Literal["logits", "ids", "noise"]] = "logits"
    chooses: ClassVar[Literal["experts", "tokens"]] = "experts"  # tokens choose experts, or experts tokens

    def __post_init__(self) -> None:
        check_settings(self.k, self.capacity_factor)

    @property
    def is_causal(self) -> bool:
        """Whether a token's routing is independent of the later tokens in its group."""
        return True

    @property
    def learns(self) -> bool:
        """Whether the model's loss has a gradient with respect to the logits."""
        return True

    @property
    def weight_sum(self) -> tuple[float, float]:
        """Lower and upper bound on the sum of a token's weights."""
        return 1.0, 1.0

    @property
    def is_grouped(self) -> bool:
        """Whether tokens compete for expert capacity, so that a token's routing depends on its group."""
        return self.capacity_factor is not None

    def perturb(self, tokens: Float[Tensor, "T D"], generator: torch.Generator) -> Float[Tensor, "T D"]:
        """Return the gate's input during training, such as jittered tokens. The experts get the tokens unchanged."""
        return tokens

    def capacity(self, n_tokens: int, n_experts: int) -> int:
        """Return the capacity of one expert in tokens: ⌊c k T / E⌋, with c the capacity factor.

        Raises:
            ValueError: the capacity is less than one token.
        """
        if self.capacity_factor is None:
            return n_tokens
        # 1e-6 makes up for binary rounding: a product such as 0.3 · 10 has to give 3, not 2.
        capacity = int(self.capacity_factor * self.k * n_tokens / n_experts + 1e-6)
        check_capacity(capacity, self.capacity_factor, self.k, n_tokens, n_experts)
        return capacity

    def route(
        self,
        logits: Float[Tensor, "T E"],
        real: Bool[Tensor, "T"] | None = None,
        ids: Int[Tensor, "T"] | None = None,
        noise: Float[Tensor, "T E"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Routing:
        """Route one group of tokens. The tables of the result are float32, or float64 for float64 logits.

        Args:
            real: False for padding, which no expert processes and which counts in no capacity and no load.
            ids: token ids, for a router that chooses by id alone (hash layers).
            noise: a second set of logits, from which noisy top-k computes the standard deviation of its noise.
            generator: source of random numbers during training; None in evaluation, which draws none.

        Raises:
            ValueError: k above E, fewer than two experts, no tokens, logits that are not finite, or a capacity of less
                than one token.
        """
        check_logits(logits, real, self.k)
        check_given(self.needs, logits, real, ids, noise)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if real is None:  # decoding routes one token in microseconds, so we skip the work for padding
            real = torch.ones(len(logits), dtype=torch.bool, device=logits.device)
            return replace(self._route(logits, Given(real, ids, noise, generator)), logits=logits, real=real)
        logits = logits.where(real[:, None], 0)
        routing = self._route(logits, Given(real, ids, noise, generator))
        return replace(routing.without(~real), logits=logits, real=real)

    @abstractmethod
    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        """Return the routing. `route` has validated the logits and set the rows of padding to zero."""
