"""The models of bytes that are compared, by name: a router over the experts, and what keeps their loads in balance."""

from dataclasses import dataclass, field

from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.switch import Switch
from course_lib.moe.routing import Router
from course_lib.moe.small_models.training import Balancing


@dataclass(frozen=True)
class Kind:
    """k experts a byte; no router is the dense model. `speed` is that of DeepSeek's bias."""

    router: Router | None = None
    k: int = 1
    balancing: Balancing = field(default_factory=Balancing)
    speed: float = 0.0


BALANCED = Balancing(alpha=0.01)
PLAIN_SWITCH = Switch(capacity_factor=None, jitter=0.0)
KINDS = {
    "dense": Kind(),
    "top-1": Kind(PLAIN_SWITCH, 1),
    "top-1, balanced": Kind(PLAIN_SWITCH, 1, BALANCED),
    "top-2": Kind(Mixtral(2), 2),
    "top-2, balanced": Kind(Mixtral(2), 2, BALANCED),
    "top-1, balanced, jitter": Kind(Switch(None, jitter=0.01), 1, BALANCED),
    "top-2, balanced, z-loss": Kind(Mixtral(2), 2, Balancing(alpha=0.01, z=1e-3)),
    "top-2, sigmoid": Kind(DeepSeek(2), 2),
    "top-2, sigmoid, bias": Kind(DeepSeek(2), 2, speed=1e-3),
    "expert choice": Kind(ExpertChoice(2.0), 2),
}
