"""Verdicts and titles of lesson 11 on made-up results: numbers by hand, and each verdict that a claim can get."""

import made_up
import pytest
from table_cells import headings
from table_cells import rows as cells

from course_lib.lessons.common.verdicts import NOT_MEASURED
from course_lib.lessons.sparse_attention import claims, deck, optional_plots, plots, tables
from course_lib.lessons.sparse_attention.estimates import drafts as draft_estimates
from course_lib.lessons.sparse_attention.experiments.drafts import HALF
from course_lib.lessons.sparse_attention.experiments.items import READING, RESIDENTS

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


def verdicts(judged, made) -> list[str]:
    return [claim.judge(made).verdict for claim in judged]


def title(figure) -> str:
    return figure.described()


@pytest.mark.parametrize(
    ("cost", "share", "cheap"), [(0.01, 0.5, "holds"), (0.08, 0.9, "not at this scale"), (0.0504, 0.9, "undecided")]
)
def test_flexprefill_over_gamma(cost, share, cheap):
    made = made_up.prefill(cost, share=share)
    assert verdicts(claims.GAMMA_CLAIMS, made) == [cheap, "holds"]
    assert list(claims.READ_AT_NO_LOSS.judge(made).effects) == ["2048 tokens at γ 0.95", "4096 tokens at γ 0.95"]
    # exp(0.01) = 1.0101; the error of ±0.001 over four windows is 0.001155 / 2
    row = cells(tables.prefill_rules(made))[0]
    assert cost != 0.01 or row[-1] == "1.010 ± 0.001"
    assert row[2] == f"{100 * share:.0f} %"


def test_flexprefill_beside_others():
    made = made_up.prefill(0.01)
    assert verdicts(claims.RIVAL_CLAIMS, made) == ["holds", "does not hold", "holds"]
    assert claims.THAN_WINDOW.judge(made).estimates[""].value == pytest.approx(0.05)
    assert "with sinks over FlexPrefill's: 1.05" in str(claims.THAN_WINDOW.judge(made))
    assert title(deck.rivals(made)).endswith("clearly worse than FlexPrefill: StreamingLLM and random")
    assert claims.THAN_PRIOR.judge(made).verdict == "mixed"  # the window with sinks is worse, the other rule better
    none = made_up.prefill(0.6)
    assert title(deck.rivals(none)).endswith("clearly worse than FlexPrefill: StreamingLLM")


@pytest.mark.parametrize(("shift", "word"), [(0.1, "holds"), (-0.1, "does not hold")])
def test_flexprefill_beside_both_earlier_rules(shift, word):
    made = made_up.prefill(0.01)
    for row in made["tables"]["read"]:
        if row["rule"] in ("StreamingLLM", "vertical-slash"):
            row["losses"] = [loss + shift for loss in row["losses"]]
    assert claims.THAN_PRIOR.judge(made).words == word


def test_the_floor_and_the_code_as_released():
    made = made_up.prefill(0.01, released=0.005, bare=0.1)
    assert verdicts(claims.FLOOR_CLAIMS, made) == ["does not hold", "holds"]
    assert verdicts(claims.RELEASED_CLAIMS, made) == ["holds", "does not hold"]
    assert verdicts(claims.FLOOR_CLAIMS, made_up.prefill(0.05, bare=0.001)) == ["holds", "does not hold"]
    rules = [row[0] for row in cells(tables.prefill_rules(made))]
    assert rules[-3:] == ["FlexPrefill as released", "FlexPrefill", "FlexPrefill, no minimum"]


def test_the_clock():
    made = made_up.clock({(2048, 0.5): (0.8, 1.6, None), (8192, 0.25): (1.5, 4.5, 1.1)})
    found = verdicts(claims.CLOCK_CLAIMS, made)
    # 1.6 at half of the blocks is less than the twice that it promises, 4.5 at a quarter more than four times
    assert found == ["mixed", "holds", "holds", "holds", "mixed"]
    words = claims.READ_FASTER.judge(made).words
    assert words == "mixed (holds in 8192 tokens at γ 0.9; fails in 2048 tokens at γ 0.9)"
    slow = made_up.clock({(2048, 0.5): (0.8, 0.9, 0.8)})
    fails = "does not hold"
    assert verdicts(claims.CLOCK_CLAIMS, slow) == [fails, fails, fails, "not at this scale", fails]
    assert title(plots.over_density(made)) == (
        "Choosing and reading: faster in 1 of 2; Reading alone: faster in 2 of 2"
    )


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((2.4, 1.3), "holds"),
        ((0.5, 0.9), "does not hold"),
        ((2.4, 0.9), "mixed (holds in 32768 tokens; fails in 8192 tokens)"),
        ((2.4, 1.001), "holds partly (1 of 2)"),
    ],
)
def test_the_clock_of_a_gpu(times, word):
    lengths = dict(zip((32768, 8192), times, strict=True))
    for kind, side, claim in (
        ("attention", "FlexPrefill, index and attention", claims.READ_FASTER_ON_A_GPU),
        ("whole model", "FlexPrefill, γ = 0.15", claims.WHOLE_FASTER_ON_A_GPU),
    ):
        assert claim.judge(made_up.gpu_run(kind, side, lengths)).words == word


def test_heads():
    made = made_up.prefill(0.01)
    assert "10 of 30 heads are query-aware" in claims.BOTH_KINDS.judge(made).ours
    assert claims.HEADS_DIFFER.judge(made).ours == "9 times"  # 0.9 over 0.1
    assert verdicts(claims.HEAD_CLAIMS, made) == ["holds", "does not hold", "holds"]  # all thirds are alike
    made["tables"]["heads"] = made_up.heads([[0.5, 0.5]] * 3, [[0.0, 0.0]] * 3)
    assert verdicts(claims.HEAD_CLAIMS, made) == ["does not hold"] * 3
    made["tables"]["heads"] = made_up.heads([[0.9, 0.7], [0.5, 0.5], [0.1, 0.3]], [[1.0, 0.0]] * 3)
    assert verdicts(claims.HEAD_CLAIMS, made) == ["holds"] * 3
    expected = "first third of the layers reads 80 % of its blocks, the last 20 %;\n3 of 6 heads are query-aware"
    assert expected in title(deck.by_head(made))


def test_the_title_over_gamma_says_what_was_measured():
    said = title(plots.over_gamma(made_up.prefill(0.01)))
    assert "γ = 0.95 reads 50 % at 2048 and 25 % at 4096 tokens" in said
    assert "At most 1.0 % more perplexity; 2 of 2 within 5 %" in said


def test_deltas_over_the_threshold():
    made = made_up.delta({0.5: 0.01, 1.0: 0.08}, {0.5: 0.25, 1.0: 0.7})
    assert claims.NOTHING_LOST.judge(made).ours.startswith("25 %, the largest")
    assert claims.NOTHING_LOST.judge(made).ours.endswith("of 25 % (+1.0 %), 70 % (+8.3 %)")
    assert claims.NOTHING_LOST.judge(made).n == "4"  # windows
    assert claims.NOTHING_LOST.judge(made).verdict == "not at this scale"
    cheap = made_up.delta({0.5: 0.01, 1.0: 0.015}, {0.5: 0.25, 1.0: 0.7})
    assert claims.NOTHING_LOST.judge(cheap).verdict == "holds"
    assert verdicts(claims.VARIANT_CLAIMS, made) == ["holds", "holds", "does not hold"]
    assert claims.DECODED_ALIKE.judge(made).verdict == "holds"
    made["tables"]["decoded"][0]["largest_difference"] = 0.1
    assert claims.DECODED_ALIKE.judge(made).verdict == "does not hold"


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [((0.2, 0.3, 0.25), "holds"), ((0.7, 0.8, 0.75), "does not hold"), ((0.2, 0.9, 0.5), "undecided")],
)
def test_neighbouring_keys(shares, verdict):
    measured = {"tables": {"moved": [{"share": [share - 0.1, share + 0.1]} for share in shares]}}
    judged = claims.KEYS_CHANGE_LITTLE.judge(measured)
    assert judged.verdict == verdict
    assert claims.KEYS_CHANGE_LITTLE.judge({"tables": {}}).verdict == NOT_MEASURED


def test_the_title_of_deltas():
    said = title(optional_plots.over_threshold(made_up.delta({0.5: 0.01, 1.0: 0.05}, {0.5: 0.25, 1.0: 0.7})))
    assert "θ = 1 leaves out 70 % of QKᵀ" in said
    assert "Perplexity +1.0 % at θ = 0.5, +5.1 % at θ = 1" in said


def test_drafts():
    made = made_up.drafts({"lookup": 0.5, "24 of 30 blocks": 0.5})
    # (1 − 0.5⁵) / (1 − 0.5) = 1.9375 tokens a pass expected, 20 / 10 = 2 measured; 0.6: 2.3056
    assert draft_estimates.expected(made, "24 of 30 blocks", "running text") == pytest.approx(1.9375)
    assert draft_estimates.tokens_a_pass(made, "lookup", "copying") == (2.0, 0.0)
    table = tables.drafts_by_text(made)
    assert headings(table)[4:7] == ["tokens per pass", "predicted", "weight loads"]
    assert cells(table)[0][4:7] == ["2.00 ± 0.00", "1.94", "50"]
    # 80 tokens are drafted in 20 passes: 2 / (1 + 0.5 · 4) = 0.67 for the cut, 2 for the lookup
    assert verdicts(claims.PASS_CLAIMS, made) == ["holds", "holds", "mixed"]
    assert claims.FEWER_BYTES.judge(made).words == "mixed (holds in 2; fails in 2)"
    assert claims.MORE_STAY.judge(made).words == "holds"
    slow = made_up.drafts({"24 of 30 blocks": 0.9, "lookup": 0.9}, tokens=10)
    assert verdicts(claims.PASS_CLAIMS, slow)[:2] == ["does not hold", "does not hold"]
    assert claims.CAN_LOAD_FEWER.judge(made).words == "holds"
    assert claims.CAN_LOAD_FEWER.judge(made).ours == "4 of 4 drafts and texts; at best 2.00 tokens per pass"
    assert claims.CAN_LOAD_FEWER.judge(slow).words == "does not hold"
    one = made_up.drafts({"24 of 30 blocks": 0.9, "lookup": 0.9}, tokens=10)
    one["tables"]["speculated"][0]["passes"] = [5, 5]
    assert claims.CAN_LOAD_FEWER.judge(one).words == "holds"  # one draft is enough


def test_a_lookup_drafts_only_where_it_finds_something():
    made = made_up.drafts({"lookup": 0.5})
    made["tables"]["overlap"][0]["proposed"] = 0.25
    assert draft_estimates.expected(made, "lookup", "running text") == pytest.approx(0.25 * 1.9375 + 0.75)


def test_the_title_of_drafts():
    assert "Running text: 50 weight loads per 100 tokens" in title(deck.passes(made_up.drafts({"lookup": 0.5})))


def test_the_oracle_is_labelled_and_never_the_best_draft():
    made = made_up.drafts({"lookup": 0.5, HALF: 0.9})
    assert [row[1] for row in cells(tables.drafts_by_text(made))][1].startswith("oracle")
    for row in made["tables"]["speculated"]:
        row["passes"] = [5 if row["draft"] == HALF else 10 for _ in row["passes"]]
    assert "fewest, with prompt lookup" in title(deck.passes(made))


def right_answers(made):
    """The verdicts on right answers, by what is compared."""
    pairs = zip(claims.COMPARISONS, claims.ANSWER_CLAIMS[RESIDENTS], strict=True)
    return {name: right.judge(made) for name, (right, _) in pairs}


def test_steered_answers():
    made = made_up.steering(RIGHT)
    judged = right_answers(made)
    words = [each.verdict for each in judged.values()]
    assert words == ["holds"] * 6 + ["undecided", "holds", "undecided", "undecided"]  # the seventh: 3 beside 5
    # 20 beside 5 of 20; of 22, with half a question each way, 15.5 less 0.5
    assert judged["chosen-heads"].ours == "+75 ± 11 percentage points"
    assert judged["steered"].claim is claims.STEERED
    worse = RIGHT | {("chosen", "named"): "0" * 20, ("none", "nothing"): "1" * 20}
    judged = right_answers(made_up.steering(worse))["self-named"]
    assert (judged.verdict, judged.ours[:4]) == ("not at this scale", "-100")


@pytest.mark.parametrize(
    ("steered", "prompted", "word"),
    [("1" * 20, "0" * 20, "holds"), ("0" * 20, "1" * 20, "does not hold"), ("1" * 20, "1" * 20, "undecided")],
)
def test_steered_to_the_named_sentence_or_prompted_with_it(steered, prompted, word):
    made = made_up.steering(RIGHT | {("chosen", "named"): steered, ("none, prompted", "named"): prompted})
    assert claims.NAMED_STEERED.judge(made).verdict == word


def test_conditions_that_were_not_measured_are_left_out():
    fewer = {condition: bits for condition, bits in RIGHT.items() if condition != ("best layer", "true")}
    made = made_up.steering(fewer)
    assert right_answers(made)["chosen-than-layer"].verdict == NOT_MEASURED
    assert all(claim.judge(made).verdict == NOT_MEASURED for pair in claims.ANSWER_CLAIMS[READING] for claim in pair)


@pytest.mark.parametrize(
    ("right", "expected"),
    [("1" * 20, "holds"), ("0" * 20, "not at this scale"), ("1" * 5 + "0" * 15, "undecided")],
)
def test_named_sentences(right, expected):
    judged = claims.NAMES_THE_KEY.judge(made_up.steering(RIGHT, named=right))
    assert judged.verdict == expected


def test_the_title_of_steered_answers():
    shown = title(optional_plots.answers(made_up.steering(RIGHT)))
    assert "6 of 9 conditions are clearly better than no steering,\n5 of them with the true key" in shown


def test_no_line_of_a_table_is_too_long():
    made = (
        tables.prefill_rules(made_up.prefill(0.01)),
        tables.drafts_by_text(made_up.drafts({"half of the neurons": 0.5})),
        tables.block_scores(),
    )
    assert [line for table in made for line in str(table).splitlines() if len(line) > 80] == []
