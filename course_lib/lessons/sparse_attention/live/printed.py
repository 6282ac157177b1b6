"""What the notebook of lesson 11 prints of its own windows.

Dimension key: N windows.
"""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.verdicts import of_samples, said


def read(found: Mapping[str, tuple[Float[Tensor, "N"], float]], share: str = "blocks read") -> str:
    """A share, perplexity and how far above dense, the first row, each rule reads."""
    (dense, _), *_ = found.values()
    lines = [f"{'':<18}{share:>16}{'perplexity':>12}   nats a token above dense"]
    for name, (losses, density) in found.items():
        above = "" if losses is dense else f"   {said(of_samples(losses - dense))}"
        lines.append(f"{name:<18}{density:>16.2f}{float(losses.mean().exp()):>12.2f}{above}")
    return "\n".join([*lines, f"{len(dense)} windows: the errors are rough"])
