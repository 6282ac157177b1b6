"""The printed verdicts of lesson 01."""

import math
from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.measure.perplexity import Perplexity

FASTER = 1.1  # times: less is no gain worth another format


def order_effects(found: Mapping[str, Perplexity]) -> dict[str, Effect]:
    """Nats a token that each pattern costs above the freer one before it, window by window where losses are known."""
    n_of_4 = next(name for name in found if name.endswith(":4"))
    steps = [("unstructured", n_of_4), (n_of_4, "blocks 4 × 4"), ("blocks 4 × 4", "rows"), ("blocks 4 × 4", "columns")]
    return {
        f"{stricter} above {freer}": log_gap(_row(found[freer]), _row(found[stricter])) for freer, stricter in steps
    }


def order_verdict(found: Mapping[str, Perplexity]) -> str:
    """Whether each kind of pattern costs more than the freer one before it."""
    effects = order_effects(found)
    lines = [f"  {step}: {effect.value:+.2f} ± {effect.error:.2f} nats a token" for step, effect in effects.items()]
    claim = "Claim: quality falls from unstructured over n:m and blocks to rows and to columns"
    return "\n".join([*lines, f"{claim}: {verdict(effects.values())}"])


def speed_verdict(claim: str, by_tokens: Mapping[int, Float[Tensor, "rounds"]]) -> str:
    """A claim that a format makes a layer faster by more than a tenth, from log ratios of times, round by round."""
    effects = [of_samples(logs, math.log(FASTER)) for logs in by_tokens.values()]
    times = ", ".join(
        f"× {math.exp(effect.value) * FASTER:.2f} ± {100 * effect.error:.0f} % with {n} token{'s' * (n > 1)}"
        for n, effect in zip(by_tokens, effects, strict=True)
    )
    return f"Claim: {claim}.\n  {times}: {verdict(effects)}"


def _row(found: Perplexity) -> dict:
    return {"perplexity": found.value, "standard_error": found.standard_error, "losses": found.losses}
