"""Prompts read once and compressed to many budgets, for every policy there is."""

import pytest
import torch
from transformers import LlamaForCausalLM

from course_lib.data.needles import Sample
from course_lib.kv.analysis.compressed_prompts import compressions, continuation_losses, retrieve_each
from course_lib.kv.analysis.retrieval import read, retrieve
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.window import Window
from course_lib.kv.quantized import Quantized
from course_lib.kv.vectors import FULL_PRECISION
from course_lib.lessons.kv.experiments import settings
from course_lib.models import blocks, tiny_model, weight_of

IDS = torch.randint(3, 97, (3, 60), generator=torch.Generator().manual_seed(5))
BUDGETS = (8, 16)


@pytest.fixture(scope="module")
def model():
    """Four layers, because D2O spares the first two and the last; attention that matters."""
    config = tiny_model().config
    config.num_hidden_layers = 4
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    for block in blocks(model):
        for name, factor in (("q_proj", 6), ("k_proj", 6), ("o_proj", 100)):
            weight_of(block.get_submodule(f"self_attn.{name}")).mul_(factor)
    return model


def losses_of(model, ids, policy, positions, vectors):
    """The plain way: a fresh cache, the prompt, then the rest in chunks."""
    found = []
    with torch.no_grad(), evicting(model, policy, positions, vectors) as cache:
        read(model, ids[:, :40], cache)
        for start in range(40, 59, 16):
            end = min(start + 16, 59)
            logits = model(ids[:, start:end], past_key_values=cache, use_cache=True).logits
            found.append(-logits.log_softmax(dim=2).gather(2, ids[:, start + 1 : end + 1, None])[..., 0])
        return torch.cat(found, dim=1).double().mean(dim=1), cache.bytes_held


@pytest.mark.parametrize(
    ("name", "vectors"),
    [(name, FULL_PRECISION) for name in settings.names()] + [("Scissorhands", Quantized(group=8, residual=4))],
    ids=[*settings.names(), "Scissorhands in 4 bits"],
)
def test_a_shared_prompt_is_as_good_as_one_of_its_own(model, name, vectors):
    positions = settings.positions(name)
    policies = settings.with_budgets(name, BUDGETS)
    found = continuation_losses(model, IDS, 40, policies, positions, vectors)
    assert [each.policy for each, _ in found] == policies
    for policy, (each, losses) in zip(policies, found, strict=True):
        expected, _ = losses_of(model, IDS, policy, positions, vectors)
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
        assert each.bytes_held > 0
    assert (found[0][1] - found[1][1]).abs().max() > 1e-3


def test_the_whole_cache_gives_the_models_own_losses(model):
    ((each, losses),) = continuation_losses(model, IDS, 40, [Full()])
    with torch.no_grad():
        log_prob = model(IDS).logits[:, 40:-1].log_softmax(dim=2)
    expected = -log_prob.gather(2, IDS[:, 41:, None])[..., 0].double().mean(dim=1)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert each.bytes_held == 2 * 4 * 3 * 2 * 40 * 8 * 4


def test_answers_are_those_of_a_prompt_of_its_own(model):
    asked = [Sample(text[:40], (text[40:44],), (text[44:46],), (0.5,)) for text in IDS.repeat(5, 1)]
    for sample in asked:  # answers that the whole cache gives, so that something can be right
        said = model.generate(sample.prompt[None], max_new_tokens=2, do_sample=False, eos_token_id=None)[0, -2:]
        sample.answers[0].copy_(said)
    policies = settings.with_budgets("H2O", BUDGETS)
    found = retrieve_each(model, asked, policies)
    assert found == [retrieve(model, asked, policy) for policy in policies]
    assert 0 < found[1].exact < 1


def test_every_budget_starts_from_the_whole_prompt(model):
    with torch.no_grad(), evicting(model, Window(1.0)) as cache:
        read(model, IDS, cache)
        for each in compressions(cache, [Window(5), Window(50), Window(5)]):
            assert {slots.n for slots in cache.slots} == {each.policy.budget}
            assert cache.get_seq_length() == 60
            read(model, IDS[:, :3], cache)
            assert cache.get_seq_length() == 63


def test_settings_fit_the_budget_and_name_every_policy():
    assert {"D2O", "EMS", "H2O", "Scissorhands", "SnapKV", "StreamingLLM", "TOVA", "Window"} <= set(settings.names())
    for name in settings.names():
        small, large = settings.with_budgets(name, (6, 256))
        assert (small.budget, large.budget) == (6, 256)
        assert small.sinks + small.recent < 6
    assert [each.recent for each in settings.with_budgets("H2O", (50, 100))] == [25, 50]
    assert [each.recent for each in settings.with_budgets("SnapKV", (50, 1000))] == [25, 25]
    assert settings.with_budgets("SnapKV", (1000,))[0].recent == 64
    assert settings.with_budgets("StreamingLLM", (100,))[0].sinks == 4
    with pytest.raises(ValueError, match="got policy 'Quest'; expected one of D2O"):
        settings.with_budgets("Quest", (10,))
