"""Lines of lesson 05."""

from functools import partial

from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.minitron.figures import counted, equal_compute, found, verdicts
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="minitron", results=("minitron/measured",))
_papers = partial(_rule, lines=lambda: verdicts.claims_table(found.results()), effect="nats a token read better")

LOTS = _papers(
    line="Sizes of activations choose better than lots",
    effect="nats a token below a choice by lot, by cut",
    refuted="a cut whose choice by activations reads no better than one by lot",
)
WIDTH = _papers(
    line="Width is better than depth",
    refuted="a model with fewer blocks that reads as well after the same steps",
)
REPAIRED = _papers(
    line="steps repair more than half of what the cut cost",
    effect="nats a token gained beyond half of the loss",
    refuted="half or more of the cut's loss left after 300 steps",
)
AGGREGATION = _rule(
    lines=lambda: verdicts.aggregations(found.results()),
    line="the mean over tokens, then L2 over windows, is the best of them",
    effect="nats a token below other ways to add sizes up, by cut and way",
    refuted="another way that chooses better",
)
SHAPES_COUNTED = Rule(
    lesson="minitron",
    results=(),
    lines=counted.shapes_verdict,
    line="the shapes have the printed parameters",
    effect="of the parameters, nearer than 1 %, by model",
    refuted="a shape whose count is over 1 % away from what is printed",
)
CUT_FASTER = Rule(
    lesson="minitron",
    results=("bench/cpu_structured",),
    lines=counted.speed_verdict,
    line="a model that was cut is faster without kernels of its own",
    effect="log of the whole model's time over that of the cut one, by cut and length",
    refuted="a cut model that is no faster",
)
EQUAL_COMPUTE = Rule(
    lesson="minitron",
    results=("minitron/measured", "minitron/equal_compute"),
    lines=lambda: equal_compute.claims_table(found.results(), load_measured("minitron", "equal_compute")),
    line="At equal compute a cut model ends ahead of one from nothing",
    effect="nats a token below the same shape from nothing",
    refuted="a model of the same shape from nothing that ends as low",
)
