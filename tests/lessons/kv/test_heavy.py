"""Heavy hitters: reading a part of a text, by hand and on a tiny model, and the claims and figures on them."""

import math

import pytest
import torch

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.common.style import figure
from course_lib.lessons.kv import claims, deck, estimates, plots, steps
from course_lib.lessons.kv.experiments import heavy, reading
from course_lib.models import tiny_model

# One head of one group: three tokens, each row its attention.
WEIGHTS = torch.tensor([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.5, 0.1, 0.4]])[None, None, None]


def test_the_largest_weights_of_each_row_by_hand():
    """Half of 1, 2 and 3 tokens: one (at least), one, and two."""
    read = reading.largest(0.5)(WEIGHTS)[0, 0, 0]
    assert read.tolist() == [[True, False, False], [False, True, False], [True, False, True]]


@pytest.mark.parametrize(("which", "masked"), [(estimates.HEAVIEST, 0), (estimates.SPARED, 1)])
def test_the_heaviest_are_read_only_by_their_own_query(which, masked):
    """Token 0 receives 1.8, token 1 0.8 and token 2 0.4."""
    read = reading.without(1, which, torch.Generator())(WEIGHTS)[0, 0, 0]
    expected = torch.ones(3, 3, dtype=torch.bool)
    expected[:, masked] = torch.arange(3) == masked
    assert torch.equal(read, expected)


def test_random_masking_spares_the_first_token():
    choice = reading.without(2, estimates.RANDOM, torch.Generator().manual_seed(0))
    assert choice(WEIGHTS)[0, 0, 0, :, 0].all()
    with pytest.raises(ValueError, match="got 'lightest'; expected 'heaviest'"):
        reading.without(1, "lightest", torch.Generator())


def test_reading_everything_is_the_plain_model():
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


def test_a_text_that_repeats_itself_has_few_distinct_tokens():
    assert heavy.distinct(torch.tensor([[1, 2, 1, 2], [1, 2, 3, 4]])) == [0.5, 1.0]


def test_verdicts_and_titles_follow_from_the_numbers():
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
    assert enough.ours == "1.2214 ± 0.0071 times the perplexity, 80 % of the next tokens the same"
    (axes,) = plots.masked(made_up).axes
    assert axes.get_title(loc="left").startswith("10 % masked: 4 times the perplexity; without the first token 2.0")
    _, (axes,) = figure()
    plots.enough(axes, made_up)
    assert "80 % of the next tokens the same, n = 3" in axes.get_title(loc="left")


def test_the_committed_stories_are_those_of_the_prompt():
    stories = load_measured("kv", "heavy")["tables"]["stories"]
    assert [row["policy"] for row in stories] == list(heavy.WRITERS)
    assert stories[0]["prompt"] == steps.STORY
    panels = deck.continuations().axes
    assert len(panels) == len(heavy.WRITERS)
    assert panels[-1].get_title(loc="left") == "H2O\n24 slots"


def test_the_drawn_cache_never_holds_more_than_its_slots():
    """Each query reads the five slots and itself; the first token is always kept."""
    is_read = deck.example_reads()
    assert is_read.sum(dim=1).max() == deck.N_SLOTS + 1
    assert is_read[:, 0].all()


def test_the_summary_shows_the_records():
    texts = [text.get_text().replace("\n", " ").replace("\xa0", " ") for text in deck.take_home().axes[0].texts]
    assert [claim.text for claim in deck.TAKE_HOME] == texts[4::4]
    assert [claim.judge().words for claim in deck.TAKE_HOME] == texts[7::4]


def test_drawings_need_no_model():
    """Each square of the causal half, and each slot of the last query."""
    (axes,) = deck.cache().axes
    n = len(deck.WORDS)
    assert len(axes.patches) == n * (n + 1) // 2 + deck.N_SLOTS + 1
    assert len(deck.protocols().axes) == 2
    assert deck.speedups().axes
    assert deck.take_home().axes
