"""The figures and tables of lesson 08: titles follow from the data."""

import math

import pytest
import torch
from figure_titles import drawn_title as title
from figure_titles import titles
from made_up_sinks import made_up_backcopy, made_up_stream, made_up_trainings, made_up_ways
from table_cells import rows

from course_lib.lessons.common.masks import compare_slots
from course_lib.lessons.sinks import claims, deck, optional_plots, plots, tables
from course_lib.lessons.sinks.experiments import first_tokens


def test_slots_that_differ_are_counted():
    assert titles(compare_slots(9, (5, 6, 7, 8), (0, 1, 7, 8))) == ["4 tokens differ"]
    assert titles(compare_slots(9, torch.tensor([8, 7, 0, 1]), (0, 1, 7, 8))) == ["0 tokens differ"]


def test_attention_is_reported_for_the_deeper_half():
    share = torch.tensor([[0.0, 0.2], [0.1, 0.1], [0.5, 0.7], [0.4, 0.8]])
    expected = "From layer 2 on the first token receives 60 % of all attention"
    assert titles(plots.first_token_attention(share, 0.01)) == [expected]
    # 2, 3.33, 1.67, 5: torch's median is the lower middle one
    assert titles(plots.growth(1 / (1 - share))) == ["From layer 2 on all other weights grow 2.0 times (median head)"]
    by_name = {"own": share[:, 0], "other": share[:, 1]}
    expected = "With each first token: 45 to 75 % in the deeper half of the layers"
    assert titles(plots.attention_by_first_token(by_name)) == [expected]


def test_the_first_token_is_compared_with_the_largest_other():
    expected = ["The first token receives 3.0 times as much as any other"]
    assert titles(plots.received_by_token(torch.tensor([0.6, 0.1, 0.2]))) == expected


def test_norms_of_the_first_token_are_compared_with_the_others():
    lengths = torch.ones(4, 10)
    lengths[:, 0] = 0.25
    assert "values\nare 4.0 times shorter" in title(plots.value_norms(lengths))
    norms = torch.ones(3, 5)
    norms[1, 0], norms[1, 4] = 50.0, 900.0  # a single other token does not move the median
    assert titles(plots.hidden_norms(norms)) == ["50 times the median norm at layer 1"]


def test_streams_name_every_cache():
    losses = {"newest tokens": torch.full((12,), 3.0), "all tokens": torch.full((12,), 1.0)}
    losses["all tokens"][:4] = 9.0  # before the cache is full
    drawn = plots.streams(losses, budget=4, block=4)
    assert titles(drawn) == ["From token 4 on: newest tokens 7.4 times the perplexity of all tokens"]
    legend = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    assert legend == ["newest tokens: 20.1", "all tokens: 2.7"]


def test_bars_take_a_log_scale_where_values_are_far_apart():
    near, far = plots.bars({"a": 2.0, "b": 3.0}, "near"), plots.bars({"a": 2.0, "b": 300.0}, "far")
    assert [drawn.axes[0].get_xscale() for drawn in (near, far)] == ["linear", "log"]
    assert not far.axes[0].patches  # a bar on a log axis has no length to read


def test_a_constant_is_compared_with_the_first_token():
    drawn = plots.constant_as_sink({"window": 30.0, "logit": 28.0, "both": 12.0, "token": 10.0})
    assert title(drawn) == "Logit and value restore 83 % of the loss,\nthe logit alone 6 %"


def test_positions_in_the_text_and_in_the_cache():
    first, second = titles(plots.cache_positions([0, 1, 24, 25], trained=16))
    assert first == "In the text: the newest token (diamond) is 25 positions from the first"
    assert second == "In the cache: the newest token (diamond) is 3 positions from the first"
    keep = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    drawn = plots.mask_and_positions(keep, keep.cumsum(dim=1) - 1)
    assert title(drawn) == "3 tokens, and no position in the cache above 1"
    assert [text.get_text() for text in drawn.axes[0].texts] == ["0", "0", "1", "0", "1"]


def test_the_gate_is_half_at_the_sink():
    kept, lost = plots.gate().axes[0].lines[:2]
    assert kept.get_ydata()[60] == pytest.approx(50)
    assert (kept.get_ydata() + lost.get_ydata()) == pytest.approx(100)


def test_flop_counts_are_compared_with_streaming():
    flops = {"dense": [10.0, 60.0], "streaming": [10.0, 20.0], "recomputation": [40.0, 100.0]}
    drawn = title(plots.flop_counts((2, 9), flops, 3))
    assert "dense attention costs 3 times" in drawn
    assert "window of 3 tokens 5 times" in drawn


# Stored results.


def test_one_sink_restores_a_part():
    theirs, ours = titles(plots.by_sinks(made_up_stream()))
    assert theirs == "Published (Llama-2-7B): one sink restores 96 % of\nwhat eight do, and is 25 % above"
    # log 31 / 13 over log 31 / 12; block by block one sink is log 12 / 11 above four
    assert ours == "Here: one sink restores 92 % of\nwhat four do, and is 8.70 ± 0.00 % above"


def test_the_long_stream_shows_memory_and_time():
    left, right = titles(deck.long_stream(made_up_stream()))
    assert left == "2,000 tokens in 12 MB:\n1 sink has 1.091 times the perplexity of 4"
    assert right == "Slowest part over fastest: 1.10 with 4 sinks"


def test_gaps_name_the_highest_of_both():
    expected = "Highest: 900 with positions of the text, 12.0 in the cache"
    assert titles(plots.gaps(made_up_stream())) == [expected]


def test_the_four_ways_are_compared_with_streaming():
    table = rows(tables.four_ways(made_up_ways()))
    assert table[0][1:] == ["O(T²)", "5,641.00", f"{math.exp(3):.1f}", f"{math.e:.2f} ± 0.00"]
    assert table[3][1:] == ["O(TL)", "5.40", f"{math.exp(2):.1f}", "–"]


def test_the_chat_is_shown_with_its_repetition():
    results = made_up_ways()
    assert [row[-1] for row in rows(tables.chat(results))] == ["0 %", "57 %", "0 %"]


def test_trained_models_are_compared_within_a_row():
    table = rows(tables.pretraining(made_up_trainings()))
    assert table[1] == ["published", "zero sink", "29,214.00", "19.90", "18.27", "18.01"]
    assert table[5][:4] == ["here", "learnable sink", f"{2 * math.exp(2.9):.2f}", f"{math.exp(2.9):.2f}"]
    drawn = deck.by_first_slots(made_up_trainings())
    assert title(drawn).endswith("none kept instead of 4: +11 %, +0 %, +100 %")
    numbers = [text.get_text() for text in drawn.axes[0].texts]  # by first slots kept, and in each by model
    assert numbers == ["22", "22", "36"] + 3 * ["20", "22", "18"]


def test_the_sample_shows_where_vowels_and_other_letters_attend():
    """Of "bca ", the vowel attends to the letter before it, in slot 2 after the sink, and the others to the sink."""
    drawn = optional_plots.backcopy_sample(made_up_backcopy())
    expected = "One model of 2 (seed 0): vowels attend to the letter before (100 %),"
    assert title(drawn) == f"{expected}\nother letters to the sink (100 %)"
    assert [text.get_text() for text in drawn.axes[0].get_xticklabels()] == ["sink", "b", "c", "a", "␣"]
    assert [text.get_fontweight() for text in drawn.axes[0].get_yticklabels()][2] == "bold"


STORED = [
    *((plots, name) for name in ("by_sinks", "gaps", "cache_positions", "four_patterns")),
    (optional_plots, "backcopy_sample"),
    *((deck, name) for name in ("one_evicted", "chat", "long_stream")),
    *((deck, name) for name in ("by_first_slots", "open_task")),
]


@pytest.mark.parametrize(("module", "name"), STORED, ids=[name for _, name in STORED])
def test_the_stored_results_can_be_drawn(module, name):
    assert all(panel.get_title(loc="left") for panel in getattr(module, name)().axes)


def test_the_summary_shows_the_records():
    texts = [" ".join(text.get_text().split()) for text in deck.take_home().axes[0].texts]
    assert [" ".join(claim.text.split()) for claim in claims.TAKE_HOME] == texts[4::4]
    assert [claim.judge().words for claim in claims.TAKE_HOME] == texts[7::4]


def test_a_start_takes_its_slots():
    losses = torch.tensor([2.0, 3.0], dtype=torch.float64)
    ideas = {"own": first_tokens.Attempt(4, losses), "other": first_tokens.Attempt(1, losses - 0.1)}
    own, other, yours = rows(tables.first_tokens(first_tokens.Attempt(2, losses + 0.1), ideas))
    assert own == ["own", "4", f"{math.exp(2.5):.1f}", "–"]
    assert other[-1] == "+0.100 ± 0.000"
    assert (yours[0], yours[-1]) == ("yours", "-0.100 ± 0.000")
