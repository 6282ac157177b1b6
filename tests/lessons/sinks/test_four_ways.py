"""Four ways to read on, chats in a small cache, and starts of a stream: what is read, counted and said."""

import math

import pytest
import torch
from table_cells import rows

from course_lib.kv.policies.full import Full
from course_lib.lessons.sinks import claims, drawings, estimates
from course_lib.lessons.sinks.experiments import dialogue, first_tokens, four_ways
from course_lib.lessons.sinks.results import ways
from course_lib.models import blocks, linears, tiny_model, weight_of


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(3, 97, (60,), generator=torch.Generator().manual_seed(0))


def all_losses(model, ids):
    with torch.no_grad():
        logits = model(ids[None, :-1], use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")


def test_the_count_by_hand(model):
    """10 weights, one layer of width 2: 20 a token and 8 a pair; of a window of 3 all pairs are 1 + 2 + 3."""
    assert four_ways.flops_a_token(10, 1, 2, 5, 3) == (60, 44, 108)
    assert four_ways.flops_a_token(10, 1, 2, 2, 3) == (36, 36, 64)
    weights = sum(weight_of(each).numel() for block in blocks(model) for each in linears(block).values())
    assert four_ways.shape(model) == (weights, 2, 48)


def test_reading_in_passes_with_everything_kept_is_reading_at_once(model, ids):
    found = four_ways.streamed(model, ids, Full(), "original", slow_from=32)
    assert found == pytest.approx(all_losses(model, ids), abs=1e-4)


def test_a_window_read_afresh_sees_its_tokens_and_nothing_else(model, ids):
    (found,) = four_ways.read_afresh(model, ids, [40], 8)
    assert found == pytest.approx(all_losses(model, ids[33:42])[-1].item(), abs=1e-4)


def test_predictions_are_compared_beyond_the_trained_length():
    assert four_ways.compared_at(9024, 48, 8192)[0] == 8256
    assert four_ways.compared_at(9024, 48, 8192)[-1] == 9008
    with pytest.raises(ValueError, match="beyond 8192"):
        four_ways.compared_at(9024, 60, 8192)


def test_a_chat_in_a_cache_that_holds_it_all_is_that_of_everything(model):
    asked = [torch.randint(3, 97, (2, n), generator=torch.Generator().manual_seed(n)) for n in (5, 4)]
    whole, starts = dialogue.talk(model, asked, dialogue.EVERYTHING, 6, 64, never=0, seed=3)
    with pytest.warns(UserWarning, match="nothing was evicted"):
        same, _ = dialogue.talk(model, asked, dialogue.NEWEST, 6, 64, never=0, seed=3)
    assert whole.shape == (2, 21)
    assert starts == [5, 15]
    assert torch.equal(whole, same)
    assert torch.equal(whole[:, 11:15], asked[1])
    judged = dialogue.judged(model, whole, 15, 6)
    assert judged == pytest.approx([all_losses(model, row)[14:].mean().item() for row in whole], abs=1e-4)


def measured(dense=3.0, window=3.0, afresh=2.0, circles="a b c a b c a b c"):
    spread = [0.01 * i for i in range(-5, 6)]
    table = [
        {"way": way, "trained": 8, "budget": 4, "block": 4, "blocks": [2.0, loss, loss + 0.1, loss], "losses": losses}
        for way, loss in zip(four_ways.WAYS, (dense, window, afresh, 2.0), strict=True)
        for losses in ([loss + more for more in spread],)
    ]
    chats = [
        {"cache": cache, "round": number, "budget": 4, "question": "what?", "text": text}
        for cache, text in zip(dialogue.CACHES, ("a b c d e f", circles, "f e d c b a"), strict=True)
        for number in (1, 2)
        for _ in range(3)
    ]
    return {"tables": {"ways": table, "chats": chats}, "sizes": {"tokens": 16}}


def verdicts(judged, found):
    return [claim.judge(found).verdict for claim in judged]


def test_verdicts_follow_from_pairs():
    assert verdicts(claims.WAYS_CLAIMS, measured()) == ["holds", "holds", "holds"]
    found = measured(dense=2.1, window=2.0, afresh=1.5)
    assert verdicts(claims.WAYS_CLAIMS, found) == ["does not hold"] * 3
    assert verdicts(claims.CHAT_CLAIMS, measured()) == ["holds", "holds"]
    fluent = measured(circles="a b c d e f")
    assert verdicts(claims.CHAT_CLAIMS, fluent) == ["does not hold", "holds"]
    assert ways.ways_verdict(found) == "\n".join(str(claim.judge(found)) for claim in claims.WAYS_CLAIMS)
    assert claims.DENSE_BEYOND.judge(measured()).ours.endswith("times, 100 % beyond that length")
    assert claims.CHAT_COLLAPSES.judge(measured()).ours == "+57.1 percentage points"


def test_repetition_counts_runs_of_three_words():
    assert estimates.repeated("One, two three. Four") == 0.0
    assert estimates.repeated("a-b c a b c a") == pytest.approx(0.4)  # abc bca cab abc bca
    assert estimates.repeated("two words") == 0.0


def test_titles_follow_from_the_data():
    left, right = ways.along_the_text(measured()).axes
    assert left.get_title(loc="left") == "Beyond 8 tokens: dense 2.72 times,\nwindow 2.72 times StreamingLLM"
    assert "The same 11 predictions" in right.get_title(loc="left")
    flops = {"dense": [10.0, 60.0], "streaming": [10.0, 20.0], "read afresh": [40.0, 100.0]}
    title = ways.costs((2, 9), flops, 3).axes[0].get_title(loc="left")
    assert "dense costs 3 times" in title
    assert "window of 3 read afresh 5 times" in title


@pytest.mark.parametrize("name", ["along_the_text", "beside_the_paper", "chat_repeats", "chat_figure", "chat_verdict"])
def test_the_committed_measurement_can_be_drawn(name):
    assert getattr(ways, name)(ways.results())


def test_a_start_takes_its_slots():
    losses = torch.tensor([2.0, 3.0], dtype=torch.float64)
    ideas = {"own": first_tokens.Attempt(4, losses), "other": first_tokens.Attempt(1, losses - 0.1)}
    own, other, yours = rows(first_tokens.table(ideas, first_tokens.Attempt(2, losses + 0.1)))
    assert own == ["own", "4", f"{math.exp(2.5):.1f}", "–"]
    assert other[-1] == "+0.100 ± 0.000"
    assert (yours[0], yours[-1]) == ("yours", "-0.100 ± 0.000")


def test_starts_that_are_none(model):
    tokenizer = Letters()
    for start, what in ((17, "17 tokens"), ("a" * 17, "17 tokens"), (True, "got True"), (None, "got None")):
        with pytest.raises(ValueError, match=what):
            first_tokens.start_of(tokenizer, start)
    before, n_kept = first_tokens.start_of(tokenizer, "abc")
    assert (len(before), n_kept) == (3, 3)
    before, n_kept = first_tokens.start_of(tokenizer, 4)
    assert (len(before), n_kept) == (0, 4)


class Letters:
    """A tokenizer with a token a letter."""

    def __call__(self, text, add_special_tokens=False):
        self.input_ids = [ord(letter) for letter in text]
        return self


@pytest.mark.parametrize("name", ["four_patterns", "one_leaves", "starts"])
def test_drawings_have_titles(name):
    assert all(panel.get_title(loc="left") for panel in getattr(drawings, name)().axes)
