"""What lesson 12 runs while it is read, on a tiny model: nothing is changed for good, titles say what is drawn."""

import pytest
import torch
from IPython.display import DisplayHandle
from matplotlib.figure import Figure

from course_lib.attention.speculative.draft import Lookup
from course_lib.lessons.capstone.drawings.answers import compare_fronts
from course_lib.lessons.capstone.live import drafts, layers, parts, rows, view
from course_lib.lessons.capstone.steps.combined import pruned_and_rounded
from course_lib.lessons.capstone.steps.drafted import tokens_and_gain, tokens_of_a_pass
from course_lib.lessons.capstone.steps.fronts import on_the_front
from course_lib.lessons.capstone.steps.ratios import ratio_of_perplexities
from course_lib.lessons.capstone.steps.sizes import ways_to_store
from course_lib.lessons.common import views
from course_lib.lessons.common.verdicts import WORDS
from course_lib.models import tiny_model
from course_lib.workbook.ledger import view as ledger_view
from course_lib.workbook.ledger.filtered import table

IDS = torch.arange(12)[None] % 7


@pytest.fixture
def model():
    return tiny_model()


def test_a_layer_is_read_with_what_it_reads_and_no_hook_stays(model):
    weight, inputs = layers.layer_and_inputs(model, "blocks.0.mlp.up_proj", IDS)
    assert inputs.shape == (12, weight.shape[1])
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_bitmap_pays_from_where_its_line_crosses(capsys):
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    found = {bits: layers.bits_a_weight(weight, ways_to_store, bits) for bits in (4, 2)}
    titles = [axes.get_title(loc="left") for axes in layers.stored(found).axes]
    # 4 + ⅜ against 4 (1 − s) + 1 + ⅜ + ½ (65 starts of 32 bits for 64² weights): from s = 0.377 on; 2 bits: 0.754.
    assert titles == ["4 bits: a bitmap pays from 40 % zeros", "2 bits: a bitmap pays from 80 % zeros"]


def test_what_is_made_by_the_exercise_has_the_least_error_and_as_many_zeros_as_asked_for():
    generator = torch.Generator().manual_seed(0)
    weight, inputs = torch.randn(20, 128, generator=generator), torch.randn(50, 128, generator=generator)
    made = layers.made(weight, inputs.norm(dim=0), 64, 2, pruned_and_rounded)
    found = layers.errors(weight, inputs, made)
    first, *others = found.values()
    assert all(first <= other for other in others)
    *masked, rounded = made.values()
    assert all(int((each != 0).sum()) <= 20 * 64 for each in masked)
    assert int((rounded != 0).sum()) > 20 * 64, "zeros that are rounded do not stay zeros"
    assert "times the error of the first" in layers.orders(found).axes[0].get_title(loc="left")


def test_parts_come_back_and_their_bytes_rise_with_their_level(model):
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with parts.rounded(model, dict.fromkeys(parts.parts_of(model), 0)):
        assert any(not torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    found = parts.curves(model, IDS)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert (found.sizes.diff(dim=1) >= 0).all()  # rows of 48 columns are one group of 64
    n_linear = sum(weight.numel() for weights in parts.parts_of(model).values() for weight in weights)
    assert n_linear == sum(p.numel() for p in model.parameters() if p.ndim == 2)
    levels = [0, 1, 2]
    lines = parts.table(found, levels).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [name.split()[0] for name in found.names]
    assert "each: the split loses" in parts.beside_uniform(model, IDS.repeat(2, 1), found, levels)


def test_a_text_is_the_models_own_at_temperature_0_and_stops(model):
    n_words = model.config.vocab_size
    new, passes = drafts.write(model, IDS[0], 6, Lookup(n_words), tokens_of_a_pass, temperature=0.0)
    whole = model.generate(IDS, max_new_tokens=len(new), do_sample=False, eos_token_id=None)[0, 12:]
    assert new.tolist() == whole.tolist()
    assert sum(passes) == len(new)
    first = int(new[0])
    stopped, _ = drafts.write(model, IDS[0], 6, Lookup(n_words), tokens_of_a_pass, temperature=0.0, stop=first)
    assert stopped.tolist() == [first]


def test_gains_say_which_drafts_gain_anything():
    fig = drafts.gains({"cheap": (0.8, 0.1), "dear": (0.3, 0.9)}, tokens_and_gain)
    assert fig.axes[0].get_title(loc="left") == "Something is gained with cheap"
    fig = drafts.gains({"dear": (0.3, 0.9)}, tokens_and_gain)
    assert fig.axes[0].get_title(loc="left") == "None of these drafts gains anything"


ROW = {"name": "mine", "stored": 40, "cache": 10, "read": 30, "by_part": {"weights": 40_000_000}}
ROW |= {"wikipedia": [3.0, 3.5], "boolq": [3.25, 4.0]}
DENSE = ROW | {"name": "dense", "stored": 90, "read": 60, "wikipedia": [2.5, 2.75, 9.0], "boolq": [3.0, 3.5, 9.0]}


def test_a_row_is_told_beside_the_dense_model():
    assert rows.stored(ROW, DENSE).splitlines()[-1].endswith("50 % of the bytes held, 50 % of the bytes read a token")
    first, second, last = rows.ratios(ROW, DENSE, ratio_of_perplexities).splitlines()
    assert first.split()[:2] == ["wikipedia", f"{torch.tensor(0.625).exp():.2f}"]
    assert second.split()[:2] == ["boolq", f"{torch.tensor(0.375).exp():.2f}"]
    assert last.startswith("wikipedia would count")


def test_recipes_on_the_front_are_named_the_cheapest_first():
    three = [DENSE | {"wikipedia": [2.5, 2.75]}, ROW, ROW | {"name": "dearer", "cache": 20}]
    assert rows.on_the_front(three, on_the_front) == "2 of 3 recipes stay: mine; dense"


def test_the_views_show_one_state_and_follow_their_controls(monkeypatch):
    shown = []
    monkeypatch.setattr(DisplayHandle, "display", lambda self, value: shown.append(value))
    monkeypatch.setattr(DisplayHandle, "update", lambda self, value: shown.append(value))
    for module in (views, ledger_view):
        monkeypatch.setattr(module, "display", lambda _: None)
    controls = ledger_view.claims(WORDS[0])
    controls.children[0].value = WORDS[2]
    assert shown == [table(WORDS[0]), table(WORDS[2])]
    asked = []

    def draw(recipes, mine, domain, budget):
        asked.append((domain, budget))
        return Figure()

    controls = view.front([], [], draw)
    controls.children[0].children[0].value = "boolq"
    assert asked == [("wikipedia", (1 / 3, 0.25)), ("boolq", (1 / 3, 0.25))]


def test_two_fronts_are_drawn_with_a_ring_around_what_differs():
    stays = torch.tensor([True, True, False])
    fig = compare_fronts(torch.tensor([1.0, 2.0, 3.0]), torch.rand(3, 4), ~stays, stays)
    assert [axes.get_title(loc="left") for axes in fig.axes] == ["yours: 1 of 3 stay", "expected: 2 of 3 stay"]
    assert len(fig.axes[0].collections[2].get_offsets()) == 3
