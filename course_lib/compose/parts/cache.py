"""The key-value cache: which tokens are kept, how many in each layer, and with how many bits."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from course_lib import discover
from course_lib.compose.fields import chosen, exact_percent, settings_of, within
from course_lib.compose.part import Ground, Making, Part
from course_lib.kv import policies
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.quantized import Quantized
from course_lib.kv.vectors import FULL_PRECISION, VectorFormat
from course_lib.models import blocks

POLICIES = {kind.__name__: kind for kind in discover.subclasses(policies, EvictionPolicy)}
OWN = ("budget", "sinks", "recent", "by_layer")  # of every policy
TAKEN = (*OWN, "by_head")
MOST_SLOTS, MOST_FACTOR = 8192, 64.0


@dataclass(frozen=True, kw_only=True)
class CachePart(Part):
    """An eviction policy and a format of vectors.

    Args:
        policy: a class of course_lib/kv/policies; "Full" keeps all: no budget, sinks, recent, by_layer or settings.
        budget: slots of each head, or a fraction of the tokens so far (a decimal number); default: that of the policy.
        sinks, recent: tokens that are never evicted; default: those of the policy.
        by_layer: factors on the budget, one per layer.
        bits: 4 or 8; default: 16. group, residual: of the quantized vectors.
        positions: "original", or "rolling" as StreamingLLM counts them.
        settings: of the policy, such as {"kernel": 7}.
    """

    policy: str = Full.__name__
    budget: int | float | None = None
    sinks: int | None = None
    recent: int | None = None
    by_layer: tuple[float, ...] = ()
    bits: int | None = None
    group: int = 32
    residual: int = 32
    positions: str = "original"
    settings: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "cache"
    place: ClassVar[int] = 4
    forgets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for factor in self.by_layer:
            within("by_layer", factor, 1 / MOST_FACTOR, MOST_FACTOR)
        for name in ("budget", "sinks", "recent", "residual", "group"):
            if (value := getattr(self, name)) is not None:
                within(name, value, 0, MOST_SLOTS)
        if self.bits is None and (self.group, self.residual) != (32, 32):
            raise ValueError("got group or residual without bits; expected bits, or leave them out.")
        if self.positions not in ("original", "rolling"):
            raise ValueError(f'got positions = {self.positions!r}; expected "original" or "rolling".')
        if self.policy == Full.__name__ and (given := [name for name in (*OWN, "settings") if self._is_given(name)]):
            raise ValueError(
                f"got {' and '.join(given)} for the policy Full, which keeps all tokens; expected another policy, such "
                "as H2O, or none of them."
            )
        self.eviction, self.vectors  # noqa: B018, refuse what is no policy and no format

    def _is_given(self, name: str) -> bool:
        return getattr(self, name) not in (None, (), {})

    @property
    def eviction(self) -> EvictionPolicy:
        kind = chosen(self.policy, POLICIES, "policy")
        own = {name: getattr(self, name) for name in OWN if self._is_given(name)}
        return kind(**own, **settings_of(kind, self.settings, TAKEN, self.name))

    @property
    def vectors(self) -> VectorFormat:
        return FULL_PRECISION if self.bits is None else Quantized(self.bits, self.group, self.residual)

    def apply(self, making: Making, ground: Ground) -> Making:
        n_layers = len(blocks(making.model))
        if self.by_layer and len(self.by_layer) != n_layers:
            raise ValueError(f"got {len(self.by_layer)} factors in cache.by_layer; expected {n_layers}, one a layer.")
        opened = partial(evicting, making.model, self.eviction, self.positions, self.vectors)
        return making.with_(self.name, self.eviction, {}, opened)

    def in_words(self) -> str:
        kept, budget = "keeps all tokens", self.eviction.budget
        if not self.eviction.keeps_all:
            slots = f"{budget} slots per head" if isinstance(budget, int) else f"{exact_percent(budget)} of the tokens"
            kept = f"keeps {slots}, chosen by {self.policy}"
        return f"The cache {kept}{'' if self.bits is None else f', in {self.bits} bits'}."
