"""The tables and verdicts of lesson 08.

Dimension key: L layers, Q queries of a text, P predictions.
"""

import math
from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.results import load_published, wrapped
from course_lib.lessons.common.table import Table, number
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.sinks.claims import COLLAPSED
from course_lib.lessons.sinks.estimates import ALMOST, RESTORED
from course_lib.measure.paired import block_means

Samples = Float[Tensor, "n"]
TOKENS, QUERIES = 64, 16  # neighbours that count as one sample: they are hard or easy together
_FIRST_TOKENS = ("4 newlines + 124", "4 + 124", "newest tokens")


def position_verdict(shares: Mapping[str, Float[Tensor, "L Q"]]) -> str:
    """The claim that the place makes the sink, and not the word: what position 0 gets of each query, by first token.

    The text is the same behind each first token, so its queries are compared in pairs, in blocks of neighbours.
    """
    deep = {name: share[len(share) // 2 :].mean(dim=0) for name, share in shares.items()}
    (_, own), *others = deep.items()
    size = min(QUERIES, len(own))
    effects = {name: of_samples(block_means(other - own / 2, size)) for name, other in others}
    count = f"each of {len(others)} other first tokens gets more than half as much as the text's own"
    return f"Claim: where a token stands makes it a sink, not what it says;\n{count}: {verdict(effects)}"


def perplexities(losses: Mapping[str, Float[Tensor, "P"]]) -> Table:
    """Perplexity by what the cache keeps."""
    return Table(
        [{"cache": name, "perplexity": each.mean().exp().item()} for name, each in losses.items()],
        caption="Perplexity by what the cache keeps",
        formats={"perplexity": number(2)},
    )


def collapse_verdict(losses: Mapping[str, Float[Tensor, "P"]]) -> str:
    """The claims that a window collapses and that one sink is enough, from losses token by token of the same text."""
    by_block = _by_block(losses)
    one = next(name for name in losses if "+" in name)
    return "\n".join(collapse_claims(by_block["newest tokens"], by_block["all tokens"], by_block[one]))


def collapse_claims(window: Samples, full: Samples, one: Samples) -> list[str]:
    """The two claims on the log-perplexities of the same blocks: without a sink, with everything, with one sink."""
    lost, gained = window - full, window - one
    collapse, back = of_samples(lost, math.log(COLLAPSED)), of_samples(gained - RESTORED * lost)
    times, share, error = lost.mean().exp(), 100 * gained.mean() / lost.mean(), 100 * back.error / lost.mean()
    return [
        f"Claim: without a sink the window collapses, to over {COLLAPSED} times the perplexity: {times:.1f} times, "
        f"± {100 * collapse.error:.0f} %, n = {collapse.n}: {verdict(collapse)}",
        f"Claim: one sink brings back over {100 * RESTORED:.0f} % of the log-perplexity: "
        f"{share:.0f} ± {error:.0f} %, n = {back.n}: {verdict(back)}",
    ]


def newline_verdict(losses: Mapping[str, Float[Tensor, "P"]]) -> str:
    """The claim that newlines in the place of the first four tokens work almost as well."""
    newlines, own, window = (losses[name].mean().exp() for name in _FIRST_TOKENS)
    claim = newline_claim(*(_by_block(losses)[name] for name in _FIRST_TOKENS))
    return f"first four tokens {own:.2f}, four newlines {newlines:.2f}, none {window:.2f}\n{claim}"


def newline_claim(newlines: Samples, own: Samples, window: Samples) -> str:
    """On the log-perplexities of the same blocks."""
    effect = of_samples((window - newlines) - ALMOST * (window - own))
    whole = (window - own).mean()
    share, error = 100 * (window - newlines).mean() / whole, 100 * effect.error / whole
    return (
        f"Claim: four newlines do over {100 * ALMOST:.0f} % of what the text's own first tokens do for the "
        f"log-perplexity: {share:.0f} ± {error:.0f} %, n = {effect.n}: {verdict(effect)}"
    )


def newline_finding(perplexities: Mapping[str, float]) -> str:
    """A title for the bars."""
    newlines, own, window = (math.log(perplexities[name]) for name in _FIRST_TOKENS)
    back = 100 * (window - newlines) / (window - own)
    return f"Four newlines do {back:.0f} % of what the text's own first tokens do\n(of the log-perplexity)"


def rolling_finding(perplexities: Mapping[str, float], gap: int) -> str:
    """A title for the bars: what the kind of positions is worth after the gap."""
    times = perplexities["4 + 124, original"] / perplexities["4 + 124, rolling"]
    return f"After a gap of {gap:,} positions: with those of the text\n{times:.0f} times the perplexity of rolling ones"


def constant_finding(perplexities: Mapping[str, float]) -> str:
    """How far a constant does what the first token did."""
    window, logit, both, token = (math.log(value) for value in perplexities.values())
    back = [100 * (window - value) / (window - token) for value in (logit, both)]
    return (
        f"A constant does {back[1]:.0f} % of what the first token does;\n"
        f"its logit alone {back[0]:.0f} % (of the log-perplexity)"
    )


def rolling_verdict(losses: Mapping[str, Float[Tensor, "P"]], gap: int) -> str:
    """The claim that positions must be counted in the cache once the text is longer than what was trained."""
    original, rolling, window = (losses[name] for name in ("4 + 124, original", "4 + 124, rolling", "newest tokens"))
    by_block = _by_block(losses)
    needed = of_samples(by_block["4 + 124, original"] - by_block["4 + 124, rolling"], math.log(COLLAPSED))
    return (
        f"sinks {gap:,} positions away: {original.mean().exp():.1f} with positions of the text, "
        f"{rolling.mean().exp():.1f} with places in the cache; a window alone {window.mean().exp():.1f}\n"
        f"Claim: beyond the trained length sinks need rolling positions, without them perplexity is over {COLLAPSED} "
        f"times as high, n = {needed.n}: {verdict(needed)}"
    )


def _by_block(losses: Mapping[str, Float[Tensor, "P"]]) -> dict[str, Samples]:
    """Means of blocks of neighbouring tokens, which count as one sample each."""
    return {name: block_means(each, min(TOKENS, len(each))) for name, each in losses.items()}


def published_speed() -> str:
    """How much faster the authors report streaming to be, marked as published."""
    times = load_published("sinks")["tables"]["speed"][0]["times"]
    return f"Published, not measured here: streaming is up to {times} times as fast (a GPU, larger models)"


def source(table: str) -> str:
    """Where the published numbers of a figure come from."""
    found = load_published("sinks")["sources"][table]
    first, *_ = found["authors"].split(",")
    said = f"Published, not measured here: {found['what']}. {first} and others, {found['year']}, {found['url']}"
    return wrapped(said)
