"""What the notebook of lesson 10 runs: learning against plain autograd, losses against cross-entropy, and the strip."""

import math

import pytest
import torch
from table_cells import rows as cells
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from course_lib.lessons.common.tables import COLUMNS, load_measured
from course_lib.lessons.compress.drawings import inputs
from course_lib.lessons.compress.figures import live as plots
from course_lib.lessons.compress.live import learning, printed, view
from course_lib.lessons.compress.steps.inputs import NOT_SCORED, targets, with_prompt
from course_lib.prompts.recipe import PromptRecipe, rows_of
from course_lib.prompts.soft import SoftPrompt, fingerprint
from course_lib.prompts.state import NotFinite
from course_lib.prompts.training import train_prompt


@pytest.fixture
def model():
    """A Llama with groups of heads, of awkward sizes, whose weights would learn if they were let."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 41, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=True)).eval()


@pytest.fixture
def texts():
    return torch.randint(0, 41, (6, 7), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def begun():
    return 0.1 * torch.randn(3, 24, generator=torch.Generator().manual_seed(2))


def test_learning_is_adamw_on_the_prompt_by_plain_autograd(model, texts, begun):
    """Without decay, at a rate that falls in a line to nothing; every window once, in an order by lot."""
    got = learning.learn(model, begun, texts, with_prompt, targets, rate=0.01)
    prompt = begun.clone().requires_grad_()
    optimiser, recipe = torch.optim.Adam([prompt], lr=0.01), PromptRecipe(n_steps=3, batch=2, warm_up=0)
    order = [rows_of(6, recipe, step) for step in range(3)]
    assert sorted(torch.cat(order).tolist()) == [*range(6)]
    for step, rows in enumerate(order):
        read = torch.cat([prompt.expand(2, -1, -1), model.get_input_embeddings()(texts[rows]).detach()], dim=1)
        loss = cross_entropy(model(inputs_embeds=read).logits[:, 2:-1].flatten(0, 1), texts[rows].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([prompt], 1.0)
        optimiser.param_groups[0]["lr"] = 0.01 * (3 - step) / 3
        optimiser.step()
        assert got.losses[step] == pytest.approx(loss.item(), rel=1e-5)
        # Adam divides by the size of the gradient: where that is near nothing, rounding decides a part of a step.
        torch.testing.assert_close(got.path[step + 1], prompt.detach(), atol=2e-4, rtol=0)


def test_learning_is_the_librarys_but_for_the_first_token(model, texts, begun):
    """Where the first token has no label either, the student's parts give what hooks give: `train_prompt`."""

    def without_the_first(ids, real, n_prompt):
        labels = targets(ids, real, n_prompt)
        labels[:, n_prompt - 1] = NOT_SCORED
        return labels

    got = learning.learn(model, begun, texts, with_prompt, without_the_first, rate=0.01)
    recipe = PromptRecipe(n_steps=3, batch=2, warm_up=0, rate=0.01)
    wanted = train_prompt(model, SoftPrompt(vectors=begun, table=fingerprint(model)), texts, recipe, progress=False)
    assert got.losses == pytest.approx(wanted.losses, rel=1e-5)
    torch.testing.assert_close(got.last, wanted.prompt.vectors, atol=2e-4, rtol=0)  # as above


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_vectors(model, texts, begun):
    def broken(prompt, text, real):
        vectors, seen, positions = with_prompt(prompt, text, real)
        return vectors * (math.nan if (prompt - begun).norm() > 0 else 1), seen, positions

    with pytest.raises(NotFinite, match="loss of step 2 is nan") as raised:
        learning.learn(model, begun, texts, broken, targets)
    assert bool(raised.value.trained.prompt.vectors.isfinite().all())


def test_learning_moves_no_weight_and_not_where_it_began(model, texts, begun):
    before, kept = {name: weight.clone() for name, weight in model.state_dict().items()}, begun.clone()
    got = learning.learn(model, begun, texts, with_prompt, targets)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert torch.equal(begun, kept)
    assert torch.equal(got.path[0], kept)
    assert not torch.equal(got.last, kept)
    assert len(got.path) == len(got.losses) + 1 == 4


def test_answers_that_no_gradient_passes_learn_alike(model, texts, begun):
    """A student may build the inputs number by number."""

    def by_hand(prompt, text, real):
        vectors, seen, positions = with_prompt(prompt, text, real)
        return torch.tensor(vectors.tolist()), seen, positions

    one, other = (learning.learn(model, begun, texts, put, targets) for put in (with_prompt, by_hand))
    torch.testing.assert_close(one.path, other.path)


def test_losses_at_places_are_zero_at_the_prompt_and_those_of_the_text_behind_it(model, texts, begun):
    found = learning.losses_at_places(model, begun, texts, with_prompt, targets)
    assert found.shape == (6, 3 + 7 - 1)
    assert not found[:, :2].any()
    embedded = model.get_input_embeddings()(texts[:1])
    logits = model(inputs_embeds=torch.cat([begun[None], embedded], dim=1)).logits[0]
    assert found[0, 5].item() == pytest.approx(cross_entropy(logits[5], texts[0, 3]).item(), rel=1e-4)
    alone = learning.losses_alone(model, texts)
    assert alone.shape == (6, 6)
    assert alone[2].mean().item() == pytest.approx(model(texts[2:3], labels=texts[2:3]).loss.item(), rel=1e-5)


def test_a_gain_is_taken_over_the_tokens_that_both_score():
    """Places: a zero of the prompt, the first token, then two that both score: 3 and 1 without, 2 and 1 with."""
    prompted, alone = torch.tensor([[0.0, 9.0, 2.0, 1.0]] * 2), torch.tensor([[3.0, 1.0]] * 2)
    assert printed.gain(prompted, alone).tolist() == [0.5, 0.5]
    said = printed.averaged_zeros(prompted, alone)
    assert f"{math.exp(1.5):.1f}" in said
    assert f"{math.exp(3.0):.1f}" in said
    assert "1 zeros" in said


def test_verdicts_are_paired():
    """A gain of 0.2 in every window against 0.1: clear, however hard the windows are."""
    own, dense = torch.tensor([0.19, 0.2, 0.21, 0.2]), torch.tensor([0.1, 0.11, 0.09, 0.1])
    first, _, second, numbers = printed.claims(own, dense).splitlines()
    assert first.endswith(": holds")
    assert second.endswith(": holds")
    assert numbers.strip().startswith("+0.100 ± 0.0")
    assert "undecided" in printed.claims(own, torch.tensor([0.4, 0.0, 0.3, 0.1]))
    longest = printed.claims(own, torch.tensor([0.9, -0.5, 0.9, -0.4999]))
    assert "even 100 times as many samples" in " ".join(longest.split())
    assert max(map(len, longest.splitlines())) <= COLUMNS


def test_the_table_multiplies_each_models_perplexity_by_the_ratio():
    alone = {"pruned": torch.full((2, 3), math.log(50)), "dense": torch.full((2, 3), math.log(20))}
    table = printed.comparison(alone, [("pruned", "five", 0.9, 0.01), ("dense", "five", torch.tensor(0.5), 0.02)])
    assert cells(table) == [
        ["pruned", "none", "50.0", "–"],
        ["pruned", "five", "45.0", "0.900 ± 0.010"],
        ["dense", "none", "20.0", "–"],
        ["dense", "five", "10.0", "0.500 ± 0.020"],
    ]


def test_the_shapes_of_a_pruned_model(model):
    shapes, others = printed.shapes_of(model)
    assert len(shapes) == 2 * 7
    assert sum(rows * columns for rows, columns, _ in shapes) + others == model.num_parameters()
    assert sum(printed.parts_of(model).values()) == model.num_parameters()


def test_moved_losses_are_those_of_the_committed_run():
    measured = load_measured("compress", "prompts")
    alone, own, moved, dense, dense_own = printed.window_losses(measured, "wanda-50", "gptq-3")
    assert len({len(each) for each in (alone, own, moved, dense, dense_own)}) == 1
    assert dense_own.mean() < dense.mean() < own.mean() < alone.mean()


WORDS = [[(" one", 1.0), ("\ufffd<b>", 0.5)]] * 13


@pytest.fixture
def path():
    return learning.Learned(torch.arange(13.0)[:, None, None].expand(13, 2, 4) + 1, tuple(map(float, range(12))))


def test_without_a_browser_the_whole_strip_stands_with_the_last_step_marked(path, capsys):
    page = view.as_html(path, WORDS, 12)
    assert [page.count(f">{step}</th>") for step in (0, 2, 4, 6, 8, 10, 12)] == [1] * 7
    assert page.count(view.MARKED) == 3  # the head and two vectors
    assert "␣one" in page
    assert "·&lt;b&gt;" in page
    assert "After 12 of 12 steps: 12.00 lengths away" in page
    view.explore(path, WORDS)
    assert "HTML" in capsys.readouterr().out


@pytest.mark.parametrize("step", [0, 1, 5, 12])
def test_every_step_has_its_column(step):
    shown = view.columns(12, step)
    assert step in shown
    assert len(shown) == 7 == len(set(shown))
    assert view.columns(0, 0) == [0]
    assert view.columns(3, 2) == [0, 1, 2, 3]


def test_a_step_that_was_not_taken_is_refused(path):
    with pytest.raises(ValueError, match="expected 0 to 12"):
        view.as_html(path, WORDS, 13)


def test_figures_say_what_they_show():
    assert plots.what_learns({"blocks": 900}, 100).described() == "100 numbers learn, 10.000 % of all"
    rows = [("pruned", "a", 0.9, 0.01), ("pruned", "b", 0.99, 0.01), ("dense", "a", 1.2, 0.01)]
    assert plots.ratios(rows).described() == "1 of 3 prompts lower the perplexity clearly"
    assert "vectors before the text alone" in inputs.idea().described()
