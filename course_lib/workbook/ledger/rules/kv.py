"""Lines of lesson 07."""

from functools import partial

from course_lib.lessons.kv import tables
from course_lib.lessons.kv.claims import asked, attended, heavy_shown, policies, words, written
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
OFTEN = _heavy(
    lines=words.committed,
    line="tokens that occur often receive more in all",
    effect="rank correlation of how often a token occurs with what all its occurrences receive",
    refuted="no rank correlation, or a negative one",
)
HEADS_DIFFER = _heavy(
    lines=attended.heads_verdict,
    line="the heads of a layer differ by over 0.1",
    effect="beyond 0.1 between a layer's first and last head: share of negligible weights; cosine of like keys",
    refuted="heads of a layer that are less than 0.1 apart on texts that did not choose them",
)
REPEATS_LESS = _heavy(
    lines=written.written_verdict,
    line="with H2O the model repeats itself less",
    effect="share of different tokens above that of the full cache",
    refuted="as many repeated tokens with H2O as with the full cache",
)
LOOKS_AGAIN = _rule(
    lines=asked.recycled_verdict,
    line="looking at everything now and then answers the second question better",
    effect="share of the answers above the best eviction's, by way",
    refuted="an eviction that answers the second question as well",
)
_layers = partial(_rule, lines=attended.attended_verdict, effect="share of the layers above a half")
_kept = partial(_rule, lines=policies.kept_verdict)
_shown = partial(_heavy, lines=policies.shown_verdict)
_clock = partial(_rule, results=("bench/cpu_kv",), lines=policies.clock_verdict)

FIRST_TOKEN = _layers(
    line="the first token receives over 10 even shares",
    refuted="half of the layers or more in which the first token receives less",
)
PUNCTUATION = _layers(
    line="punctuation receives more a token than words",
    refuted="half of the layers or more in which words receive as much",
)
NEAR = _layers(
    line="the 16 nearest tokens receive over half",
    refuted="half of the layers or more in which distant tokens receive more",
)
FEW_CARRY_MOST = _layers(
    line="5 % of the tokens receive over half of the attention",
    refuted="half of the layers or more whose attention is spread wider",
)
SHALLOW_DENSER = _layers(
    line="the last third of the layers is sparser than the first",
    effect="of the weights, negligible beyond the first third's share",
    refuted="a last third that is no sparser",
)
FIVE_TIMES = _kept(
    line="a fifth of the cache, by Scissorhands, costs less than 1 %",
    effect="nats a token below a loss of 0.01",
    refuted="over 1 % of perplexity lost with a fifth of the prompt",
)
TWENTY_TIMES = _kept(
    line="with 4 bits it takes 20 times less",
    effect="times smaller beyond 20",
    refuted="stored codes and scales of less than a 20th",
)
FEWER_BITS = _kept(
    line="4 bits for what stays cost less than 1 %",
    effect="nats a token below a loss of 0.01, by policy",
    refuted="over 1 % of perplexity lost by 4 bits on top of eviction",
)
EMS_BEST = _kept(
    line="EMS reads better than other policies",
    effect="nats a token below four other policies, by budget",
    refuted="a budget at which another policy reads as well",
)
D2O_MERGES = _kept(
    line="merging reads better than the same eviction alone",
    effect="nats a token below H2O, by budget",
    refuted="a budget at which eviction alone reads as well",
)
EMS_NEEDLES = _kept(
    line="EMS finds 95 % of the needles in a small cache",
    effect="share of the needles beyond 0.95, at 10 % of the text",
    refuted="a twentieth of the needles or more that are lost",
)
STREAMING_H2O = _kept(
    line="positions counted in the cache let H2O stream",
    effect="nats a token below 1.05 times the full cache",
    refuted="over 5 % more perplexity than with the full cache",
)
FORGETS_THE_MIDDLE = _kept(
    line="StreamingLLM finds fewer needles in the middle",
    effect="share of the needles at the end above that in the middle, by task and budget",
    refuted="as many needles found in the middle as at the end",
)
BY_SIMILARITY = _kept(
    line="looking again by similarity finds more",
    effect="share of the answers above a look every 8 steps",
    refuted="as many answers by looking every 8 steps",
)
SUM_IS_BIASED = _shown(
    line="sums of attention keep more of the first quarter",
    effect="share of what stays that lies in the first quarter, beyond that by means, by budget",
    refuted="a budget at which means keep as many old tokens",
)
MEANS_READ_BETTER = _shown(
    line="means of attention read better than sums",
    effect="nats a token below the choice by sums, by budget",
    refuted="a budget at which sums choose as well",
)
WRITES_ON = _shown(
    line="H2O writes what the full cache expects more than a window does",
    effect="nats a token, by the full cache, below what a window writes",
    refuted="a window of as many slots whose text the full cache finds as likely",
)
FASTER = _clock(
    line="a fifth of the cache decodes faster than all of it",
    effect="log of the time with nothing evicted over H2O's, one text and eight",
    refuted="a cache of a fifth that takes as long as the same cache with nothing evicted",
)
LATENCY = _clock(
    line="it decodes over 1.9 times as fast",
    effect="log of the time with nothing evicted over H2O's, beyond 1.9 times, one text and eight",
    refuted="less than 1.9 times the speed of the same cache with nothing evicted",
)
RECYCLED_SPEED = _clock(
    line="recycling is at most a tenth slower",
    effect="log of the window's time over recycling's, beyond a tenth slower, one text and eight",
    refuted="recycling that takes over a tenth longer",
)
