"""Lines of lesson 07."""

from functools import partial

from course_lib.lessons.kv import tables
from course_lib.lessons.kv.claims import asked, heavy_shown, written
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="kv", results=("kv/measured",))
_heavy = partial(_rule, results=("kv/heavy",))
_attention = partial(_rule, lines=tables.attention_verdicts, effect="share of the layers beyond what is claimed")

SPARSE = _attention(
    line="over 95 % of the weights are negligible",
    refuted="fewer than 95 % of the layers with over 95 % of their weights below a hundredth of the largest",
)
POWER_LAW = _attention(
    line="mass falls like a power of the rank",
    refuted="half of the layers or more whose mass falls exponentially with the rank",
)
PERSISTENCE = _attention(
    line="of what matters later, over 95 % mattered before",
    refuted="half of the layers or more in which over 5 % of what matters later did not matter before",
)
THAN_WINDOW = _rule(
    lines=tables.heavy_verdict,
    line="heavy hitters beat a plain window",
    effect="nats a token below the window, by budget",
    refuted="a budget at which a window of the newest tokens reads as well",
)
THAN_SINKS = _rule(
    lines=tables.heavy_verdict,
    line="heavy hitters beat a window with four sinks",
    effect="nats a token below the window with sinks, by budget",
    refuted="a budget at which a window with four sinks reads as well",
)
FIVE_PER_CENT = _heavy(
    lines=heavy_shown.enough_verdict,
    line="5 % of the tokens, chosen anew for each query",
    effect="nats a token below a loss of 0.01",
    refuted="more than 1 % of perplexity lost when each query reads its 5 % largest weights",
)
MASKED = _heavy(
    lines=heavy_shown.masked_verdict,
    line="masking the heaviest costs more than",
    effect="nats a token above masking as many by lot, at 2 and 10 %",
    refuted="as much loss from masking as many tokens by lot",
)
MASKED_BUT_FIRST = _heavy(
    lines=heavy_shown.masked_verdict,
    line="masking the heaviest but the first token costs more",
    effect="nats a token above masking as many by lot, at 2 and 10 %",
    refuted="as much loss from masking by lot, once the first token is spared",
)
REPEATS_LESS = _heavy(
    lines=written.written_verdict,
    line="with H2O the model repeats itself less",
    effect="share of different tokens above that of the full cache",
    refuted="as many repeated tokens with H2O as with the full cache",
)
ANSWERS = _rule(
    lines=asked.window_verdict,
    line="each way to choose who stays answers more than a plain window",
    effect="share of the needles above the window's, by policy, task and budget",
    refuted="a policy that finds no more needles than a window of as many slots",
)
LOOKS_AGAIN = _rule(
    lines=asked.recycled_verdict,
    line="looking at everything now and then answers the second question better",
    effect="share of the answers above the best eviction's, by way",
    refuted="an eviction that answers the second question as well",
)
