"""What the notebook of lesson 12 measures, on a tiny model: weights are restored, and titles say what is plotted."""

import pytest
import torch
from IPython.display import DisplayHandle
from matplotlib.figure import Figure

from course_lib.attention.speculative.draft import Lookup
from course_lib.lessons.capstone import live, plots, tables, widgets
from course_lib.lessons.capstone.exercises.front import compare_fronts
from course_lib.lessons.capstone.methods import tokens_of_a_pass
from course_lib.lessons.common import views
from course_lib.lessons.common.verdicts import WORDS
from course_lib.models import tiny_model
from course_lib.workbook.ledger import view as ledger_view
from course_lib.workbook.ledger.filtered import table

IDS = torch.arange(12)[None] % 7


@pytest.fixture
def model():
    return tiny_model()


def test_a_bitmap_pays_from_where_its_line_crosses():
    ways = {"all codes": [4.0, 4.0, 4.0], "bitmap": [5.5, 4.0, 3.5]}
    figure = plots.bits_per_weight({4: ways, 2: ways | {"bitmap": [5.0, 5.0, 4.5]}}, (0.0, 0.4, 0.5))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["4 bits: a bitmap pays from 50 % zeros", "2 bits: it never pays"]


def test_the_title_compares_the_worst_error_with_the_first():
    title = plots.output_errors({"first": 0.1, "in another\norder": 0.25}).axes[0].get_title(loc="left")
    assert title == "In another order: 2.50 times the error of the first"


def test_parts_come_back_and_their_bytes_rise_with_their_level(model):
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with live.rounded(model, dict.fromkeys(live.model_parts(model), 0)):
        assert any(not torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    found = live.level_curves(model, IDS)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert (found.sizes.diff(dim=1) >= 0).all()  # rows of 48 columns are one group of 64
    n_linear = sum(weight.numel() for weights in live.model_parts(model).values() for weight in weights)
    assert n_linear == sum(p.numel() for p in model.parameters() if p.ndim == 2)
    table = tables.levels(found.names, list(live.LEVELS), found.sizes, found.losses, [0, 1, 2]).frame
    assert list(table["part"]) == list(found.names)
    assert list(table["level"]) == list(live.LEVELS)
    assert list(table["MB"]) == [int(found.sizes[part, part]) / 1e6 for part in range(3)]
    losses = live.losses_at(model, IDS.repeat(2, 1), dict.fromkeys(found.names, 1))
    assert losses.shape == (2,)


def test_a_text_is_the_models_own_at_temperature_0_and_stops(model):
    n_words = model.config.vocab_size
    new, passes = live.write(model, IDS[0], 6, Lookup(n_words), tokens_of_a_pass, temperature=0.0)
    whole = model.generate(IDS, max_new_tokens=len(new), do_sample=False, eos_token_id=None)[0, 12:]
    assert new.tolist() == whole.tolist()
    assert sum(passes) == len(new)
    first = int(new[0])
    stopped, _ = live.write(model, IDS[0], 6, Lookup(n_words), tokens_of_a_pass, temperature=0.0, stop=first)
    assert stopped.tolist() == [first]


def test_gains_say_which_drafts_have_one():
    fig = plots.gains({"cheap": [0.1, 0.3, 0.2], "expensive": [-0.1, -0.2]})
    assert fig.axes[0].get_title(loc="left") == "A gain is possible with cheap"
    assert plots.gains({"expensive": [-0.1]}).axes[0].get_title(loc="left") == "None of these drafts has a gain"


ROW = {"name": "mine", "stored": 40, "cache": 10, "read": 30, "by_part": {"weights": 40_000_000}}
ROW |= {"wikipedia": [3.0, 3.5], "boolq": [3.25, 4.0]}
DENSE = ROW | {"name": "dense", "stored": 90, "read": 60, "wikipedia": [2.5, 2.75, 9.0], "boolq": [3.0, 3.5, 9.0]}


def test_the_bytes_of_an_own_recipe_are_compared_with_the_dense_model():
    table = tables.own_recipe(ROW, DENSE).frame
    assert list(table["part"]) == ["weights", "cache", "held in all", "read per token"]
    assert list(table["of dense"][2:]) == [0.5, 0.5]


def test_the_views_show_one_state_and_follow_their_controls(monkeypatch):
    shown = []
    monkeypatch.setattr(DisplayHandle, "display", lambda self, value: shown.append(value))
    monkeypatch.setattr(DisplayHandle, "update", lambda self, value: shown.append(value))
    for module in (views, ledger_view):
        monkeypatch.setattr(module, "display", lambda _: None)
    controls = ledger_view.claims(WORDS[0])
    controls.children[0].value = WORDS[2]
    assert shown == [table(WORDS[0]), table(WORDS[2])]
    drawn = []

    def pareto_front(recipes, own, domain, budget):
        drawn.append((domain, budget))
        return Figure()

    monkeypatch.setattr(plots, "pareto_front", pareto_front)
    controls = widgets.pareto_front([], [])
    controls.children[0].children[0].value = "boolq"
    assert drawn == [("wikipedia", (1 / 3, 0.25)), ("boolq", (1 / 3, 0.25))]


def test_two_fronts_are_drawn_with_a_ring_around_what_differs():
    stays = torch.tensor([True, True, False])
    fig = compare_fronts(torch.tensor([1.0, 2.0, 3.0]), torch.rand(3, 4), ~stays, stays)
    assert [axes.get_title(loc="left") for axes in fig.axes] == [
        "yours: 1 of 3 on the front",
        "expected: 2 of 3 on the front",
    ]
    assert len(fig.axes[0].collections[2].get_offsets()) == 3
