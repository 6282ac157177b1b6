"""How much the heads of a layer differ: by hand, by chance, and on a tiny model."""

import pytest
import torch

from course_lib.kv.analysis import by_head
from course_lib.lessons.kv import claims, estimates
from course_lib.models import tiny_model


def test_the_most_similar_earlier_key_by_hand():
    """Behind the sink: east; north-east, cosine √½ with it; north, √½ with the second; east again, 1 with the first."""
    keys = torch.tensor([[9.0, -9.0], [1.0, 0.0], [1.0, 1.0], [0.0, 3.0], [2.0, 0.0]])
    same = torch.ones(5, 2)
    found = by_head.likeness(torch.stack([keys, same]))
    torch.testing.assert_close(found, torch.tensor([(2 * 0.5**0.5 + 1) / 3, 1.0]))


def test_heads_are_chosen_on_other_texts():
    """Texts 0 and 2 call head 0 first and head 1 last; texts 1 and 3 call head 2 first and head 0 last."""
    by_text = torch.tensor([[[0.8, 0.1, 0.3]], [[0.2, 0.4, 0.6]], [[0.8, 0.1, 0.3]], [[0.2, 0.4, 0.6]]])
    found = estimates.apart(by_text)
    # Read off texts 1 and 3: 0.2 − 0.4; off texts 0 and 2: 0.3 − 0.8.
    assert (found.value, found.n) == (pytest.approx((-0.2 - 0.5) / 2), 4)


def test_by_chance_heads_do_not_differ(generator):
    """Heads that are alike: the first of nine on 4 texts is no further on 4 others. Three errors of 40 such samples."""
    found = [estimates.apart(torch.rand(8, 30, 9, generator=generator)).value for _ in range(40)]
    mean = torch.tensor(found)
    assert abs(mean.mean()) < 3 * mean.std() / 40**0.5


def made_up(sparse, like, chance=False):
    """Two layers of two heads; the texts differ a little. By chance, the second head is ahead in every other text."""
    other = -1 if chance else 1
    return {
        "tables": {
            "heads": [
                {"sparsity": [[0.5, 0.5 + sparse + shift]] * 2, "likeness": [[0.5, 0.5 + sign * like + shift]] * 2}
                for shift, sign in ((0.0, 1), (0.01, other), (0.0, 1), (0.01, other))
            ]
        }
    }


@pytest.mark.parametrize(
    ("sparse", "like", "chance", "verdict"),
    [(0.3, 0.2, False, "holds"), (0.3, 0.02, False, "holds"), (0.3, 0.1, True, "mixed")],
)
def test_the_verdict_follows_the_numbers(sparse, like, chance, verdict):
    """Heads that differ in other ways on other texts do not differ."""
    judged = claims.HEADS_DIFFER.judge(made_up(sparse, like, chance))
    assert judged.verdict == verdict
    assert judged.n == "4"


def test_a_tiny_model_is_measured(generator):
    model = tiny_model()
    found = by_head.of_text(model, torch.randint(0, 20, (24,), generator=generator))
    shapes = {name: torch.tensor(values).shape for name, values in found.items()}
    config = model.config
    assert shapes["sparsity"] == (config.num_hidden_layers, config.num_attention_heads)
    assert shapes["likeness"] == (config.num_hidden_layers, config.num_key_value_heads)
