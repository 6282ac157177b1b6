"""Claims of lesson 06 on parameters beside products, and on the bias of a router's gradient."""

from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict

MORE, AS_MANY = 3.0, 1.05  # times the weights of the dense model, at most so many times its products
PRODUCT, MIXER = "Multiplier", "SparseMixer v1, as released"


def decoupled(measured: Measured) -> str:
    """Weights and products of learning from a byte, both counted."""
    (dense, *_) = rows(measured, "models", model="dense")
    effects = []
    for name in ("top-1", "top-2"):
        (row, *_) = rows(measured, "models", model=name)
        more, as_many = (row[key] / dense[key] for key in ("parameters", "flops_a_byte"))
        effects += [Effect(value=more / MORE - 1, error=0.0), Effect(value=AS_MANY - as_many, error=0.0)]
    claim = f"experts have over {MORE:.0f} times the weights at most {AS_MANY} times the products"
    return f"Claim: {claim}: {verdict(effects)}"


def mixer_bias(gradients: Measured) -> str:
    """How far the mean of each estimate is from the gradient, problem by problem; a case a kind of loss."""
    effects = []
    for loss in dict.fromkeys(row["loss"] for row in rows(gradients, "estimators")):
        product, mixer = (
            rows(gradients, "estimators", loss=loss, estimator=name)[0]["biases"] for name in (PRODUCT, MIXER)
        )
        effects.append(of_samples([a - b for a, b in zip(product, mixer, strict=True)]))
    return f"Claim: SparseMixer is less biased than the product with the gate's weight: {verdict(effects)}"
