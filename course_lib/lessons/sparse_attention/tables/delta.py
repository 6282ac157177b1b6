"""Delta-coded keys: how many products are left out over the threshold, and what that costs."""

from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, load_measured, percent
from course_lib.lessons.common.verdicts import said
from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates import rows as found
from course_lib.lessons.sparse_attention.estimates.delta import CLOSE, above, changed, left_out, main


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


def over_threshold(measured: Measured) -> str:
    """What is left out and what it costs by threshold; is as much left out as the paper reports?"""
    most = left_out(measured).value
    lines = _table(measured, main(measured))
    lines.append(f"the most that is left out at clearly less than {CLOSE} nats a token: {percent(most)}")
    return "\n".join([*lines, report([claims.NOTHING_LOST], measured)])


def variants(measured: Measured) -> str:
    """Without a window, without exact sinks, coded before RoPE: one thing changed at a time."""
    varied = measured["sizes"]["varied"]
    lines = _table(measured, [row for row in main(measured) if row["theta"] in varied])
    for change in ({"window": 1}, {"sinks": 0}, {"side": "before"}):
        lines += _table(measured, changed(measured, **change))[1:]
    return "\n".join([*lines, report(claims.VARIANT_CLAIMS, measured)])


def moved(measured: Measured) -> str:
    """How far neighbouring keys are from each other: the mean over layers, and by window the claim."""
    lines, shares = [], [row["share"] for row in found.some(measured, "moved")]
    if shares:
        by_layer = [fmean(layer) for layer in zip(*shares, strict=True)]
        lines = [
            f"{len(shares)} windows, squared distance of neighbouring keys over that of any two, "
            f"by layer: {min(by_layer):.2f} to {max(by_layer):.2f}"
        ]
    return "\n".join([*lines, report([claims.KEYS_CHANGE_LITTLE], measured)])


def decoded(measured: Measured) -> str:
    """Is what is decoded token by token what was read at once?"""
    row, lines = found.one(measured, "decoded"), []
    if row:
        lines = [
            f"{row['n_tokens']} tokens at θ = {row['theta']:g}: {row['read_at_once']:.4f} nats a token read at once, "
            f"{row['decoded']:.4f} decoded;",
            f"decoding leaves out {percent(row['sparsity'])} of its products",
        ]
    return "\n".join([*lines, report([claims.DECODED_ALIKE], measured)])


def _table(measured: Measured, shown: list[Row]) -> list[str]:
    """Zeros are values of keys that were not sent, sparsity multiply-adds of QKᵀ that were not done."""
    head = f"{'θ':>5}{'window':>8}{'sinks':>7}{'RoPE':>8}{'zeros':>8}{'sparsity':>10}{'perplexity':>12}"
    lines = [head + f"{'nats above dense':>20}"]
    for row in sorted(shown, key=lambda row: row["theta"]):
        cells = f"{row['theta']:>5g}{row['window']:>8}{row['sinks']:>7}{row['side']:>8}{percent(row['zeros']):>8}"
        cells += f"{percent(row['sparsity']):>10}{row['perplexity']:>12.2f}{said(above(measured, row)):>20}"
        lines.append(cells)
    return lines
