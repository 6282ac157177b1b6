"""Lines of lesson 02."""

from functools import partial

from course_lib.lessons.classic import fisher, tables
from course_lib.lessons.classic import measured as found
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="classic", results=("classic/measured",))
_small = partial(Rule, lesson="classic", results=("classic/small",), lines=lambda: fisher.order_verdict(found.small()))


def _xor() -> str:
    return tables.xor_verdict(found.results())


def _monks() -> str:
    return tables.monks_verdict(found.results())


XOR_RIGHT = _rule(
    lines=_xor,
    line="only OBS leaves XOR right",
    effect="share of the networks that OBS alone leaves right",
    refuted="one network that OBS leaves wrong, or none that the others do",
)
XOR_CHOICE = _rule(
    lines=_xor,
    line="only OBS chooses a correct weight",
    effect="share of the networks in which OBS alone chooses a weight whose deletion can be mended",
    refuted="another method that chooses such a weight as often",
)
MONKS_FEWER = _rule(
    lines=_monks,
    line="without retraining OBS leaves fewer weights",
    effect="weights fewer than the better of the others, by problem",
    refuted="a problem on which magnitude or OBD leaves as few",
)
DIGITS = _rule(
    lines=lambda: tables.digits_verdict(found.results()),
    line="with nothing retrained OBS goes over 5 points further",
    effect="of all weights, beyond 0.05 more than the better of the others",
    refuted="a gain of less than 5 points of sparsity over magnitude and OBD",
)
ROWS = _rule(
    lines=lambda: tables.rows_verdict(found.results()),
    line="OBS's error is smaller",
    effect="log of OBD's error over OBS's, by layer",
    refuted="a layer of the language model in which OBD's error is no larger",
)
FISHER_ORDER = _small(
    line="squared gradients order the weights as the Hessian does",
    effect="rank correlation above 0.9, by situation",
    refuted="a situation in which squared gradients and curvatures rank weights otherwise",
)
MONKS_1, MONKS_2, MONKS_3 = (
    _rule(
        lines=_monks,
        line=f"on problem {problem} more than half do so",
        effect="share of the networks above a half",
        refuted="half of the networks or more that lose accuracy or keep more weights than published",
    )
    for problem in (1, 2, 3)
)
RETRAINED = _rule(
    lines=lambda: tables.retraining_verdict(found.results()),
    line="retraining brings back over half of what magnitude has cost",
    effect="share of the digits beyond half of what was lost",
    refuted="half or more of the loss left after retraining",
)
OBD_HARMS = _rule(
    lines=lambda: tables.retraining_verdict(found.results()),
    line="OBD alone costs over a point",
    effect="share of the digits lost beyond 0.01",
    refuted="less than a point lost at 70 % without retraining",
)
GENERALISE = _rule(
    lines=lambda: tables.generalisation_verdict(found.results()),
    line="pruned by OBS, networks are right on more of all 432",
    effect="share of the robots more than before, by problem",
    refuted="a problem on which pruned networks are right on no more",
)
