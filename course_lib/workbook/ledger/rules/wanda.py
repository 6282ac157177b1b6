"""Lines of lesson 04."""

from functools import partial

from course_lib.lessons.wanda import accuracies, tables
from course_lib.lessons.wanda import measured as found
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="wanda", results=("wanda/measured",))
_papers = partial(_rule, lines=lambda: tables.claims_table(found.results()))

PERPLEXITY = _papers(
    line="Wanda's perplexity is below magnitude's at 50 %",
    effect="nats a token below magnitude",
    refuted="a perplexity at 50 % that is not below magnitude's",
)
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
GROUPS = _papers(
    line="Each output is the best comparison group",
    effect="nats a token below each other group",
    refuted="another group that loses no more",
)
CALIBRATION = _papers(
    line="More than one window of calibration text helps",
    effect="nats a token below each sample of one window",
    refuted="a single window that does as well as 32",
)
ONE_WORD = _rule(
    lines=lambda: accuracies.one_word_verdict(found.results()),
    line="lambada keeps less",
    effect="of the share kept, below that of the other tasks, by model",
    refuted="a pruned model that keeps as much of the one-word task as of the choices",
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
