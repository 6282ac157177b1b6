"""Train small networks to a minimum, where second-order pruning starts: Levenberg-Marquardt, and L-BFGS.

Dimension key: P samples, d free weights.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.classic.deletion import State, whole
from course_lib.pruning.classic.derivatives import output_gradients, residuals
from course_lib.pruning.classic.network import Network, Samples, accuracy, error


def levenberg_marquardt(
    state: State, samples: Samples, decay: float = 1e-4, steps: int = 100, tolerance: float = 1e-9
) -> State:
    """Minimise E + ½ decay ‖w‖² over the kept weights (Levenberg 1944, Marquardt 1963).

    Each step solves (H + (decay + μ) I) δ = −∇ with the outer-product Hessian. After a step that lowers the objective,
    μ shrinks (towards Gauss-Newton). After one that does not, μ grows (towards a short gradient step).
    """
    if decay < 0 or steps < 0:
        raise ValueError(f"decay={decay}, steps={steps}: expected neither to be negative")
    theta, keep, mu = state.theta.clone(), state.keep, 1e-2
    now = objective(state.network, theta, samples, decay)
    for _ in range(steps):
        hessian, gradient = normal_equations(state.network, theta, keep, samples, decay)
        before = now
        while mu < 1e8:
            damped = hessian + mu * torch.eye(len(hessian), dtype=hessian.dtype)
            step = torch.zeros_like(theta)
            step[keep] = torch.linalg.solve(damped, -gradient)
            after = objective(state.network, theta + step, samples, decay)
            if after < now:
                theta, now, mu = theta + step, after, max(mu / 5, 1e-12)
                break
            mu *= 4
        if before - now <= tolerance * before:
            break
    return replace(state, theta=theta)


def objective(network: Network, theta: Float[Tensor, "d"], samples: Samples, decay: float) -> float:
    """Compute E + ½ decay ‖w‖²."""
    return (error(network, theta, samples) + 0.5 * decay * theta.square().sum()).item()


def normal_equations(
    network: Network, theta: Float[Tensor, "d"], keep: Bool[Tensor, "d"], samples: Samples, decay: float
) -> tuple[Float[Tensor, "k k"], Float[Tensor, "k"]]:
    """Return the outer-product Hessian and the gradient of the objective, over the kept weights."""
    slopes = output_gradients(network, theta, samples.inputs)[..., keep]
    rows = slopes.flatten(0, 1)
    gap = residuals(network, theta, samples).flatten()
    hessian = rows.T @ rows / len(slopes)
    hessian.diagonal().add_(decay)
    return hessian, gap @ rows / len(slopes) + decay * theta[keep]


def quasi_newton(state: State, samples: Samples, decay: float = 1e-4, steps: int = 200) -> State:
    """Minimise the same objective by L-BFGS, for networks whose Hessian is too large for a linear solve per step."""
    theta, keep = state.theta.clone().requires_grad_(), state.keep
    optimiser = torch.optim.LBFGS([theta], max_iter=steps, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        kept = theta * keep
        value = error(state.network, kept, samples) + 0.5 * decay * kept.square().sum()
        value.backward()
        return value

    optimiser.step(closure)
    return replace(state, theta=(theta * keep).detach())


def solved(
    network: Network,
    samples: Samples,
    generator: torch.Generator,
    good: float = 1.0,
    decay: float = 1e-4,
    steps: int = 300,
    tries: int = 200,
) -> State:
    """Train from random starts until one network classifies the fraction `good` of the samples.

    The result depends only on the generator.
    """
    for _ in range(tries):
        state = levenberg_marquardt(whole(network, network.start(generator)), samples, decay, steps)
        if accuracy(network, state.theta, samples) >= good:
            return state
    raise ValueError(
        f"none of {tries} random starts of {network.sizes} classified {100 * good:.1f} % of the patterns rightly; "
        "ask for less, for more hidden units, or for more tries"
    )
