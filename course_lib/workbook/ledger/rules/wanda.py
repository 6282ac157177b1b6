"""Lines of lesson 04."""

from functools import partial

from course_lib.lessons.wanda import measured as found
from course_lib.lessons.wanda import tables
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="wanda", results=("wanda/measured",))
_papers = partial(_rule, lines=lambda: tables.claims_table(found.results()))

ACCURACY = _papers(
    line="Its accuracy is above magnitude's at 50 %",
    effect="share of the answers above magnitude's, the mean of the tasks with a signal",
    refuted="an accuracy at 50 % that is not above magnitude's",
)
PATTERNS = _papers(
    line="Tighter patterns cost more: 50 %, 4:8, 2:4",
    effect="nats a token that each step costs",
    refuted="a tighter pattern that costs no more",
)
_sweep = partial(_rule, lines=lambda: tables.sweep_verdict(found.results()))
SWEEP = _sweep(
    line="each step of sparsity costs quality, with both methods",
    effect="nats a token that each step costs, by method",
    refuted="a step of sparsity that costs nothing",
)
MAGNITUDE_HARMS = _sweep(
    line="half of the weights by magnitude cost over 1.5 times",
    effect="nats a token beyond 1.5 times the perplexity",
    refuted="a perplexity within 1.5 times the dense one",
)
MAGNITUDE_FAILS_EARLY = _sweep(
    line="30 % by magnitude cost over 1.5 times",
    effect="nats a token beyond 1.5 times the perplexity",
    refuted="a perplexity at 30 % within 1.5 times the dense one",
)
HALF_IS_CHEAP = _sweep(
    line="half of the weights by Wanda cost less than 1.5 times",
    effect="nats a token below 1.5 times the perplexity",
    refuted="over 1.5 times the dense perplexity at 50 %",
)
TWO_FOUR_IS_CHEAP = _sweep(
    line="2:4 by Wanda costs less than 1.5 times",
    effect="nats a token below 1.5 times the perplexity",
    refuted="over 1.5 times the dense perplexity at 2:4",
)
