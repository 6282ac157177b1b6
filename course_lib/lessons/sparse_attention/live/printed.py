"""What the notebook of lesson 11 prints of its own windows.

Dimension key: N windows.
"""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.verdicts import of_samples


def read(found: Mapping[str, tuple[Float[Tensor, "N"], float]], share: str = "blocks read") -> Table:
    """A fraction, the perplexity, and the loss above dense attention, which is the first row."""
    (dense, _), *_ = found.values()
    frame = []
    for name, (losses, density) in found.items():
        above = None if losses is dense else of_samples(losses - dense)
        row = {"attention": name, share: float(density), "perplexity": float(losses.mean().exp())}
        frame.append(row | {ABOVE: above and above.value, "error": above and above.error})
    return Table(
        frame,
        caption="Perplexity on the windows of this notebook",
        formats={share: number(2), "perplexity": number(2), (ABOVE, "error"): plus_minus(3, sign=True)},
        note=f"± one standard error over {len(dense)} windows; so few give a rough error.",
    )


ABOVE = "nats per token above dense"
