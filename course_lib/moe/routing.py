"""The seam of every router: from the logits of a gate to who goes where, with which weight.

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
    """What a router may read beside the logits. Without a generator nothing is drawn: that is evaluation."""

    real: Bool[Tensor, "T"]
    ids: Int[Tensor, "T"] | None
    noise: Float[Tensor, "T E"] | None
    generator: torch.Generator | None


@dataclass(frozen=True)
class Router(ABC):
    """Settings only. A router is a subclass with a `_route`; `route` checks what it is given, once.

    `k` is how many experts a token asks for, and `capacity_factor` how many tokens an expert takes, over an equal
    share; None is no limit. Leaves that have the setting declare the field.
    """

    k: ClassVar[int] = 1
    capacity_factor: ClassVar[float | None] = None
    needs: ClassVar[Literal["logits", "ids", "noise"]] = "logits"
    chooses: ClassVar[Literal["experts", "tokens"]] = "experts"  # a token its experts, or an expert its tokens

    def __post_init__(self) -> None:
        check_settings(self.k, self.capacity_factor)

    @property
    def is_causal(self) -> bool:
        """Whether no token's routing depends on later ones of its group."""
        return True

    @property
    def learns(self) -> bool:
        """Whether the loss behind the experts has a gradient for the logits."""
        return True

    @property
    def weight_sum(self) -> tuple[float, float]:
        """Between which two numbers the weights of a token sum up."""
        return 1.0, 1.0

    @property
    def is_grouped(self) -> bool:
        """Whether tokens compete for places, so that it matters which of them are routed together."""
        return self.capacity_factor is not None

    def perturb(self, tokens: Float[Tensor, "T D"], generator: torch.Generator) -> Float[Tensor, "T D"]:
        """What the gate reads while training, in place of the tokens. The experts read the tokens themselves."""
        return tokens

    def capacity(self, n_tokens: int, n_experts: int) -> int:
        """How many of `n_tokens` one expert takes: c k T / E, rounded down.

        Raises:
            ValueError: where that is less than one token.
        """
        if self.capacity_factor is None:
            return n_tokens
        places = int(
            self.capacity_factor * self.k * n_tokens / n_experts + 1e-6
        )  # 0.3 of 10 is 3, whatever binary says
        check_capacity(places, self.capacity_factor, self.k, n_tokens, n_experts)
        return places

    def route(
        self,
        logits: Float[Tensor, "T E"],
        real: Bool[Tensor, "T"] | None = None,
        ids: Int[Tensor, "T"] | None = None,
        noise: Float[Tensor, "T E"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Routing:
        """Weights and probabilities of one group of tokens, in float32 at least.

        Args:
            real: False for padding, which goes nowhere, takes no place and is in no load.
            ids: of the tokens, for a router that looks at nothing else.
            noise: a second set of logits, for a router that learns how much noise it wants.
            generator: while training; without it nothing is drawn.

        Raises:
            ValueError: k above E, fewer than two experts, no tokens, logits that are not finite, less than one place.
        """
        check_logits(logits, real, self.k)
        check_given(self.needs, logits, real, ids, noise)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if real is None:  # a token alone is routed in a few microseconds, so nothing is done for padding without any
            real = torch.ones(len(logits), dtype=torch.bool, device=logits.device)
            return replace(self._route(logits, Given(real, ids, noise, generator)), logits=logits, real=real)
        logits = logits.where(real[:, None], 0)
        routing = self._route(logits, Given(real, ids, noise, generator))
        return replace(routing.without(~real), logits=logits, real=real)

    @abstractmethod
    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        """The routing, for logits already checked and zero where there is padding."""
