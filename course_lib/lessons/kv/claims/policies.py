"""Verdicts on what single policies promise: sizes, bits, merging, needles, and the clock."""

import math
from typing import Any

from course_lib.lessons.common.cache_speed import EVERYTHING
from course_lib.lessons.common.effects import accuracy_gap, log_gap, of_repetitions, share_above, share_gap
from course_lib.lessons.common.tables import load_bench, rows
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.lessons.kv.claims import heavy_shown, written
from course_lib.lessons.kv.claims.heavy_shown import ALIKE
from course_lib.lessons.kv.measured import FULL, Measured, results

FIFTH, TIMES = 0.2, 20  # of the prompt; smaller with 4 bits, in the abstract of Scissorhands
NEEDLES, LATENCY, AS_FAST = 0.95, 1.9, 1.1
STREAMED = 1.05  # times the perplexity
RIVALS = ("StreamingLLM", "H2O", "SnapKV", "TOVA")
DEPTHS = (0.5, 0.9)  # middle and end of the prompt
TIMED = (EVERYTHING, "H2O, 20 %", "StreamingLLM, 20 %", "recycled, 20 % read")


def kept_verdict(measured: Measured | None = None) -> str:
    """Perplexity and needles behind a compressed prompt."""
    measured = measured or results()
    (full,) = rows(measured, "compressed", policy=FULL)
    fifth = {name: _of(measured, name, FIFTH) for name in ("Scissorhands", "StreamingLLM")}
    four_bits = {name: rows(measured, "quantized", policy=name, bits=4)[0] for name in fifth}
    streams = {name: rows(measured, "policies", policy=name)[0] for name in (FULL, "StreamingH2O")}
    ems = min(rows(measured, "retrieval", policy="EMS", task="word"), key=lambda row: row["budget"])
    judged = {
        "a fifth of the cache, by Scissorhands, costs less than 1 %": [_less(log_gap(full, fifth["Scissorhands"]))],
        f"with 4 bits it takes {TIMES} times less": [
            Effect(value=full["bytes"] / four_bits["Scissorhands"]["bytes"] - TIMES, error=0.0)
        ],
        "4 bits for what stays cost less than 1 %": [_less(log_gap(fifth[name], four_bits[name])) for name in fifth],
        "EMS reads better than other policies": _better(measured, "EMS", RIVALS),
        "merging reads better than the same eviction alone": _better(measured, "D2O", ("H2O",)),
        "EMS finds 95 % of the needles in a small cache": [
            share_above(round(ems["exact"] * ems["n"]), ems["n"], NEEDLES)
        ],
        "positions counted in the cache let H2O stream at under 5 % of loss": [
            _less(log_gap(streams[FULL], streams["StreamingH2O"]), math.log(STREAMED))
        ],
        "StreamingLLM finds fewer needles in the middle than at the end": _forgotten(measured),
        "looking again by similarity finds more than by a fixed number of steps": [_by_similarity(measured)],
    }
    return "\n".join(f"Claim: {claim}: {verdict(effects, larger_models=True)}" for claim, effects in judged.items())


def _of(measured: Measured, name: str, budget: float) -> dict[str, Any]:
    return rows(measured, "compressed", policy=name, budget=budget)[0]


def _less(cost: Effect, than: float = ALIKE) -> Effect:
    """How far a cost is below what counts as nothing."""
    return Effect(value=than - cost.value, error=cost.error, n=cost.n)


def _better(measured: Measured, name: str, others: tuple[str, ...]) -> list[Effect]:
    """At every budget, beside each of the others."""
    return [
        log_gap(row, _of(measured, other, row["budget"]))
        for row in rows(measured, "compressed", policy=name)
        for other in others
    ]


def _forgotten(measured: Measured) -> list[Effect]:
    """By task that the whole cache solves and budget of which the end is inside."""
    effects = []
    for full in rows(measured, "retrieval", policy=FULL):
        for budget in (FIFTH, 0.5) if full["usable"] else ():
            label = {"task": full["task"], "policy": "StreamingLLM", "budget": budget}
            middle, end = (rows(measured, "retrieval_depths", **label, depth=depth)[0] for depth in DEPTHS)
            effects.append(share_gap(end["exact"], middle["exact"], end["n"]))
    return effects


def _by_similarity(measured: Measured) -> Effect:
    second = {row["policy"]: row for row in rows(measured, "second_needle", question=2)}
    return accuracy_gap(second["recycled, by similarity"], second["recycled, every 8 steps"], "exact")


def shown_verdict(heavy: Measured | None = None) -> str:
    """From heavy.json: whom sums prefer, what that costs, and what a fifth of the cache writes."""
    heavy = heavy or heavy_shown.results()
    biased = heavy_shown.bias_effects(heavy)
    window, h2o = (written.written_effects(heavy)[name][1] for name in ("window", "H2O"))
    by_policy = {row["policy"]: row["losses"] for row in heavy["tables"]["written"]}
    nearer = of_samples([a - b for a, b in zip(by_policy["window"], by_policy["H2O"], strict=True)])
    judged = {
        "sums of attention keep more of the first quarter than means do": verdict([early for _, early, _ in biased]),
        "means of attention read better than sums": verdict([lower for _, _, lower in biased]),
        f"H2O writes what the full cache expects more than a window does ({h2o.value:+.2f} and {window.value:+.2f} "
        "nats above it)": verdict(nearer),
    }
    return "\n".join(f"Claim: {claim}: {said}" for claim, said in judged.items())


def clock_verdict(bench: dict[str, Any] | None = None) -> str:
    """Decoding behind 4096 tokens, one text and eight: beside the same cache with nothing evicted, not another one."""
    sides = (bench or load_bench("cpu_kv"))["tables"]["sides"]
    whole, h2o, stream, recycled = ([row for row in sides if row["side"] == side] for side in TIMED)
    judged = {
        "a fifth of the cache decodes faster than all of it": verdict(_faster(h2o, whole)),
        f"it decodes over {LATENCY} times as fast": verdict(_faster(h2o, whole, LATENCY), larger_models=True),
        "recycling is at most a tenth slower than a window with sinks": verdict(_faster(recycled, stream, 1 / AS_FAST)),
    }
    return "\n".join(f"Claim: {claim}: {said}" for claim, said in judged.items())


def _faster(mine: list[dict[str, Any]], theirs: list[dict[str, Any]], times: float = 1.0) -> list[Effect]:
    """Contest by contest; both were timed beside the same anchor, and their errors add. Prompts are not decoded."""
    effects = []
    for row in mine:
        if "steps of" in row["contest"]:
            (other,) = (each for each in theirs if each["contest"] == row["contest"])
            a, b = of_repetitions(row, times), of_repetitions(other)
            effects.append(Effect(value=a.value - b.value, error=math.hypot(a.error, b.error)))
    return effects
