"""What the notebook of lesson 06 runs: real activations, training, gradients, classic mixtures, the open task."""

from dataclasses import replace

import pytest
import torch

from course_lib.attention.small_models.byte_model import untrained
from course_lib.lessons.moe import budget
from course_lib.lessons.moe.exercises.balance import BALANCE
from course_lib.lessons.moe.exercises.capacity import CAPACITY
from course_lib.lessons.moe.exercises.dispatch import DISPATCH
from course_lib.lessons.moe.exercises.estimate import ESTIMATE
from course_lib.lessons.moe.exercises.gate import GATE
from course_lib.lessons.moe.exercises.jacobs import JACOBS
from course_lib.lessons.moe.exercises.load import LOAD
from course_lib.lessons.moe.exercises.top1 import TOP1
from course_lib.lessons.moe.live import classic, gradients, noise, routed, training
from course_lib.models import blocks, tiny_model
from course_lib.moe.classic.descent import train, vowel_samples
from course_lib.moe.classic.learners import Mixture
from course_lib.moe.estimators.sparsemixer import SparseMixer
from course_lib.moe.losses import balance_of_layers
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch
from course_lib.moe.small_models.byte_mixture import mixture_configuration
from course_lib.moe.small_models.training import Balancing, Reading

SMALL = {"width": 16, "n_blocks": 2, "n_heads": 2, "active": 24}
SHORT = replace(training.SCHEDULE, n_steps=3, batch=2, length=24, warm_up=2)


@pytest.fixture
def ids(generator):
    return torch.randint(3, 90, (2, 12), generator=generator)


def test_what_an_mlp_reads_is_what_it_answers_to(ids):
    model, answers = tiny_model(), []
    block = blocks(model)[1]
    handle = block.mlp.register_forward_hook(lambda _, __, out: answers.append(out))
    reads = routed.mlp_inputs(model, 1, ids)
    handle.remove()
    assert reads.shape == (2, 12, model.config.hidden_size)
    with torch.no_grad():
        torch.testing.assert_close(block.mlp(reads), answers[0])
    assert not any(len(module._forward_pre_hooks) for module in model.modules())


@torch.no_grad()
def test_experts_are_the_mlp_until_noise_is_added(ids):
    model = tiny_model()
    reads = routed.mlp_inputs(model, 0, ids).flatten(0, 1)
    said = blocks(model)[0].mlp(reads)
    same, other = (routed.experts_from(model, 0, 3, noise) for noise in (0.0, 0.3))
    for expert in range(3):
        torch.testing.assert_close(same.one(expert, reads), said)
        assert not torch.allclose(other.one(expert, reads), said)


@torch.no_grad()
def test_copies_whose_weights_add_up_to_one_are_the_model_and_leave_it_as_it_was(ids):
    model = tiny_model()
    before = model(ids).logits
    with routed.copied(model, 3, Mixtral(2)):
        torch.testing.assert_close(model(ids).logits, before, rtol=1e-4, atol=1e-5)  # sums in another order
    with routed.copied(model, 3, OLMoE(2)):
        assert (model(ids).logits - before).abs().max() > 1e-3
    assert torch.equal(model(ids).logits, before)


def test_copies_leave_after_an_error():
    model = tiny_model()
    own = blocks(model)[0].mlp

    def fails():
        with routed.copied(model, 2, Mixtral(1)):
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert blocks(model)[0].mlp is own


def test_a_gate_hears_what_its_weights_tell_it(generator):
    model = tiny_model()
    width = model.config.hidden_size
    tokens, gate = torch.randn(20, width, generator=generator), routed.first_gate(4, width)
    same, differ = (routed.experts_from(model, 0, 4, noise) for noise in (0.0, 0.3))
    by_formula = routed.gate_gradient(tokens, gate, differ, OLMoE(1))
    torch.testing.assert_close(routed.top_one_gradient(tokens, gate, differ, TOP1.library), by_formula)
    assert by_formula.norm() > 0
    assert not routed.gate_gradient(tokens, gate, differ, Mixtral(1)).any()
    compared = routed.gate_gradient(tokens, gate, differ, Mixtral(2)).norm()
    assert routed.gate_gradient(tokens, gate, same, Mixtral(2)).norm() < 1e-4 * compared


def test_only_experts_that_choose_see_what_comes_later(generator):
    logits = torch.randn(24, 4, generator=generator)
    named = {"top-2": OLMoE(2), "switch": Switch(capacity_factor=1.0), "choice": ExpertChoice(1.0)}
    moved = routed.moved_by_the_last(logits, named)
    assert (moved["top-2"], moved["switch"]) == (0, 0)
    assert 4 <= moved["choice"] <= 8  # in each turn one expert gives up a token, and another may have a place more


def test_a_gate_of_yours_is_the_formula_with_its_gradient(generator):
    logits = torch.randn(9, 5, generator=generator)
    found = []
    for router in (training.GateOfYours(gate=GATE.library), OLMoE(2)):
        at = logits.clone().requires_grad_()
        routing = router.route(at)
        (routing.weights * torch.arange(5.0)).sum().backward()
        found.append((routing.weights.detach(), at.grad, routing.keep))
    for yours, formula in zip(*found, strict=True):
        torch.testing.assert_close(yours, formula)


def test_the_loss_that_is_added_pushes_as_the_librarys(generator):
    logits = [torch.randn(9, 5, generator=generator, requires_grad=True) for _ in range(3)]
    routings = [OLMoE(2).route(each) for each in logits]
    added, expected = training.penalty(BALANCE.library, 0.5)(routings), balance_of_layers(routings, 0.5)
    torch.testing.assert_close(added, expected)
    pushes = [torch.autograd.grad(2 * loss, logits) for loss in (added, expected)]
    for yours, formula in zip(*pushes, strict=True):
        torch.testing.assert_close(yours, formula)


def test_learning_with_the_students_functions_is_learning_with_the_librarys():
    gate = training.GateOfYours(gate=GATE.library)
    yours = training.learn(gate, 4, training.penalty(BALANCE.library, 0.1), SMALL, SHORT)
    library = training.learn(OLMoE(2), 4, Balancing(0.1), SMALL, SHORT)
    assert yours.steps == (1,)
    assert yours.loads.shape == (1, 2, 4)
    torch.testing.assert_close(yours.loads.sum(2), torch.ones(1, 2))
    assert yours.reading.losses.shape == (training.N_HELD_OUT,)
    # AdamW's first steps have the size of the rate even where a gradient is a rounding: three of them stay below 1e-3
    torch.testing.assert_close(yours.reading.losses, library.reading.losses, rtol=1e-3, atol=1e-3)


def test_a_steady_rate_rises_and_stays():
    steady = training.Steady(n_steps=100, rate=2.0, warm_up=4)
    assert [steady.rate_at(step) for step in (0, 1, 3, 4, 99)] == [0.5, 1.0, 2.0, 2.0, 2.0]


def test_responsibilities_train_as_autograd_does():
    samples, _ = vowel_samples()
    ours = classic.by_responsibilities(JACOBS.library, samples, range(2), epochs=5)
    theirs = train(Mixture("mixture"), samples, range(2), epochs=5)
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    assert ours.accuracy.shape == theirs.accuracy.shape == (5, 2)


def test_em_climbs_and_a_tree_beats_a_map():
    climb = classic.climb(depth=2, n_steps=4)
    assert len(climb.log_likelihood) == 5
    assert climb.log_likelihood == sorted(climb.log_likelihood)
    assert climb.of_tree < climb.of_linear_map < 1


def test_the_mean_over_draws_is_the_librarys_and_halving_every_draw_is_exact():
    one = gradients.a_router(seed=2)
    exact, multiplier, released, every = gradients.compared(ESTIMATE.library, one).values()
    torch.testing.assert_close(every, exact, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(released, SparseMixer().draws(gradients.problem_of(one)).mean()[0])
    assert (released - exact).norm() > 1e-3
    assert (multiplier - exact).norm() > 1e-3


def test_draws_count_every_choice_and_the_smooth_load_is_near_their_mean(generator):
    logits = 0.5 * torch.randn(300, 4, generator=generator)
    drawn = noise.draws(logits, n_draws=100, k=2)
    assert (drawn.counts.sum(dim=1) == 600).all()
    smooth = LOAD.library(logits, drawn.noise, drawn.noisy, 2)
    # one draw of the rivals' noise for 300 tokens of about 150 each: a deviation of a few per cent
    torch.testing.assert_close(smooth, drawn.counts.mean(dim=0), rtol=0.15, atol=0)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"layers": 3}, "expected a dictionary with some of"),
        ([("k", 2)], "expected a dictionary with some of"),
        ({"weights": "equal"}, "probabilities, sum to one"),
        ({"neurons": 1024}, "FLOP a byte; expected at most"),
        ({"experts": 64, "neurons": 80}, "weights; expected at most"),
    ],
)
def test_the_open_task_refuses_what_it_cannot_compare(choices, message):
    with pytest.raises(ValueError, match=message):
        budget.attempt(choices)


def test_the_usual_model_is_within_the_budget_and_an_attempt_is_measured(monkeypatch):
    met, weights = budget.priced(budget.USUAL)
    assert 0.9 * budget.BUDGET < 2 * met <= budget.BUDGET
    assert weights <= budget.MOST_WEIGHTS
    monkeypatch.setattr(budget, "SCHEDULE", SHORT)
    made = budget.attempt({"width": 32, "neurons": 16, "weights": "sum to one"})
    assert made.flops < 2 * met
    assert "Yours is +0.000 ± 0.000" in budget.table(made, made).note


def test_the_notebooks_own_run_is_priced_as_an_attempt():
    model = untrained(mixture_configuration(8, 2, **training.SIZES), seed=0)
    made = budget.usual(training.Run(model, (1,), torch.ones(1, 2, 8) / 8, Reading(torch.zeros(3), [])))
    met, weights = budget.priced(budget.USUAL)
    assert (made.flops, made.weights) == (2 * met, weights)
    # two blocks: attention 4 · 96², two experts of 96 neurons 6 · 96², gate 8 · 96, norms 2 · 96; head, last norm
    assert met == 2 * (10 * 96**2 + 8 * 96 + 2 * 96) + 256 * 96 + 96


def test_the_courses_own_answers_serve_the_cells_on_real_activations(generator):
    """As where a student has not solved the exercises: each expert once, and places counted without outputs."""
    experts = routed.experts_from(tiny_model(), 0, 3, noise=0.3)
    tokens = torch.randn(8, experts.width, generator=generator)
    weights = GATE.library(torch.randn(8, 3, generator=generator), 2)
    best, chosen = weights.topk(2, dim=1)
    _, ends, output = DISPATCH.library(tokens, chosen, best, experts.into, experts.out)
    slowly = sum(weights[:, [e]] * experts.one(e, tokens) for e in range(3))
    torch.testing.assert_close(output, slowly, rtol=1e-4, atol=1e-6)  # sums in another order
    assert ends[-1] == 16
    nothing, likeliest = torch.zeros(2, 4, 1), torch.tensor([[0, 0, 0, 1], [2, 1, 0, 2]])
    keep, _ = CAPACITY.library(nothing, nothing, likeliest, nothing[..., 0], 4, 1.0)
    assert keep.tolist() == [[True, False, False, True], [True, True, True, False]]
