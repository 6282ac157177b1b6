"""The figures and verdicts of lesson 08: titles follow from the data."""

import pytest
import torch
from figure_titles import titles

from course_lib.lessons.common.masks import compare_slots
from course_lib.lessons.sinks import figures, tables


def test_slots_that_differ_are_counted():
    assert titles(compare_slots(9, (5, 6, 7, 8), (0, 1, 7, 8))) == ["4 tokens differ"]
    assert titles(compare_slots(9, torch.tensor([8, 7, 0, 1]), (0, 1, 7, 8))) == ["0 tokens differ"]


def test_shares_speak_of_the_deeper_half():
    share = torch.tensor([[0.0, 0.2], [0.1, 0.1], [0.5, 0.7], [0.4, 0.8]])
    assert titles(figures.share_over_depth(share, 0.01)) == [
        "From layer 2 on the first token gets 60 % of all attention"
    ]
    # 1 / (1 - share) = 2, 3.33, 1.67, 5: torch's median is the lower middle one
    title = "Without it all other weights grow 2.0 times from layer 2 on (median)"
    assert titles(figures.growth(share)) == [title]
    words = {"own": share[:, 0], "other": share[:, 1]}
    assert titles(figures.first_words(words)) == ["Whatever stands there: 45 to 75 % in the deeper half of the layers"]


def test_values_of_the_first_token_against_others():
    lengths = torch.ones(4, 10)
    lengths[:, 0] = 0.25
    assert titles(figures.values_over_depth(lengths))[0].startswith(
        "In the deeper half its values are 4.0 times shorter"
    )


def test_streams_name_every_cache():
    losses = {"newest tokens": torch.full((12,), 3.0), "all tokens": torch.full((12,), 1.0)}
    losses["all tokens"][:4] = 9.0  # before the cache is full
    drawn = figures.streams(losses, budget=4, block=4)
    assert titles(drawn) == ["From token 4 on: newest tokens 7.4 times the perplexity of all tokens"]
    said = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    assert said == ["newest tokens: 20.1", "all tokens: 2.7"]


def test_bars_take_a_log_scale_where_values_lie_far_apart():
    near, far = figures.bars({"a": 2.0, "b": 3.0}, "near"), figures.bars({"a": 2.0, "b": 300.0}, "far")
    assert [drawn.axes[0].get_xscale() for drawn in (near, far)] == ["linear", "log"]
    assert not far.axes[0].patches  # a bar on a log axis has no length to read


def test_places():
    first, second = titles(figures.places([0, 1, 24, 25], trained=16))
    assert first == "in the text: the newest token (diamond) is 25 away from the first"
    assert second == "in the cache: the newest token (diamond) is 3 away from the first"


def test_the_first_token_is_compared_with_the_largest_other():
    assert titles(figures.by_token(torch.tensor([0.6, 0.1, 0.2]))) == [
        "The first token receives 3.0 times as much as any other"
    ]


def test_the_gate_is_half_at_the_sink():
    kept, lost = figures.gate().axes[0].lines[:2]
    assert kept.get_ydata()[60] == pytest.approx(50)
    assert (kept.get_ydata() + lost.get_ydata()) == pytest.approx(100)


def tokens(perplexity, n=512):
    """Losses of so many tokens, blocks of which are hard or easy: at one perplexity above another they differ alike."""
    hard = torch.linspace(-0.3, 0.3, n // 64).repeat_interleave(64)
    return torch.tensor(perplexity).log() + hard


@pytest.mark.parametrize(
    ("window", "one", "verdicts"),
    [
        (30.0, 11.0, ["holds", "holds"]),
        (12.0, 11.0, ["does not hold", "does not hold"]),
        (30.0, 13.0, ["holds", "does not hold"]),
    ],
    ids=["collapse", "none", "not restored"],
)
def test_collapse_needs_a_factor_and_sinks_to_come_back(window, one, verdicts):
    found = {"newest tokens": window, "all tokens": 10.0, "1 + 3": one, "2 + 2": 10.0}
    text = tables.collapse_verdict({name: tokens(value) for name, value in found.items()})
    assert [line.split(": ")[-1] for line in text.splitlines() if line.startswith("Claim")] == verdicts


def test_a_collapse_in_one_block_of_many_decides_nothing():
    window = tokens(10.0)
    window[:64] += 8.0
    found = {"newest tokens": window, "all tokens": tokens(10.0), "1 + 3": tokens(10.0)}
    claim = next(line for line in tables.collapse_verdict(found).splitlines() if "collapses" in line)
    assert "2.7 times" in claim  # the mean of one block at 8 nats and seven at 0
    assert "undecided" in claim


def test_the_place_and_not_the_word():
    """Layers by queries: of the deeper layer each query gives 0.6 to the text's own first token."""
    blocks = torch.linspace(-0.02, 0.02, 4).repeat_interleave(16)
    shares = {
        name: torch.stack([torch.zeros(64), share + blocks]) for name, share in {"own": 0.6, "a": 0.5, "b": 0.1}.items()
    }
    assert tables.position_verdict(shares).endswith("mixed (holds in a; fails in b)")
    assert tables.position_verdict({name: shares[name] for name in ("own", "a")}).endswith(": holds")
    assert tables.position_verdict({name: shares[name] for name in ("own", "b")}).endswith("does not hold")


def test_newlines_constants_and_gaps():
    found = {"newest tokens": 30.0, "4 newlines + 124": 10.5, "4 + 124": 10.0}
    losses = {name: tokens(value) for name, value in found.items()}
    assert tables.newline_verdict(losses).endswith("96 ± 0 %, n = 8: holds")  # log 30 / 10.5 over log 3
    said = "Four newlines do 96 % of what the text's own first tokens do\n(of the log-perplexity)"
    assert tables.newline_finding(found) == said
    assert tables.newline_verdict(losses | {"4 newlines + 124": tokens(14.0)}).endswith("does not hold")
    constants = {"window": 30.0, "logit": 28.0, "both": 12.0, "token": 10.0}
    said = "A constant does 83 % of what the first token does;\nits logit alone 6 % (of the log-perplexity)"
    assert tables.constant_finding(constants) == said
    gaps = {"newest tokens": 31.0, "4 + 124, original": 900.0, "4 + 124, rolling": 11.0}
    assert tables.rolling_verdict({name: tokens(value) for name, value in gaps.items()}, 100).endswith("n = 8: holds")
    said = "After a gap of 1,000 positions: with those of the text\n82 times the perplexity of rolling ones"
    assert tables.rolling_finding(gaps, 1000) == said


def test_published_numbers_are_marked_and_say_where_they_come_from():
    text = " ".join(tables.source("window").split())
    assert text.startswith("Published, not measured here: perplexity of Llama-2-13B")
    assert "as quoted in public notes" in text
    assert text.endswith("Xiao and others, 2023, https://arxiv.org/abs/2309.17453")
    assert max(map(len, tables.source("ways").splitlines())) <= 100
    assert "up to 22.2 times" in tables.published_speed()
