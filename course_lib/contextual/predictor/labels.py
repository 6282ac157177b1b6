"""Labels of active neurons, which predictors are trained on.

Dimension key: T tokens, F neurons.
"""

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.contextual.neurons import Neurons
from course_lib.contextual.selector import check_density, n_kept
from course_lib.sparsity.ranking import keep_highest

Label = Callable[[Tensor, Neurons], Tensor]  # h (T, F) and the MLP that computed it -> bool (T, F)


def fires(hidden: Float[Tensor, "T F"], neurons: Neurons) -> Bool[Tensor, "T F"]:
    """Label neurons with h > 0 as active, as Deja Vu does for OPT, which uses ReLU.

    Raises:
        ValueError: the activation function almost never outputs exactly zero.
    """
    if neurons.activation != "relu":
        raise ValueError(
            f"got neurons with the activation {neurons.activation!r}, which is almost never exactly zero; expected "
            "'relu'. Label the most important neurons instead: matters(density=0.5)."
        )
    return hidden > 0


def matters(density: float = 0.5) -> Label:
    """Return the label `largest` with a fixed density.

    Raises:
        ValueError: the density is outside (0, 1].
    """
    check_density(density)
    return partial(largest, density=density)


def largest(hidden: Float[Tensor, "T F"], neurons: Neurons, density: float) -> Bool[Tensor, "T F"]:
    """Label the max(1, round(density · F)) neurons of each token with the largest |h_i| ‖w_i‖, except those of value 0.

    Deviation: the paper uses ReLU only, where the sign of h is the label. Other activation functions need a fraction.
    """
    importance = neurons.importance(hidden)
    n = importance.shape[1]
    return keep_highest(importance, n - n_kept(density, n)) & (importance > 0)
