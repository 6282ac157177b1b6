"""Lines of lesson 10."""

from functools import partial

from course_lib.lessons.compress.tables import claims, found, further, over, practice
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="compress", results=("compress/prompts",))
_gains = partial(_rule, lines=lambda: claims.gains(found.results()), effect="nats a token won, by compressed model")
_words = partial(_rule, lines=lambda: over.sentences(found.results()), effect="nats a token won, by sentence and model")
_moved = partial(_rule, lines=lambda: over.moved(found.results()))
_smaller = partial(_rule, lines=lambda: practice.smaller(found.results()))

OWN = _gains(
    line="a prompt of its own lowers the perplexity of a compressed model",
    refuted="a compressed model that reads no better with its own prompt",
)
BEYOND_DENSE = _gains(
    line="by more nats than one lowers that of the dense model",
    effect="nats a token won beyond the dense model's gain, by compressed model",
    refuted="a compressed model that gains no more than the dense one",
)
SENTENCE = _words(
    line="the authors' sentences help a compressed model",
    refuted="a compressed model that reads no better behind the sentence",
)
THAN_WRITTEN = _rule(
    lines=lambda: further.written(found.results()),
    line="a learned prompt is better than the authors' sentences",
    effect="nats a token below each sentence, by sentence and model",
    refuted="a compressed model that reads as well behind a sentence",
)
MOVES = _moved(
    line="a prompt from another model lowers the perplexity",
    effect="nats a token won, by pair of models",
    refuted="a pair of models whose prompt helps only where it was learned",
)
EIGHT_TIMES = _smaller(
    line="50 % and 4 bits are 8 times smaller in the blocks",
    effect="times smaller beyond 8",
    refuted="stored tensors that are less than 8 times smaller",
)
WITHOUT_LOSS = _smaller(
    line="without loss, once there is a prompt",
    effect="nats a token below a loss of 0.05",
    refuted="over 0.05 nats above the dense model with a prompt",
)
TASKS = _rule(
    results=("compress/experiments/prompts_further", "compress/experiments/prompts_rest"),
    lines=lambda: practice.tasks(found.results()),
    line="a prompt raises the accuracy",
    effect="share of the questions answered more, by task and compressed model",
    refuted="a task with signal on which a prompt learned from running text gains nothing",
)
