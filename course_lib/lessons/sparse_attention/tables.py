"""The tables of lesson 11, from the stored results, the published numbers, and what the notebook measures."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.table import Table, number, percent, plus_minus, with_range
from course_lib.lessons.common.tables import Measured, load_bench, load_measured, load_published, rows
from course_lib.lessons.common.verdicts import of_samples
from course_lib.lessons.sparse_attention.estimates import clock, delta, drafts, prefill, steering, visual
from course_lib.lessons.sparse_attention.estimates.rows import results, some
from course_lib.lessons.sparse_attention.experiments.block_scores import DENSE, DENSITY
from course_lib.lessons.sparse_attention.experiments.drafts import COPYING, HALF, LOOKUP, RUNNING
from course_lib.lessons.sparse_attention.experiments.items import READING, RESIDENTS
from course_lib.lessons.sparse_attention.experiments.sparse_attention import RELEASED
from course_lib.lessons.sparse_attention.experiments.visual_tokens import ALL, ALONE, METHOD, RANDOM, TOLD

ABOVE = "nats per token above dense"
RULE_NAMES = {
    "vertical-slash": "vertical-slash, one budget for all heads",
    "StreamingLLM": "StreamingLLM (first tokens and a window)",
    "random": "random blocks",
    RELEASED: "FlexPrefill as released",
}
DRAFT_NAMES = {
    LOOKUP: "prompt lookup",
    "24 of 30 blocks": "early exit (24 of 30)",
    "Minitron's cut": "structural pruning",
    HALF: "oracle, half of neurons",
}
VISUAL_NAMES = {TOLD: "told where the digits are (oracle)"}
AS_PUBLISHED = {"without calibration": visual.BY_HAND}  # what the paper's ablation calls it


def draft_name(draft: str) -> str:
    """Return the name of a draft in tables and figures."""
    return DRAFT_NAMES.get(draft, draft)


# FlexPrefill


def losses_by_rule(
    found: Mapping[str, tuple[Float[Tensor, "N"], float]], fraction: str = "fraction of blocks read"
) -> Table:
    """Compare losses on the windows of the notebook with those of dense attention, which come first."""
    (dense, _), *_ = found.values()
    table = []
    for name, (losses, share) in found.items():
        above = None if losses is dense else of_samples(losses - dense)
        row = {"attention": name, fraction: float(share), "perplexity": float(losses.mean().exp())}
        table.append(row | {ABOVE: above and above.value, "error": above and above.error})
    return Table(
        table,
        caption=f"Perplexity on {len(dense)} windows",
        formats={fraction: percent, "perplexity": number(2), (ABOVE, "error"): plus_minus(3, sign=True)},
        note="± one standard error, itself rough for so few windows.",
    )


def prefill_by_gamma(measured: Measured | None = None) -> Table:
    """Show what FlexPrefill reads and what that costs, by length and γ."""
    measured = measured or results("sparse_attention")
    sizes = measured["sizes"]
    return _reads(
        [{"tokens": row["tokens"], "γ": row["gamma"]} | _read(measured, row) for row in prefill.flex(measured)],
        "FlexPrefill compared with dense attention, by length and γ",
        f"{sizes['windows']} windows per length, blocks of {sizes['block_size']} tokens; every head reads at least "
        f"{sizes['min_budget']} tokens of columns and of diagonals. Attention read: the mean over all queries. "
        "`course reproduce sparse_attention` and `sparse_attention_further`.",
    )


def prefill_rules(measured: Measured | None = None) -> Table:
    """Compare FlexPrefill with other rules at one length: rules of the same density, and variants of its own."""
    measured = measured or results("sparse_attention")
    chosen = prefill.chosen(measured)
    table = [{"rule": "FlexPrefill", "γ": chosen["gamma"]} | _read(measured, chosen)]
    others = [*prefill.of_same_density(measured), *some(measured, "read", rule=RELEASED)]
    table += [{"rule": RULE_NAMES[row["rule"]], "γ": row["gamma"]} | _read(measured, row) for row in others]
    for row in prefill.bare(measured):
        pair = {"FlexPrefill": prefill.with_floor(measured)[row["gamma"]], "FlexPrefill, no minimum": row}
        table += [{"rule": name, "γ": each["gamma"]} | _read(measured, each) for name, each in pair.items()]
    return _reads(
        table,
        f"Which blocks to read: rules compared on texts of {measured['sizes']['middle']} tokens",
        "The three rules without γ give every head the mean number of blocks that FlexPrefill reads.",
    )


def _read(measured: Measured, row: Row) -> dict[str, Any]:
    effect = prefill.above(measured, row)
    ratio = math.exp(effect.value)
    return {
        "blocks read": prefill.density(row),
        "attention read": row["coverage"],
        "perplexity": row["perplexity"],
        "ratio to dense": ratio,
        "error": ratio * effect.error,
    }


def _reads(table: list[dict[str, Any]], caption: str, note: str) -> Table:
    formats = {"blocks read": percent, "attention read": number(1, "%", 100), "perplexity": number(2)}
    return Table(table, caption=caption, formats=formats | {("ratio to dense", "error"): plus_minus(3)}, note=note)


def prefill_times(bench: Measured | None = None) -> Table:
    """Show how many times as fast as dense attention FlexPrefill is, with and without the time of the choice."""
    bench = bench or load_bench("cpu_sparse_prefill")
    alone, whole = (clock.by_place(clock.timed(bench, side)) for side in (clock.READ, clock.WHOLE))
    choice = clock.by_place(clock.timed(bench, clock.CHOSEN))
    table = []
    for row in clock.timed(bench, clock.CHOSEN_AND_READ):
        place = row["tokens"], row["gamma"]
        table.append(
            {"tokens": row["tokens"], "γ": row["gamma"], "blocks read": row["density"]}
            | _times("choose and read", row)
            | _times("read alone", alone[place])
            | {"choice": 1 / choice[place]["times_anchor"]}
            | _times("whole model", whole.get(place))
        )
    columns = ("choose and read", "read alone", "whole model")
    return Table(
        table,
        caption="Speedup over dense attention on a CPU",
        formats={"blocks read": percent, "choice": percent}
        | {tuple(_times(name, None)): with_range(2) for name in columns},
        note="In brackets: 10 % to 90 % of the repetitions. choice: compared with the time of dense attention. A dash: "
        "not timed. `course bench sparse_prefill`.",
    )


def _times(name: str, row: Row | None) -> dict[str, float | None]:
    """Three columns: the median of the repetitions, and their 10 % and 90 % points."""
    ends = {name: "times_anchor", f"{name}, slowest": "times_anchor_low", f"{name}, fastest": "times_anchor_high"}
    return {column: row and row[key] for column, key in ends.items()}


def block_scores(attempt: Float[Tensor, "N"] | None = None) -> Table:
    """Compare scores for the open task on the same windows; your attempt comes last."""
    measured = load_measured("sparse_attention", "block_scores")["tables"]["scores"]
    n = len(measured[0]["losses"]) if attempt is None else len(attempt)
    losses = {row["idea"]: row["losses"][:n] for row in measured}
    dense = losses.pop(DENSE)
    losses |= {} if attempt is None else {"yours": attempt.tolist()}
    table = []
    for name, each in losses.items():
        above = of_samples([a - b for a, b in zip(each, dense, strict=True)])
        table.append({"score": name, ABOVE: above.value, "error": above.error})
    return Table(
        table,
        caption=f"Scores for blocks: the loss when every head reads {percent(DENSITY)} of the blocks",
        formats={(ABOVE, "error"): plus_minus(3, sign=True)},
        note=f"{n} windows of 1,024 tokens; ± one standard error. `course reproduce block_scores`.",
    )


# Speculative decoding


def drafts_by_text(measured: Measured | None = None) -> Table:
    """Show for each draft how many tokens are accepted, and what that saves in weight loads and in bytes."""
    measured = measured or results("drafts")
    sizes, table = measured["sizes"], []
    for row in drafts.speculated(measured).values():
        draft, kind = row["draft"], row["kind"]
        mean, error = drafts.tokens_a_pass(measured, draft, kind)
        accepted, accepted_error = drafts.alpha(measured, draft, kind)
        table.append(
            {
                "text": kind,
                "draft": draft_name(draft),
                "draft's bytes": row["read"],
                "α": accepted,
                "α error": accepted_error,
                "tokens per pass": mean,
                "error": error,
                "predicted": drafts.expected(measured, draft, kind),
                "weight loads": 100 / mean,
                "bytes saved": fmean(drafts.speeds(measured, row)),
            }
        )
    shares = {kind: rows(measured, "overlap", draft=LOOKUP, kind=kind) for kind in (RUNNING, COPYING)}
    proposed = [percent(found[0]["proposed"]) for found in shares.values() if found]
    return Table(
        table,
        caption="Speculative decoding with different drafts",
        formats={
            "draft's bytes": percent,
            ("α", "α error"): plus_minus(2),
            ("tokens per pass", "error"): plus_minus(2),
            "predicted": number(2),
            "weight loads": number(0),
            "bytes saved": number(2, "×"),
        },
        note=f"k = {sizes['k']} drafted tokens, temperature 1, {sizes['written']} texts. draft's bytes: of one pass of "
        "the draft, compared with a pass of the target model. weight loads: of the target model per 100 tokens. bytes "
        "saved: bytes per token without a draft over those with it. The oracle computes all neurons in order to choose "
        f"half of them, so it saves nothing in practice. Prompt lookup finds a match at {' and '.join(proposed)} of "
        "the positions. `course reproduce drafts`.",
    )


# The optional sections


def deltas(measured: Measured | None = None) -> Table:
    """Show what delta coding of keys leaves out and what that costs, by threshold and variant."""
    measured = measured or results("delta")
    found = [*sorted(delta.main(measured), key=lambda row: row["theta"])]
    for change in ({"window": 1}, {"sinks": 0}, {"side": "before"}):
        found += delta.changed(measured, **change)
    table = []
    for row in found:
        effect = delta.above(measured, row)
        shown = {
            "θ": row["theta"],
            "window": row["window"],
            "exact sinks": row["sinks"],
            "coded": f"{row['side']} RoPE",
        }
        shown |= {"values not sent": row["zeros"], "products left out": row["sparsity"]}
        table.append(shown | {"perplexity": row["perplexity"], ABOVE: effect.value, "error": effect.error})
    published = {row["model"]: percent(row["prefill"]) for row in rows(load_published("sparse_attention"), "deltallm")}
    sizes = measured["sizes"]
    return Table(
        table,
        caption="Delta-coded keys, by threshold and variant",
        formats={"values not sent": percent, "products left out": percent, "perplexity": number(2)}
        | {(ABOVE, "error"): plus_minus(3, sign=True)},
        note=f"{sizes['windows']} windows of {sizes['length']} tokens; θ in standard deviations of a channel. "
        "products: of QKᵀ. Published for the prefill (abstract): "
        f"{', '.join(f'{saving} ({model})' for model, saving in published.items())}. `course reproduce delta`.",
    )


def steered_answers(measured: Measured | None = None) -> Table:
    """Show right answers and log-probabilities by what is steered, on residents and on SciQ."""
    measured = measured or results("steering")
    conditions = dict.fromkeys((row["heads"], row["steered"]) for row in some(measured, "answers"))
    table = []
    for heads, what in conditions:
        shown = {"steered heads": heads, "sentence": what}
        for data in (RESIDENTS, READING):
            row = steering.condition(measured, data, heads, what)
            shown[f"{data}: right"] = row and row["accuracy"]
            shown[f"{data}: log-probability"] = row and fmean(row["log_probability"])
        table.append(shown)
    named = {row["data"]: row for row in some(measured, "named")}
    (published,) = rows(load_published("sparse_attention"), "autopasta")
    chance = {row["data"]: percent(row["chance"]) for row in some(measured, "answers")}
    return Table(
        table,
        caption="Answers with steered attention",
        formats=dict.fromkeys((f"{data}: right" for data in (RESIDENTS, READING)), percent)
        | dict.fromkeys((f"{data}: log-probability" for data in (RESIDENTS, READING)), number(2)),
        note=f"{measured['sizes']['tested']} questions of each kind. log-probability: of the right answer, in nats. "
        f"Right by chance: {' and '.join(f'{share} ({data})' for data, share in chance.items())}. The model names the "
        f"key sentence in {_named(named)}. Published (abstract): {published['improvement']:.2f} % better answers on "
        f"average ({published['model']}). `course reproduce steering` and `sparse_attention_further`.",
    )


def _named(named: Mapping[str, Row]) -> str:
    return " and ".join(
        f"{row['right'].count('1')} of {row['n']} ({data}; at random {percent(steering.chance_of_key(row))})"
        for data, row in named.items()
    )


def visual_tokens(measured: Measured | None = None) -> Table:
    """Show accuracy by the way to choose visual tokens and by the fraction of them; means of random trials."""
    measured = measured or results("visual_tokens")
    fractions, whole = {percent(share): share for share in visual.shares(measured)}, visual.dense(measured)
    methods = (METHOD, visual.BY_HAND, *(f"without {part}" for part in visual.PARTS), *ALONE, RANDOM, TOLD)
    table = [{"tokens chosen by": ALL, "100 %": 100 * whole["accuracy"]}]
    for method in methods:
        values = {name: 100 * visual.mean_accuracy(measured, method, share) for name, share in fractions.items()}
        table.append({"tokens chosen by": VISUAL_NAMES.get(method, method)} | values)
    return Table(
        table,
        caption="Right answers (%) by the fraction of the tokens that is read, mean over layers",
        formats=dict.fromkeys(("100 %", *fractions), number(1)),
        note=f"{whole['n']} questions. `course reproduce visual_tokens`.",
    )


def visual_published(measured: Measured | None = None) -> Table:
    """Compare the paper's numbers with ours: accuracy relative to all tokens, and the parts of the method."""
    measured = measured or results("visual_tokens")
    published, whole = load_measured("sparse_attention", "published_visual")["tables"], visual.dense(measured)
    table = []
    for row in published["vflowopt_kept"]:
        ours = visual.mean_accuracy(measured, METHOD, row["share"]) / whole["accuracy"]
        table.append(
            {"what": f"{percent(row['share'])} of the tokens, relative to all", "published": 100 * row["of_all"]}
        )
        table[-1]["here"] = 100 * ours
    for row in published["vflowopt_parts"]:
        ours = visual.mean_accuracy(measured, AS_PUBLISHED.get(row["what"], row["what"]), 0.25)
        table.append({"what": f"25 % of the tokens, {row['what']}", "published": row["mmstar"], "here": 100 * ours})
    costs = [
        f"{row['what']} {row['milliseconds']} ms, {row['megabytes']} MB of keys and values"
        for row in published["vflowopt_cost"]
    ]
    return Table(
        table,
        caption="Right answers (%): the paper's models and questions, and ours",
        formats=dict.fromkeys(("published", "here"), number(1)),
        note="Published: LLaVA-OneVision; ten benchmarks in the first rows, MMStar in the others. "
        f"Published cost: {'; '.join(costs)}.",
    )
