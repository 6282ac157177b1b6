"""Lines of lesson 08."""

from functools import partial

from course_lib.lessons.sinks.claims import backcopy, further, trained, training, ways
from course_lib.lessons.sinks.claims import measured as stream
from course_lib.workbook.ledger.record import Rule

_stream = partial(Rule, lesson="sinks", results=("kv/measured",), lines=stream.stream_verdict)
_ways = partial(Rule, lesson="sinks", results=("sinks/four_ways",))
_trained = partial(Rule, lesson="sinks", results=("sinks/sink_pretraining",))
_idle = partial(
    Rule,
    lesson="sinks",
    results=("sinks/backcopy",),
    lines=lambda: backcopy.verdict(backcopy.results()),
    effect="share of the trainings above a half",
)

COLLAPSE = _stream(
    line="without a sink the window collapses",
    effect="nats a token beyond 1.5 times the perplexity",
    refuted="a window without first tokens within 1.5 times the perplexity of the full cache",
)
ONE_SINK = _stream(
    line="one sink brings back over 80 %",
    effect="nats a token beyond 80 % of what the window lost",
    refuted="a fifth or more of the loss left with the first token kept",
)
NEWLINES = _stream(
    line="four newlines do over 90 %",
    effect="nats a token beyond 90 % of what the text's own first tokens do",
    refuted="newlines in the first places that do clearly less than the text's own tokens",
)
DENSE_BEYOND = _ways(
    lines=lambda: ways.ways_verdict(ways.results()),
    line="beyond the trained length, dense",
    effect="nats a token beyond 1.5 times StreamingLLM's perplexity",
    refuted="dense attention beyond the trained length within 1.5 times StreamingLLM's perplexity",
)
WINDOW_ALONG = _ways(
    lines=lambda: ways.ways_verdict(ways.results()),
    line="without sinks, along the whole text",
    effect="nats a token beyond 1.5 times StreamingLLM's perplexity",
    refuted="a window without sinks within 1.5 times StreamingLLM's perplexity",
)
AS_AFRESH = _ways(
    lines=lambda: ways.ways_verdict(ways.results()),
    line="StreamingLLM is at most 5 % above",
    effect="nats a token below a loss of 5 % of perplexity",
    refuted="over 5 % more perplexity than a window that is read afresh",
)
CHAT_COLLAPSES = _ways(
    lines=lambda: ways.chat_verdict(ways.results()),
    line="without sinks over 10 points more of the second answer is repetition",
    effect="share of repeated runs of words beyond 0.1 more than with everything kept",
    refuted="second answers without sinks that repeat little more than with everything kept",
)
CHAT_GOES_ON = _ways(
    lines=lambda: ways.chat_verdict(ways.results()),
    line="with four sinks less than 10 points more of the second answer is repetition",
    effect="share of repeated runs of words below 0.1 more than with everything kept",
    refuted="second answers with four sinks that go round in circles",
)
SLOT_MISSED = _trained(
    lines=lambda: trained.pretraining_verdict(training.results()),
    line="without any first slot each of the 3 is worse",
    effect="nats a byte beyond 1 % of perplexity, by kind of softmax",
    refuted="a model that loses nothing without its first slot",
)
OWN_SLOT = _trained(
    lines=lambda: trained.pretraining_verdict(training.results()),
    line="one slot, its own, does over 90 %",
    effect="nats a byte beyond 90 % of what four slots do",
    refuted="a learnable sink that leaves a tenth or more of the loss",
)
REGISTERS = _trained(
    lines=lambda: trained.registers_verdict(training.results()),
    line="patches stand out without registers",
    effect="log of the largest norm over 3 medians; log of what registers leave of the excess, below a half",
    refuted="patches whose norms are alike, or as large with registers as without",
)
IDLE = _idle(
    line="idle, the head gives most of its attention to its sink",
    refuted="half of the trainings or more whose idle head gives its attention elsewhere",
)
_further = partial(Rule, lesson="sinks", results=("kv/measured",), lines=further.further_verdict)

ONE_IS_NOT_ENOUGH = _further(
    line="one sink is not enough",
    effect="nats a token that one sink is worse than four, beyond 1 % of perplexity",
    refuted="one sink within 1 % of four",
)
ROLLING = _further(
    line="far sinks need positions of the cache",
    effect="nats a token that positions of the text cost more",
    refuted="sinks 65,536 positions away that read as well with positions of the text",
)
STREAM_STEADY = _further(
    line="the second half of a stream has at most 1.05 times",
    effect="nats a token below 1.05 times the perplexity of the first half",
    refuted="a second half of the stream that reads over 5 % worse",
)
TWENTY_TWO = _further(
    results=("bench/cpu_kv",),
    line="a token of a stream is over 22 times as fast",
    effect="log of the fresh window's time over the stream's, beyond 22 times",
    refuted="less than 22 times the speed of the largest window read anew",
)
