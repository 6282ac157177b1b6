"""What heavy hitters are worth: reading a part of a text, by hand and on a tiny model, and what is said of it."""

import math

import pytest
import torch
from table_cells import rows as cells

from course_lib.lessons.kv import claims, estimates, heavy_hitters, stories
from course_lib.lessons.kv.deck import drawn, summary
from course_lib.lessons.kv.experiments import heavy, reading
from course_lib.models import tiny_model

# One head of one group: three tokens, each row its attention.
WEIGHTS = torch.tensor([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.5, 0.1, 0.4]])[None, None, None]


def test_the_largest_weights_of_each_row_by_hand():
    """Half of 1, 2 and 3 tokens: one (at least), one, and two."""
    read = reading.largest(0.5)(WEIGHTS)[0, 0, 0]
    assert read.tolist() == [[True, False, False], [False, True, False], [True, False, True]]


@pytest.mark.parametrize(("which", "masked"), [(estimates.HEAVIEST, 0), (estimates.SPARED, 1)])
def test_the_heaviest_are_read_by_their_own_query_alone(which, masked):
    """Token 0 receives 1.8, token 1 0.8 and token 2 0.4."""
    read = reading.without(1, which, torch.Generator())(WEIGHTS)[0, 0, 0]
    expected = torch.ones(3, 3, dtype=torch.bool)
    expected[:, masked] = torch.arange(3) == masked
    assert torch.equal(read, expected)


def test_at_random_the_first_token_stays():
    choice = reading.without(2, estimates.RANDOM, torch.Generator().manual_seed(0))
    assert choice(WEIGHTS)[0, 0, 0, :, 0].all()
    with pytest.raises(ValueError, match="got 'lightest'; expected 'heaviest'"):
        reading.without(1, "lightest", torch.Generator())


def test_who_reads_everything_reads_as_without():
    model = tiny_model()
    ids = torch.arange(12)[None]
    with torch.no_grad():
        plain = model(ids, use_cache=False).logits
        with reading.reading(model, reading.everything):
            same = model(ids, use_cache=False).logits
        with reading.reading(model, reading.largest(0.2)):
            other = model(ids, use_cache=False).logits
        again = model(ids, use_cache=False).logits
    torch.testing.assert_close(same, plain, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(other, plain, atol=1e-3)
    assert torch.equal(again, plain)


def test_a_text_that_goes_round_in_circles_has_few_distinct_tokens():
    assert heavy.distinct(torch.tensor([[1, 2, 1, 2], [1, 2, 3, 4]])) == [0.5, 1.0]


def test_what_is_said_follows_from_the_numbers():
    """Masked: heavy hitters cost ln 4, others ln 2 and nothing; 5 % of the tokens cost 0.2 nats."""
    row = {"share": 0.1, "full": [1.0, 2.0, 3.0]}
    by = {estimates.HEAVIEST: math.log(4), estimates.SPARED: math.log(2), estimates.RANDOM: 0.0}
    masked = [
        row | {"which": which, "losses": [full + more + 1e-3 * i for i, full in enumerate(row["full"])]}
        for which, more in by.items()
    ]
    enough = [row | {"share": 0.05, "losses": [1.2, 2.19, 3.21], "same": [0.8, 0.9, 0.7]}]
    made_up = {"tables": {"masked": masked, "enough": enough}}
    assert [each.judge(made_up).words for each in (claims.MASKED, claims.MASKED_BUT_FIRST)] == ["holds"] * 2
    assert claims.MASKED.judge(made_up).ours == "4 times (10 % masked)"
    enough = claims.FIVE_PER_CENT.judge(made_up)
    assert enough.words == "not at this scale"
    assert heavy_hitters.enough_verdict(made_up) == str(enough)
    assert cells(heavy_hitters.enough_table(made_up)) == [["5 %", "+0.200 ± 0.006", "80 %"]]
    (axes,) = heavy_hitters.masked(made_up).axes
    assert axes.get_title(loc="left").startswith("10 % masked: 4 times the perplexity; the first token spared 2.0")
    (axes,) = heavy_hitters.enough(made_up).axes
    assert "80 % of the next tokens the same, n = 3" in axes.get_title(loc="left")


def test_the_committed_stories_are_those_of_the_prompt():
    measured = heavy_hitters.results()
    told = stories.stories(measured)
    assert [row["policy"] for row in measured["tables"]["stories"]] == list(heavy.WRITERS)
    assert "H2O, 24 slots:" in told
    assert max(map(len, told.splitlines())) <= 100
    assert measured["tables"]["stories"][0]["prompt"] == heavy.STORY
    assert len(stories.side_by_side(measured).axes) == len(heavy.WRITERS)


def test_the_drawn_cache_never_holds_more_than_its_slots():
    """Each query reads the five slots and itself; the first token stays throughout."""
    seen = drawn._kept()
    assert seen.sum(dim=1).max() == drawn.BUDGET + 1
    assert seen[:, 0].all()


def test_the_summary_shows_the_records():
    texts = [text.get_text().replace("\n", " ").replace("\xa0", " ") for text in summary.take_home().axes[0].texts]
    assert [claim.text for claim in summary.TAKE_HOME] == texts[4::4]
    assert [claim.judge().words for claim in summary.TAKE_HOME] == texts[7::4]


def test_what_is_drawn_without_a_model_is_drawn():
    """Each square of the causal half, and each slot of the last query."""
    (axes,) = drawn.cache().axes
    n = len(drawn.WORDS)
    assert len(axes.patches) == n * (n + 1) // 2 + drawn.BUDGET + 1
    assert len(drawn.protocols().axes) == 2
    assert summary.published().axes
    assert summary.take_home().axes
