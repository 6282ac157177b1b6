"""The layer: a gate, a router, experts, and optionally shared experts for every token.

Dimension key: B sequences, N tokens in each, T tokens, E experts, D width.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.moe.by_kernels import by_kernels
from course_lib.moe.dispatch import WAYS
from course_lib.moe.experts import Experts, random_experts
from course_lib.moe.routed import Routing, joined
from course_lib.moe.routing import Router


class MoE(nn.Module):
    """y = Σ_e w_e E_e(x), with the router's weights for the logits W x; plus the output of the shared experts.

    Args:
        router: turns logits into weights. Sequences are routed one at a time if tokens compete for expert capacity.
        gate: W, (E, D); random by default, but zero for a router with noise, as in its paper.
        shared: experts that process every token, with weight 1.
        way: how experts are computed: "grouped", "expert_loop", "all_experts" or "token_loop". All have the same
            result.

    Raises:
        ValueError: the gate does not fit the experts, or `way` is unknown.
    """

    def __init__(
        self,
        experts: Experts,
        router: Router,
        gate: Float[Tensor, "E D"] | None = None,
        shared: Experts | None = None,
        way: str = "grouped",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        shape = (experts.n_experts, experts.width)
        if way not in WAYS:
            raise ValueError(f"got way {way!r}; expected one of {', '.join(WAYS)}.")
        if gate is not None and gate.shape != shape:
            raise ValueError(f"got a gate {tuple(gate.shape)}; expected (experts, width) = {shape}.")
        if shared is not None and shared.width != experts.width:
            raise ValueError(f"got shared experts of width {shared.width}; expected {experts.width}, as of the others.")
        if gate is None:
            noisy = router.needs == "noise"
            gate = torch.zeros(shape) if noisy else 0.02 * torch.randn(shape, generator=generator)
        self.experts, self.shared, self.router, self.way = experts, shared, router, way
        self.gate = nn.Parameter(gate)
        self.noise = nn.Parameter(torch.zeros_like(gate)) if router.needs == "noise" else None

    def forward(
        self,
        x: Float[Tensor, "*b D"],
        real: Bool[Tensor, "*b"] | None = None,
        ids: Int[Tensor, "*b"] | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "*b D"], Routing]:
        """Return the output, with the shape of x, and the routing, for the losses and plots.

        Args:
            x: (B, N, D), or tokens of one group (T, D).
            real: False for padding, whose rows of the output are zero, except for the output of shared experts.
            generator: for random routers during training, see Router.route.
        """
        self._check_input(x)
        _check_marks(x, real, ids)
        tokens = x.reshape(-1, x.shape[-1])
        found, marks = None, None if real is None else real.reshape(-1)
        if self.way == "grouped" and generator is None:
            found = by_kernels(self.experts, self.router, self.gate, tokens, marks)
        if found:
            output, routing = found
        else:
            routing = self.route(x, real, ids, generator)
            output = WAYS[self.way](self.experts, tokens, routing.weights, routing.keep)
        if self.shared is not None:
            output = output + sum(self.shared.one(e, tokens) for e in range(self.shared.n_experts))
        return output.reshape(x.shape), routing

    def _check_input(self, x: Float[Tensor, "*b D"]) -> None:
        """Raise ValueError for tokens of another width or type than the experts; autocast converts types itself."""
        _check_is_tensor(x)
        width, dtype = self.experts.width, self.experts.out.dtype
        is_other_type = x.dtype != dtype and not torch.is_autocast_enabled(x.device.type)
        if x.ndim < 2 or x.shape[-1] != width or is_other_type:
            raise ValueError(
                f"got an input {tuple(x.shape)} {x.dtype}; expected (..., {width}) {dtype}, as the experts have it. "
                "Convert the input or the layer with .to(...)."
            )

    def route(
        self,
        x: Float[Tensor, "*b D"],
        real: Bool[Tensor, "*b"] | None = None,
        ids: Int[Tensor, "*b"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Routing:
        """Return the routing of all tokens in one row; each sequence has its own expert capacity."""
        _check_is_tensor(x)
        _check_marks(x, real, ids)
        if x.numel() == 0:
            raise ValueError(f"got an input of shape {tuple(x.shape)}, which holds no tokens; expected at least one.")
        size = x.shape[-2] if x.ndim > 2 and self.router.is_grouped else x.numel() // x.shape[-1]
        groups = [None if each is None else each.reshape(-1, size) for each in (real, ids)]
        routings = []
        for i, group in enumerate(x.reshape(-1, size, x.shape[-1])):
            read = group if generator is None else self.router.perturb(group, generator)
            read = read.to(torch.promote_types(read.dtype, torch.float32))  # selective precision: Switch, section 2.4
            noise = None if self.noise is None else F.linear(read, self.noise.to(read.dtype))
            its = [None if each is None else each[i] for each in groups]
            routings.append(self.router.route(F.linear(read, self.gate.to(read.dtype)), *its, noise, generator))
        return routings[0] if len(routings) == 1 else joined(routings)


def _check_is_tensor(x: object) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(f"got an input of type {type(x).__name__}; expected a tensor, such as torch.tensor(x).")


def _check_marks(x: Float[Tensor, "*b D"], real: object, ids: object) -> None:
    """Raise ValueError for a mask or token ids that do not give one value for each token of x."""
    expected = tuple(x.shape[:-1])
    for name, value in (("real", real), ("ids", ids)):
        if value is not None and (not isinstance(value, Tensor) or tuple(value.shape) != expected):
            what = tuple(value.shape) if isinstance(value, Tensor) else f"of type {type(value).__name__}"
            raise ValueError(
                f"got {name} {what}; expected a tensor of shape {expected}, one value for each token of the input."
            )


def random_layer(
    width: int,
    neurons: int,
    n_experts: int,
    router: Router,
    generator: torch.Generator | None = None,
) -> MoE:
    """Return a layer of SwiGLU experts with random normal weights."""
    return MoE(random_experts(n_experts, width, neurons, generator=generator), router, generator=generator)
