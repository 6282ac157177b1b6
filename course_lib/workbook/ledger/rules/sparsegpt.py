"""Lines of lesson 03."""

from functools import partial

from course_lib.lessons.sparsegpt import beside, claims, tables
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="sparsegpt", results=("sparsegpt/measured",))


def _papers() -> str:
    """The claims of the deck's last table, a line each."""
    return "\n".join(f"Claim: {claim}: {word}" for claim, _, _, word in beside.claims())


_papers_rule = partial(_rule, lines=_papers, effect="nats a token below the other")

PATTERNS = _rule(
    lines=tables.pattern_verdict,
    line="unstructured costs less than 4:8",
    effect="nats a token that the tighter pattern costs more, by method and step",
    refuted="a method with which a tighter pattern costs no more",
)
THAN_WANDA_HALF = _papers_rule(
    line="50 %: lower perplexity than Wanda",
    refuted="a perplexity at 50 % that is not below Wanda's",
)
THAN_WANDA_2_4 = _papers_rule(
    line="2:4: lower perplexity than Wanda",
    refuted="a perplexity at 2:4 that is not below Wanda's",
)
NEAR_THE_BEST = _papers_rule(
    results=("sparsegpt/experiments/sparsegpt_layers",),
    line="At most 20 % above the best weights",
    effect="of the best weights' error, below 1.2 times it; the median of all layers",
    refuted="a median error of more than 1.2 times that of the best weights on the same mask",
)
_beside = partial(_rule, lines=claims.beside_verdict)
THAN_MAGNITUDE = _beside(
    results=("sparsegpt/measured", "wanda/measured"),
    line="SparseGPT's perplexity is below magnitude's with each pattern",
    effect="nats a token below magnitude, by pattern",
    refuted="a pattern with which magnitude reads as well",
)
SLOWER = _beside(
    results=("sparsegpt/experiments/sparsegpt_seconds",),
    line="SparseGPT takes longer than Wanda beyond the forward passes",
    effect="log of the seconds over Wanda's",
    refuted="SparseGPT in no more seconds than Wanda",
)
ACCURACY_CLOSE = _beside(
    results=("sparsegpt/measured", "wanda/measured"),
    line="Wanda's accuracy at 50 % is at most 3 points below SparseGPT's",
    effect="share of the answers nearer than 0.03",
    refuted="over 3 points fewer right answers with Wanda",
)
