"""Delta-coded keys: how many products are left out over the threshold, and what that costs."""

import math
from statistics import fmean

from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.tables import Measured, load_measured, percent
from course_lib.lessons.common.verdicts import Effect, claim, of_samples, said
from course_lib.lessons.sparse_attention.claims import rows as found

CLOSE = 0.02  # nats a token above the model as it is: 2 % of perplexity, here the meaning of "no loss"
PUBLISHED = 0.6  # of the operations: what the abstract of DeltaLLM reports of the prefill of two larger models
LITTLE = 0.5  # of the squared distance of any two keys: below it a change from key to key is called little
SAME = 1e-3  # nats a token: decoding and reading at once add in another order


def results() -> Measured:
    """The committed measurement of `course reproduce delta`."""
    return load_measured("sparse_attention", "experiments/delta")


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    return found.provenance(
        measured,
        f"{sizes['windows']} windows of {sizes['length']} tokens; thresholds in standard deviations of a channel, "
        f"from {sizes['calibration']} windows of other text",
    )


def dense(measured: Measured) -> Row:
    """The model as it is."""
    return found.some(measured, "read", theta=0.0)[0]


def above(measured: Measured, row: Row) -> Effect:
    """By how many nats a token it reads worse than the model as it is."""
    return log_gap(dense(measured), row)


def main(measured: Measured) -> list[Row]:
    """The thresholds with a window, exact sinks, and codes behind RoPE."""
    sizes = measured["sizes"]
    return found.some(measured, "read", window=sizes["window"], sinks=sizes["sinks"], side="after")


def over_threshold(measured: Measured) -> str:
    """What is left out and what it costs by threshold; is as much left out as the paper reports?"""
    every = main(measured)
    lines = _table(measured, every)
    cheap = [row for row in every if _below(measured, row).holds]
    most = max((row["sparsity"] for row in cheap), default=0.0)
    lines.append(f"the most that is left out at clearly less than {CLOSE} nats a token: {percent(most)}")
    effect = Effect(value=most - PUBLISHED, error=0.0, n=len(every))
    lines.append(claim(f"that is more than {percent(PUBLISHED)}", effect, larger_models=True))
    return "\n".join(lines)


def variants(measured: Measured) -> str:
    """Without a window, without exact sinks, coded before RoPE: one thing changed at a time."""
    sizes = measured["sizes"]
    by_theta = {row["theta"]: row for row in main(measured)}
    others = {
        "a window of exact keys reads better than none": {"window": 1},
        "exact sinks read better than coded ones": {"sinks": 0},
        "keys coded behind RoPE read better than coded before it": {"side": "before"},
    }
    lines, claims = _table(measured, [row for theta, row in by_theta.items() if theta in sizes["varied"]]), []
    for text, changed in others.items():
        wanted = {"window": sizes["window"], "sinks": sizes["sinks"], "side": "after"} | changed
        changed_rows = found.some(measured, "read", **wanted)
        lines += _table(measured, changed_rows)[1:]
        effects = [log_gap(by_theta[row["theta"]], row) for row in changed_rows]
        claims.append(claim(f"at the same threshold {text}", effects))
    return "\n".join(lines + claims)


def moved(measured: Measured) -> str:
    """How far neighbouring keys are from each other: the mean over layers, and by window the claim."""
    shares = [row["share"] for row in measured["tables"].get("moved", [])]
    text = "neighbouring keys are less than half as far apart as any two, in squares"
    if not shares:
        return claim(text, [])
    means = [fmean(row) for row in shares]
    lines = [
        f"{len(shares)} windows, squared distance of neighbouring keys over that of any two: mean {fmean(means):.2f}, "
        f"by layer {min(map(fmean, zip(*shares, strict=True))):.2f} to "
        f"{max(map(fmean, zip(*shares, strict=True))):.2f}"
    ]
    return "\n".join([*lines, claim(text, of_samples([LITTLE - mean for mean in means]))])


def decoded(measured: Measured) -> str:
    """Is what is decoded token by token what was read at once?"""
    row = found.one(measured, "decoded")
    if row is None:
        return claim("what is decoded token by token is what was read at once", [])
    lines = [
        f"{row['n_tokens']} tokens at θ = {row['theta']:g}: {row['read_at_once']:.4f} nats a token read at once, "
        f"{row['decoded']:.4f} decoded;",
        f"decoding leaves out {percent(row['sparsity'])} of its products",
    ]
    effect = Effect(value=SAME - row["largest_difference"], error=0.0)
    lines.append(claim(f"both differ by less than {SAME} nats a token in every window", effect))
    return "\n".join(lines)


def _below(measured: Measured, row: Row) -> Effect:
    """By how much less than CLOSE it costs."""
    pairs = zip(dense(measured)["losses"], row["losses"], strict=True)
    return of_samples([CLOSE - (coded - whole) for whole, coded in pairs])


def _table(measured: Measured, shown: list[Row]) -> list[str]:
    """Zeros are values of keys that were not sent, sparsity multiply-adds of QKᵀ that were not done."""
    head = f"{'θ':>5}{'window':>8}{'sinks':>7}{'RoPE':>8}{'zeros':>8}{'sparsity':>10}{'perplexity':>12}"
    lines = [head + f"{'nats above dense':>20}"]
    for row in sorted(shown, key=lambda row: row["theta"]):
        cells = f"{row['theta']:>5g}{row['window']:>8}{row['sinks']:>7}{row['side']:>8}{percent(row['zeros']):>8}"
        cells += f"{percent(row['sparsity']):>10}{row['perplexity']:>12.2f}{said(above(measured, row)):>20}"
        lines.append(cells)
    return lines


def ratio(measured: Measured, row: Row) -> float:
    """Of its perplexity to that of the model as it is, paired."""
    return math.exp(above(measured, row).value)
