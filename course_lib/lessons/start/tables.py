"""The tables of lesson 00."""

import math
from collections.abc import Mapping

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.start.experiments.plans import GOAL, Attempt, stored
from course_lib.lessons.start.plots import SMOLLM2
from course_lib.measure.paired import mean_and_error
from course_lib.measure.roofline import Device


def plans(
    yours: Attempt | None = None, ideas: Mapping[str, Attempt] | None = None, device: Device | None = None
) -> Table:
    """Compare the plans of the open task: bytes saved, speedup by the roofline, measured speedup, verdict."""
    results = load_measured("start", "plans")["tables"]
    ideas = ideas or stored(results["ideas"], SMOLLM2)
    device = device or Device(**results["machine"][0], source="measured")
    rows = []
    for name, each in {**ideas, **({"yours": yours} if yours else {})}.items():
        speedup, error = mean_and_error(each.log_speedups)
        rows.append(
            {
                "plan": name,
                "bytes not read": each.bytes_saved,
                "roofline": each.whole.seconds(device) / each.reduced.seconds(device),
                "measured": math.exp(speedup),
                "error": error,
                "pairs of steps": len(each.pairs),
                "twice as fast?": verdict(of_samples(each.log_speedups, math.log(GOAL))).split(" (")[0],
            }
        )
    return Table(
        rows,
        caption="Speedup of a decoding step",
        formats={
            "bytes not read": percent,
            "roofline": number(2),
            ("measured", "error"): lambda times, error: f"{times:.2f} ± {percent(error)}",
        },
        note="roofline: the speedup that bytes and FLOPs predict. measured: ± one standard error, in per cent of the "
        "speedup.",
    )
