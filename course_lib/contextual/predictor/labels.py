"""What counts as active: the labels from which predictors learn.

Dimension key: T tokens, F neurons.
"""

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.contextual.neurons import Neurons
from course_lib.contextual.selector import check_density, n_kept
from course_lib.sparsity.ranking import keep_highest

Label = Callable[[Tensor, Neurons], Tensor]  # h (T, F) and the MLP that they are of -> bool (T, F)


def fires(hidden: Float[Tensor, "T F"], neurons: Neurons) -> Bool[Tensor, "T F"]:
    """h > 0, as Deja Vu labels the neurons of OPT, behind a ReLU.

    Raises:
        ValueError: for a nonlinearity behind which next to no neuron is zero.
    """
    if neurons.activation != "relu":
        raise ValueError(
            f"got neurons behind {neurons.activation!r}, of which next to none is zero; expected 'relu'. Label those "
            "that matter instead: matters(density=0.5)."
        )
    return hidden > 0


def matters(density: float = 0.5) -> Label:
    """The label `largest` of a density.

    Raises:
        ValueError: for a density that is none.
    """
    check_density(density)
    return partial(largest, density=density)


def largest(hidden: Float[Tensor, "T F"], neurons: Neurons, density: float) -> Bool[Tensor, "T F"]:
    """The largest share of |h_i| ‖w_i‖, exactly max(1, round(density · F)) of each token, less those that are 0.

    Deviation: the paper has ReLU alone; other nonlinearities need a share in place of a sign.
    """
    importance = neurons.importance(hidden)
    n = importance.shape[1]
    return keep_highest(importance, n - n_kept(density, n)) & (importance > 0)
