"""The printed tables and verdicts of lesson 08."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from course_lib.lessons.common.tables import load_published, verdict

_FIRST_TOKENS = ("4 newlines + 124", "4 + 124", "newest tokens")


def position_verdict(shares: Mapping[str, Tensor]) -> str:
    """The claim that the place makes the sink, and not the word, on shares (L,) of position 0 by first token."""
    deep = {name: 100 * share[len(share) // 2 :].mean().item() for name, share in shares.items()}
    lines = [f"{name:<14}{value:5.1f} % of the attention, deeper half" for name, value in deep.items()]
    own, *others = deep.values()
    held = [value > own / 2 for value in others]
    word = verdict(sum(held), len(held))
    count = f"{sum(held)} of {len(held)} other first tokens get more than half as much as the text's own"
    return "\n".join([*lines, f"Claim: where a token stands makes it a sink, not what it says: {count}, {word}"])


def collapse_verdict(perplexities: Mapping[str, float]) -> str:
    """The claims that a window collapses and that one sink is enough, from the perplexity of each cache."""
    window, full = perplexities["newest tokens"], perplexities["all tokens"]
    sinks = {name: value for name, value in perplexities.items() if "+" in name}
    one = next(iter(sinks.values()))
    lines = [f"{name:<16}{value:8.2f}" for name, value in perplexities.items()]
    back = (window - one) / (window - full)
    word = verdict(window > 1.5 * full)
    lines.append(f"Claim: without its first tokens the model collapses: {window / full:.1f} times, {word}")
    lines.append(f"Claim: sinks bring it back: one of them {100 * back:.0f} % of the way, {verdict(back > 0.8)}")
    return "\n".join(lines)


def newline_verdict(perplexities: Mapping[str, float]) -> str:
    """The claim that newlines in the place of the first four tokens work almost as well."""
    newlines, own, window = (perplexities[name] for name in _FIRST_TOKENS)
    held = newlines - own < 0.1 * (window - own)
    return (
        f"first four tokens {own:.2f}, four newlines {newlines:.2f}, none {window:.2f}\n"
        f"Claim: four newlines work almost as well as the text's own first tokens: {verdict(held)}"
    )


def newline_finding(perplexities: Mapping[str, float]) -> str:
    """A title for the bars."""
    newlines, own, window = (perplexities[name] for name in _FIRST_TOKENS)
    back = 100 * (window - newlines) / (window - own)
    return f"Four newlines do {back:.0f} % of what the text's own first tokens do"


def rolling_finding(perplexities: Mapping[str, float], gap: int) -> str:
    """A title for the bars: which of the caches is left after the gap."""
    best = min(perplexities, key=perplexities.__getitem__)
    return f"After a gap of {gap:,} positions the best is: {best}"


def constant_finding(perplexities: Mapping[str, float]) -> str:
    """How far a constant does what the first token did."""
    window, logit, both, token = perplexities.values()
    back = [100 * (window - value) / (window - token) for value in (logit, both)]
    return f"A constant does {back[1]:.0f} % of what the first token does;\nits logit alone {back[0]:.0f} %"


def rolling_verdict(perplexities: Mapping[str, float], gap: int) -> str:
    """The claim that positions must be counted in the cache once the text is longer than what was trained."""
    original, rolling = perplexities["4 + 124, original"], perplexities["4 + 124, rolling"]
    window = perplexities["newest tokens"]
    return (
        f"sinks {gap:,} positions away: {original:.1f} with positions of the text, {rolling:.1f} with places in the "
        f"cache; a window alone {window:.1f}\n"
        f"Claim: beyond the trained length sinks need rolling positions: {verdict(original > 1.5 * rolling)}"
    )


def race_verdict(
    windows: Sequence[int], flops: Mapping[str, Sequence[float]], seconds: Mapping[str, Sequence[float]]
) -> str:
    """What recomputing costs beside streaming, counted and measured, and the paper's number, marked as published."""
    lines = [f"{'window':>8}{'FLOPs, counted':>16}{'seconds, measured':>19}"]
    for i, window in enumerate(windows):
        ratios = [cost["recomputing"][i] / cost["streaming"][i] for cost in (flops, seconds)]
        lines.append(f"{window:>8}{ratios[0]:>14.1f} ×{ratios[1]:>17.1f} ×")
    published = load_published("sinks")["tables"]["speed"][0]["times"]
    lines.append(f"Recomputing over streaming. Published, not measured here: up to {published} × (GPU, larger models)")
    return "\n".join(lines)


def published_table() -> str:
    """Perplexities that the authors report, marked as published."""
    published = load_published("sinks")
    lines = [f"published, not measured here: {published['sources']['window']['what'].split(', as quoted')[0]}"]
    table = published["tables"]["window"]
    return "\n".join([*lines, *(f"{row['model']}, {row['cache']:<20}{row['perplexity']:>10,.2f}" for row in table)])
