"""Whether frequent tokens receive more attention: counted by hand, and on a tiny model."""

import pytest
import torch

from course_lib.lessons.kv import claims
from course_lib.lessons.kv.experiments import words
from course_lib.models import tiny_model


def letters(ids):
    """Token 0 is a, token 1 is b, and so on."""
    return "".join(chr(97 + each) for each in ids)


def test_an_even_text_gives_every_occurrence_one_share():
    """Queries 0 to 7, each spread evenly over what it sees: token j receives the sum of 1 / (i + 1) from i = j on."""
    ids = torch.tensor([7, 1, 2, 1, 1, 3, 9, 9])  # of these the first and the last quarter are left out
    even = torch.tensor([[sum(1 / (i + 1) for i in range(j, 8)) for j in range(8)]]) / 8
    found = words.words_of(even, ids, letters)
    assert (found.names, found.count.tolist()) == (("b", "c", "d"), [3, 1, 1])
    torch.testing.assert_close(found.whole, torch.tensor([3.0, 1.0, 1.0]))
    torch.testing.assert_close(found.each, torch.ones(3))


def test_one_occurrence_is_the_mean_of_all():
    """Token b at places 1 and 2 receives three shares and one, layer by layer the same."""
    even = torch.tensor([sum(1 / (i + 1) for i in range(j, 4)) for j in range(4)]) / 4
    mass = (even * torch.tensor([0.0, 3.0, 1.0, 0.0])).expand(2, 4)
    found = words.words_of(mass, torch.tensor([0, 1, 1, 2]), letters)
    assert (found.whole.tolist(), found.each.tolist()) == (pytest.approx([4.0]), pytest.approx([2.0]))


def test_equal_values_share_their_rank():
    """Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, variances 1.5 and 2, so √3 / 2."""
    one, other = torch.tensor([4.0, 4.0, 9.0]), torch.tensor([0.1, 0.2, 5.0])
    assert words.rank_correlation(one, other) == pytest.approx(3**0.5 / 2)
    assert words.rank_correlation(other, -other) == pytest.approx(-1.0)


def made_up(each):
    """A text in which tokens occur 1, 2, 4 and 8 times and receive so much at one occurrence."""
    count = torch.tensor([1.0, 2.0, 4.0, 8.0])
    return words.Words(("a", "b", "c", "d"), count, count * torch.tensor(each), torch.tensor(each))


def test_the_verdicts_follow_the_numbers():
    """All rank correlations 1 for the sum; at one occurrence -1, -1 and -0.8: clearly not more."""
    texts = [made_up(each) for each in ([4.0, 3.0, 2.0, 1.1], [8.0, 5.0, 3.0, 2.0], [4.0, 3.0, 1.6, 1.7])]
    rows = {"tables": {"words": words.correlations(texts)}}
    whole, each = claims.OFTEN.judge(rows), claims.OFTEN_EACH.judge(rows)
    assert (whole.effects[""].value, each.effects[""].value) == (
        pytest.approx(1.0),
        pytest.approx(-2.8 / 3 - claims.STRONG),
    )
    assert (whole.verdict, each.verdict) == ("holds", "does not hold")


@pytest.mark.parametrize(
    ("whole", "verdict", "opposite"),
    [((0.5, 0.6, 0.55), "holds", "does not hold"), ((-0.5, 0.6, 0.1), "undecided", "undecided")],
)
def test_committed_rows_are_judged_like_live_ones(whole, verdict, opposite):
    rows = [{"whole": value, "each": -value} for value in whole]
    made_up_rows = {"tables": {"words": rows}}
    judged = [claim.judge(made_up_rows) for claim in (claims.OFTEN, claims.OFTEN_EACH)]
    assert [each.verdict for each in judged] == [verdict, opposite]


def test_a_tiny_model_is_counted(generator):
    texts = torch.randint(0, 20, (2, 24), generator=generator)
    found = words.counted(tiny_model(), letters, texts)
    assert [int(each.count.sum()) for each in found] == [17, 17]  # tokens 1 to 17
