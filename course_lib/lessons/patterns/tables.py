"""The printed verdicts of lesson 01."""

import math
from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.verdicts import Effect, claim, of_samples, verdict
from course_lib.lessons.patterns.claims import step_effects
from course_lib.measure.perplexity import Perplexity

FASTER = 1.1  # times: less is no gain worth another format


def order_effects(found: Mapping[str, Perplexity]) -> dict[str, Effect]:
    """By how many nats per token each pattern is worse than the freer one before it, for perplexities just measured."""
    return step_effects({name: _row(value) for name, value in found.items()})


def order_verdict(found: Mapping[str, Perplexity]) -> str:
    """Whether each kind of pattern costs more than the freer one before it."""
    effects = order_effects(found)
    lines = [f"  {step}: {effect.value:+.2f} ± {effect.error:.2f} nats per token" for step, effect in effects.items()]
    return "\n".join(
        [*lines, claim("perplexity rises from unstructured over n:m and blocks to rows and columns", effects)]
    )


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
