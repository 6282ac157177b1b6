"""Verdicts and titles of lesson 11 on made-up results: numbers by hand, and each verdict that a claim can get."""

import made_up
import pytest
from table_cells import rows as cells

from course_lib.lessons.common.verdicts import NOT_MEASURED
from course_lib.lessons.sparse_attention.claims import clock, delta, drafts, prefill, published, steering
from course_lib.lessons.sparse_attention.drawings import clock as clock_drawings
from course_lib.lessons.sparse_attention.drawings import delta as delta_drawings
from course_lib.lessons.sparse_attention.drawings import drafts as draft_drawings
from course_lib.lessons.sparse_attention.drawings import prefill as prefill_drawings
from course_lib.lessons.sparse_attention.drawings import steering as steering_drawings

RIGHT = {
    ("none", "nothing"): "0" * 15 + "1" * 5,
    ("none, prompted", "true"): "0" * 10 + "1" * 10,
    ("none, prompted", "named"): "0" * 15 + "1" * 5,
    ("all", "true"): "1" * 15 + "0" * 5,
    ("chosen", "true"): "1" * 20,
    ("chosen", "named"): "1" * 3 + "0" * 17,
    ("chosen", "random"): "0" * 20,
    ("chosen", "whole context"): "0" * 10 + "1" * 10,
    ("all, first token lowered too", "true"): "1" * 15 + "0" * 5,
    ("best layer", "true"): "1" * 19 + "0",
}


def verdicts(text: str) -> dict[str, str]:
    """By claim."""
    lines = [line.removeprefix("Claim: ") for line in text.splitlines() if line.startswith("Claim: ")]
    return {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}


def title(figure) -> str:
    return figure.described()


@pytest.mark.parametrize(
    ("cost", "share", "cheap"), [(0.01, 0.5, "holds"), (0.03, 0.9, "not at this scale"), (0.0204, 0.9, "cannot tell")]
)
def test_flexprefill_over_gamma(cost, share, cheap):
    made = made_up.prefill(cost, share=share)
    free, longer = verdicts(prefill.over_gamma(made)).values()
    assert free.startswith(cheap)
    assert longer == "holds"
    # exp(0.01) = 1.0101; the error of ±0.001 over four windows is 0.001155 / 2
    assert cost != 0.01 or "1.010 ± 0.001" in prefill.over_gamma(made)
    assert f"{share:.2f}" in prefill.over_gamma(made)


def test_flexprefill_beside_others():
    made = made_up.prefill(0.01)
    assert list(verdicts(prefill.rivals(made)).values()) == ["holds", "does not hold", "holds"]
    assert "StreamingLLM above FlexPrefill by +0.050 ± 0.000 nats a token" in prefill.rivals(made)
    assert title(prefill_drawings.rivals(made)).endswith("clearly worse than FlexPrefill: StreamingLLM and random")
    none = made_up.prefill(0.6)
    assert title(prefill_drawings.rivals(none)).endswith("clearly worse than FlexPrefill: StreamingLLM")


def test_the_floor_and_the_code_as_released():
    made = made_up.prefill(0.01, released=0.005, bare=0.1)
    assert list(verdicts(prefill.floor(made)).values()) == ["does not hold", "holds"]
    assert list(verdicts(prefill.released(made)).values()) == ["holds", "does not hold"]
    assert list(verdicts(prefill.floor(made_up.prefill(0.05, bare=0.001))).values()) == ["holds", "does not hold"]


def test_the_clock():
    made = made_up.clock({(2048, 0.5): (0.8, 1.6, None), (8192, 0.25): (1.5, 4.5, 1.1)})
    first = ["2048", "0.9", "0.50", "0.80 (0.79–0.81)", "1.60 (1.58–1.62)", "25 %", "–"]
    assert cells(clock.table(made))[0] == first
    found = list(verdicts(clock.verdicts(made)).values())
    # 1.6 at half of the blocks is less than the twice that it promises, 4.5 at a quarter more than four times
    assert found == ["holds partly (1 of 2)", "holds", "holds", "holds", "holds partly (1 of 2)"]
    slow = clock.verdicts(made_up.clock({(2048, 0.5): (0.8, 0.9, 0.8)}))
    fails = "does not hold"
    assert list(verdicts(slow).values()) == [fails, fails, fails, "not at this scale", fails]
    assert title(clock_drawings.over_density(made)) == (
        "Choosing and reading: faster in 1 of 2; Reading alone: faster in 2 of 2"
    )


def test_heads():
    made = made_up.prefill(0.01)
    text = prefill.heads(made)
    assert "10 of 30 heads are query-aware" in text
    assert "9.0 times as many blocks" in text  # 0.9 over 0.1
    assert list(verdicts(text).values()) == ["holds", "does not hold", "holds"]  # all thirds are alike
    made["tables"]["heads"] = made_up.heads([[0.5, 0.5]] * 3, [[0.0, 0.0]] * 3)
    assert list(verdicts(prefill.heads(made)).values()) == ["does not hold"] * 3
    made["tables"]["heads"] = made_up.heads([[0.9, 0.7], [0.5, 0.5], [0.1, 0.3]], [[1.0, 0.0]] * 3)
    assert list(verdicts(prefill.heads(made)).values()) == ["holds"] * 3
    said = "first third of the layers reads 80 % of its blocks, the last 20 %;\n3 of 6 heads are query-aware"
    assert said in title(prefill_drawings.by_head(made))


def test_the_title_over_gamma_says_what_was_measured():
    said = title(prefill_drawings.over_gamma(made_up.prefill(0.01)))
    assert "γ = 0.95 reads 50 % at 2048 and 25 % at 4096 tokens" in said
    assert "At most 1.0 % more perplexity; 2 of 2 within 2 %" in said


def test_deltas_over_the_threshold():
    made = made_up.delta({0.5: 0.01, 1.0: 0.05}, {0.5: 0.25, 1.0: 0.7})
    assert "the most that is left out at clearly less than 0.02 nats a token: 25 %" in delta.over_threshold(made)
    assert list(verdicts(delta.over_threshold(made)).values()) == ["not at this scale"]
    cheap = made_up.delta({0.5: 0.01, 1.0: 0.015}, {0.5: 0.25, 1.0: 0.7})
    assert list(verdicts(delta.over_threshold(cheap)).values()) == ["holds"]
    assert list(verdicts(delta.variants(made)).values()) == ["holds", "holds", "does not hold"]
    assert list(verdicts(delta.decoded(made)).values()) == ["holds"]
    made["tables"]["decoded"][0]["largest_difference"] = 0.1
    assert list(verdicts(delta.decoded(made)).values()) == ["does not hold"]


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [((0.2, 0.3, 0.25), "holds"), ((0.7, 0.8, 0.75), "does not hold"), ((0.2, 0.9, 0.5), "cannot tell")],
)
def test_neighbouring_keys(shares, verdict):
    measured = {"tables": {"moved": [{"share": [share - 0.1, share + 0.1]} for share in shares]}}
    (said,) = verdicts(delta.moved(measured)).values()
    assert said.startswith(verdict)
    assert NOT_MEASURED in delta.moved({"tables": {}})


def test_the_title_of_deltas():
    said = title(delta_drawings.over_threshold(made_up.delta({0.5: 0.01, 1.0: 0.05}, {0.5: 0.25, 1.0: 0.7})))
    assert "θ = 1 leaves out 70 % of QKᵀ" in said
    assert "Perplexity +1.0 % at θ = 0.5, +5.1 % at θ = 1" in said


def test_drafts():
    made = made_up.drafts({"lookup": 0.5, "24 of 30 blocks": 0.5})
    # (1 − 0.5⁵) / (1 − 0.5) = 1.9375 tokens a pass expected, 20 / 10 = 2 measured; 0.6: 2.3056
    assert drafts.expected(made, "24 of 30 blocks", "running text") == pytest.approx(1.9375)
    assert drafts.tokens_a_pass(made, "lookup", "copying") == (2.0, 0.0)
    text = drafts.passes(made)
    assert "2.00 ± 0.00      1.94    50 %             50" in text
    fewer, near, bytes_read = verdicts(text).values()
    assert (fewer, near) == ("holds", "holds")
    # 80 tokens are drafted in 20 passes: 2 / (1 + 0.5 · 4) = 0.67 for the cut, 2 for the lookup
    assert bytes_read == "holds partly (2 of 4)"
    assert list(verdicts(drafts.overlaps(made)).values()) == ["holds"]
    slow = made_up.drafts({"24 of 30 blocks": 0.9, "lookup": 0.9}, tokens=10)
    assert list(verdicts(drafts.passes(slow)).values())[:2] == ["does not hold", "does not hold"]


def test_a_lookup_drafts_only_where_it_finds_something():
    made = made_up.drafts({"lookup": 0.5})
    made["tables"]["overlap"][0]["proposed"] = 0.25
    assert drafts.expected(made, "lookup", "running text") == pytest.approx(0.25 * 1.9375 + 0.75)


def test_the_title_of_drafts():
    assert "Running text: 50 loads for 100 tokens" in title(draft_drawings.passes(made_up.drafts({"lookup": 0.5})))


def test_steered_answers():
    text = steering.answers(made_up.steering(RIGHT))
    found = [said for text, said in verdicts(text).items() if "(right answers, " in text]
    told, every, chosen, beside, random, whole, auto, heads, layer, spared = found
    assert [told, every, chosen, beside, random, whole] == ["holds"] * 6
    # 20 beside 5 of 20; of 22, with half a question each way, 15.5 less 0.5
    assert "it answers better (right answers, +0.75 ± 0.11): holds" in text
    assert auto.startswith("cannot tell")  # 3 beside 5
    assert (heads, layer[:11], spared[:11]) == ("holds", "cannot tell", "cannot tell")
    worse = RIGHT | {("chosen", "named"): "0" * 20, ("none", "nothing"): "1" * 20}
    auto = "steered to the sentence that it named itself, it answers better (right answers, -1.00 ± "
    judged = verdicts(steering.answers(made_up.steering(worse)))
    assert [said for text, said in judged.items() if text.startswith(auto)] == ["not at this scale"]


@pytest.mark.parametrize(
    ("right", "said"),
    [("1" * 20, "holds"), ("0" * 20, "not at this scale"), ("1" * 5 + "0" * 15, "cannot tell")],
)
def test_named_sentences(right, said):
    text = steering.named(made_up.steering(RIGHT, named=right))
    assert f"the key sentence in {right.count('1')} of 20; at random 25 %" in text
    assert next(iter(verdicts(text).values())).startswith(said)


def test_what_the_search_chose():
    made = made_up.steering(RIGHT)
    assert [row["what"] for row in steering.whole_layers(made)] == ["layer 0", "layer 1", "layer 2"]
    lines = steering.searched(made).splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["layer", "1"], ["layer", "2"]]
    assert lines[-1].endswith("-3.00  chosen")
    assert "helps in 2 of 3; most in layers 0, 1 and 2" in title(steering_drawings.by_layer(made))


def test_the_title_of_steered_answers():
    said = title(steering_drawings.steered(made_up.steering(RIGHT)))
    assert "6 of 9 ways are clearly better than none, 5 with the true key" in said


def test_no_printed_line_is_too_long():
    texts = [prefill.over_gamma(made_up.prefill(0.01)), drafts.passes(made_up.drafts({"half of the neurons": 0.5}))]
    texts += [steering.answers(made_up.steering(RIGHT)), published.delta(), published.steering()]
    assert [line for text in texts for line in text.splitlines() if len(line) > 100 and "Claim" not in line] == []
    assert "2 to 3 times" in published.speculative()
