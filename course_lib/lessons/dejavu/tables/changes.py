"""Tables and verdicts of what changes slowly, and of other activations, as `course reproduce dejavu` measured them."""

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import of_count, of_samples, said, verdict
from course_lib.lessons.dejavu.claims.teal import ALL, BY_INPUT, BY_LEVELS, DENSE, SECOND_HALF, SWAPPED
from course_lib.lessons.dejavu.tables import found
from course_lib.lessons.dejavu.tables.found import CHEAP, Measured

SLOW = 0.95  # cosine of the residual before and behind a block
MOST = 0.75  # of the blocks
OFF = 0.02  # of the entries: who keeps more or less than that from what was asked has another density


def slow(measured: Measured) -> str:
    """How much a block turns the residual, and how long what it adds is."""
    lines, turns, sizes = [], [], []
    for model in found.models(measured, "slow_change"):
        first, *blocks = rows(measured, "slow_change", model=model)
        cosines = [row["cosine"] for row in blocks]
        added = [row["size_ratio_mlp"] for row in blocks]
        turns.append(of_count(sum(cosine > SLOW for cosine in cosines), len(blocks), more_than=MOST))
        sizes.append(of_count(sum(ratio < 0.5 for ratio in added), len(blocks), more_than=MOST))
        lines.append(
            f"{model}: cosine {first['cosine']:.2f} in block 0, then {min(cosines):.2f} to {max(cosines):.2f}; "
            f"‖MLP(X)‖ / ‖X‖ {first['size_ratio_mlp']:.1f}, then {min(added):.2f} to {max(added):.2f} (medians)"
        )
    lines.append(f"Claim: behind the first, most blocks leave a cosine above {SLOW}: {verdict(turns)}")
    lines.append(f"Claim: behind the first, most MLPs add less than half the length of the residual: {verdict(sizes)}")
    return "\n".join(lines)


def depth(measured: Measured) -> str:
    """What it costs when blocks are computed side by side, or not at all."""
    lines, effects = [], {}
    for row in rows(measured, "depth"):
        effects.setdefault(row["way"], []).append(found.cheap(measured, row))
        times = row["perplexity"] / found.dense(measured, row["model"])["perplexity"]
        above = said(found.above_dense(measured, row))
        lines.append(f"{row['model']}, {row['way']}: {times:.2f} times the dense perplexity, {above} nats")
    for way, cases in effects.items():
        lines.append(f"Claim: {way}: less than {CHEAP} nats: {verdict(cases, larger_models=True)}")
    return "\n".join(lines)


def activations_table(measured: Measured) -> Table:
    """Thresholds on the gate (CATS), on what every matrix reads (TEAL, two ways), and ReLU in place of SiLU."""
    frame = []
    for row in rows(measured, "activations", tokens=ALL) + rows(measured, "activations", method=SWAPPED):
        above = found.above_dense(measured, row)
        frame.append(
            {"method": row["method"], "density asked for": row["density"], "density reached": row["reached"]}
            | {"perplexity": row["perplexity"], "nats above dense": above.value, "error": above.error}
            | {"compared": _as_asked(row)}
        )
    return Table(
        frame,
        caption="Sparse activations",
        formats={
            "density asked for": percent,
            "density reached": percent,
            "perplexity": number(2),
            ("nats above dense", "error"): plus_minus(3, sign=True),
        },
        note=f"± one standard error. Methods more than {percent(OFF)} from what was asked for are not compared.",
    )


def activations(measured: Measured) -> str:
    """Whether levels found greedily are better than one density, and what ReLU in place of SiLU costs."""
    lines = []
    as_asked = {"activations": [row for row in rows(measured, "activations") if _as_asked(row)]}
    sides = ({"method": method, "tokens": ALL} for method in (BY_LEVELS, BY_INPUT))
    effects = found.better(as_asked, "activations", *sides)
    at = ", ".join(percent(share) for _, share in effects)
    if effects:
        claim = f"at {at} levels found greedily are better than one density for all inputs"
        lines.append(f"Claim: {claim}: {verdict(effects.values())}")
    swapped = found.one(measured, "activations", method=SWAPPED)
    lines.append(
        f"Claim: SiLU is replaced by ReLU without training for less than {CHEAP} nats: "
        f"{verdict(found.cheap(measured, swapped))}"
    )
    return "\n".join(lines)


def _as_asked(row: Row) -> bool:
    return row["reached"] is None or row["tokens"] != ALL or abs(row["reached"] - row["density"]) <= OFF


def half_windows(measured: Measured) -> str:
    """TEAL's evaluation beside ours, on the same positions: the second half of each window."""
    whole = found.one(measured, "activations", method=DENSE)["losses_second_half"]
    lines, effects = [], []
    for row in rows(measured, "activations", method=BY_INPUT, tokens=ALL):
        half = found.one(measured, "activations", method=BY_INPUT, tokens=SECOND_HALF, density=row["density"])
        ours, theirs = (
            of_samples([cut - all_of for cut, all_of in zip(each["losses_second_half"], whole, strict=True)])
            for each in (row, half)
        )
        pairs = zip(row["losses_second_half"], half["losses_second_half"], strict=True)
        effects.append(of_samples([every - some for every, some in pairs]))
        lines.append(
            f"{percent(row['density'])} of the inputs, nats above dense: {said(ours)} where all tokens are sparse,\n"
            f"    {said(theirs)} where the first half is dense; {said(effects[-1])} between them"
        )
    lines.append(f"Claim: a dense first half makes the second look better: {verdict(effects)}")
    return "\n".join(lines)
