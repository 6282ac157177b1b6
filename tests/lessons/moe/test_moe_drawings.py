"""The drawings of lesson 06 say what the library computes: titles by hand, gradients and pulls in closed form."""

import inspect
import math

import pytest
import torch
from matplotlib.figure import Figure
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from course_lib.lessons.moe import deck, drawings, optional_plots
from course_lib.moe.routers.switch import Switch


def title(fig, number=0):
    return fig.axes[number].get_title(loc="left")


def every_drawing():
    """The figures of drawings and deck, and those of the optional sections, that need no arguments."""
    for module in (drawings, optional_plots, deck):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            signature = inspect.signature(function)
            is_own = function.__module__ == module.__name__ and signature.return_annotation is Figure
            if is_own and not signature.parameters:
                yield pytest.param(function, id=name)


@pytest.mark.parametrize("draw", every_drawing())
def test_a_drawing_says_what_it_shows(draw):
    fig = draw()
    assert (fig.described() == "a figure without a title") == (draw is deck.title_picture)
    assert fig is not draw(), "a notebook may change what it gets"


def test_the_layer_is_counted():
    assert 8 * 3 * 576 * 1536 == 21_233_664
    assert title(drawings.one_layer()) == (
        "Eight experts: 21.2 M weights are stored, 5.3 M are used per token; the router has 4,608"
    )


def test_the_two_sums_by_hand():
    powers = [math.exp(logit) for logit in (2.0, 1.5, 0.5, 0.0)]
    fig = drawings.top_k_then_softmax()
    assert title(fig, 0).endswith(f"add up to {sum(powers[:2]) / sum(powers):.2f}")
    assert title(fig, 1).endswith("add up to 1.00")


def test_gradients_in_closed_form():
    p = torch.tensor(drawings.TOKEN_LOGITS, dtype=torch.float64).softmax(0)
    found = deck.gradients()
    one = p[0] * ((torch.arange(4) == 0).double() - p)  # ∂p_0/∂h, times a slope of 1
    torch.testing.assert_close(found["softmax, then top-1"], one)
    assert found["top-1, then softmax"].abs().max() == 0, "p / p is 1 and does not move"
    share = 1 / (1 + math.exp(-0.5))  # of the first among the two best
    pair = (1.0 + 0.5) * share * (1 - share)  # ∂/∂h_0 of share − 0.5 (1 − share)
    assert found["top-2, then softmax"].tolist() == pytest.approx([pair, -pair, 0, 0])
    assert deck.where_the_gradient_goes().get_suptitle() == "4, 0, 4 and 2 of the 4 logits have a gradient"


def test_three_jitters_have_three_spreads():
    of_input, added, multiplied = optional_plots.jittered().values()
    wanted = torch.tensor([3.0, 1.0, 0.1, -2.0])
    uniform = optional_plots.EPS / math.sqrt(3)  # the deviation of U(1 − ε, 1 + ε)
    n_errors = 5 / math.sqrt(optional_plots.N_TRIALS)  # five standard errors of a mean, over its deviation
    assert (of_input.mean(0) - wanted).abs().max() < n_errors * of_input.std(0).max()
    assert (added.mean(0) - wanted - 1).abs().max() < n_errors * uniform
    assert added.std(0).tolist() == pytest.approx([uniform] * 4, rel=0.05)  # a deviation of 4000 draws: 1 %
    assert multiplied.std(0).tolist() == pytest.approx((uniform * wanted.abs()).tolist(), rel=0.05)


def test_the_smooth_load_has_the_slope_of_a_normal():
    steepest = [1 / (deviation * math.sqrt(2 * math.pi)) for deviation in (0.2, 0.69)]
    assert title(deck.smooth_load()).endswith(f"up to {steepest[0]:.1f} or {steepest[1]:.1f}")


def test_collapsed_layers_look_balanced_when_averaged():
    fig = drawings.by_layer()
    assert [title(fig, n)[-3:] for n in range(3)] == ["2.0", "2.0", "1.0"]
    assert fig.get_suptitle() == "Per layer the loss is 2.0; with loads pooled over the layers it is 1.0, as at balance"


def test_transformers_gives_the_same_for_collapsed_layers_and_at_balance():
    """What the notes of the deck say: 2.0 for both, as f is not divided by k there."""
    collapsed = tuple(
        probs.log().clamp(min=-30) for probs, _ in (drawings.collapsed((0, 1)), drawings.collapsed((2, 3)))
    )
    turns = torch.eye(4).repeat(2, 1) + torch.eye(4).roll(1, 0).repeat(2, 1)  # each token another pair, all even
    even = (30 * turns, 30 * turns)
    for layers in (collapsed, even):
        assert float(load_balancing_loss_func(layers, 4, 2)) == pytest.approx(2.0, abs=1e-5)


def test_pulls_by_hand():
    found = deck.pulls(torch.tensor([0.0, 1.0, 3.0]))
    assert found["cooperative"].tolist() == pytest.approx([0.5, 1.0, 2.0])  # 2 · ½ · (r + 1) / 2
    assert found["competitive"].tolist() == pytest.approx([0.0, 1.0, 3.0])  # 2 · ½ · r
    share = math.exp(-4.5) / (math.exp(-4.5) + math.exp(-0.5))
    assert found["mixture"].tolist() == pytest.approx([0.0, 0.5, 3 * share])  # h r


def test_the_rule_by_hand():
    """L = 1 − 1.4 s + 1.1 s² has the slope −1.4 + 2.2 s, and p is 0.8."""
    assert title(optional_plots.midpoint_rule()) == (
        "The chord has the slope at the midpoint p/2, −0.52; at p the slope is 0.36"
    )


def test_who_finds_no_place_by_hand():
    assert Switch(capacity_factor=1.0).capacity(8, 4) == 2
    fig = drawings.capacity_and_overflow()
    assert title(fig) == "Capacity factor 1.0: 3 of 8 tokens are dropped, while 3 slots stay empty"
    texts = [text.get_text() for text in fig.axes[0].texts]
    assert [text for text in texts if len(text) == 1] == ["a", "b", "c", "d", "f", "e", "g", "h"]


def test_choices_by_row_and_by_column():
    fig = drawings.token_choice_and_expert_choice()
    assert title(fig, 0) == "Each token takes its top 2: experts get 6, 5, 2 and 3"
    assert title(fig, 1) == "Each expert takes its top 4: tokens get 0 to 3"
    order = drawings.ROUTED.softmax(1).sort(dim=0, descending=True).values
    assert (order[3] - order[4]).min() > 0.01, "no tie decides who is taken"


def test_an_idle_expert_ends_where_the_one_before_it_ends():
    fig = drawings.dispatch()
    assert "ends: 3, 6, 6, 8" in [text.get_text() for text in fig.axes[0].texts]
    assert title(fig).endswith("8 pairs, 3 experts run; expert 2 is skipped")


def test_years_in_order():
    years = [year for year, _ in optional_plots.PAPERS]
    assert years == sorted(years)
    assert title(optional_plots.timeline()) == "23 of these 34 years lie between 1994 and 2017"
