"""Upcycling: the mixture computes what the model computed, is a Mixtral to all, and learns once copies differ."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    MixtralForCausalLM,
)

from course_lib.measure.perplexity import perplexity
from course_lib.models import MIXTRAL, blocks, n_active_neurons, n_neurons, tiny_model
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.upcycling.copies import Difference, copies
from course_lib.moe.upcycling.mixtral import upcycled
from course_lib.moe.upcycling.mixture import mixture_blocks
from course_lib.moe.upcycling.swapping import layer_of, routed_by

IDS = torch.randint(3, 97, (2, 11), generator=torch.Generator().manual_seed(0))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # of logits of size one, float32


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_copies_with_weights_of_one_compute_what_the_model_computes(family, k):
    model = tiny_model(architecture=family)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mixture = upcycled(model, k=k, generator=seeded())
    torch.testing.assert_close(mixture(IDS).logits, model(IDS).logits, **CLOSE)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_its_perplexity_is_the_model_s():
    """Through the tools that every model goes through, which have to size their batches by the experts."""
    model = tiny_model()
    mixture = upcycled(model, generator=seeded())
    assert n_active_neurons(mixture) == 2 * n_active_neurons(model) == 200
    values = [perplexity(each, IDS, progress=False).value for each in (model, mixture)]
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_it_is_saved_as_a_mixtral_that_from_pretrained_loads(tmp_path):
    model = tiny_model()
    mixture = upcycled(model, generator=seeded())
    mixture.save_pretrained(tmp_path)
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(loaded, MixtralForCausalLM)
    assert not any(info.values())
    torch.testing.assert_close(loaded(IDS).logits, model(IDS).logits, **CLOSE)
    assert torch.equal(loaded(IDS).logits, mixture(IDS).logits)
    asked = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    assert torch.equal(loaded.generate(IDS, **asked), model.generate(IDS, **asked))


def test_another_router_over_the_same_experts_and_back():
    """Probabilities that are not renormalised shrink every MLP: the output is another one."""
    model = tiny_model()
    mixture = upcycled(model, generator=seeded())
    own = [block.mlp for block in mixture_blocks(mixture)]
    with routed_by(mixture, Mixtral()) as seen:
        torch.testing.assert_close(mixture(IDS).logits, model(IDS).logits, **CLOSE)
    assert [[routing.keep.shape for routing in block] for block in seen] == [[(22, 4)]] * 2
    with routed_by(mixture, OLMoE(k=2)):
        assert (mixture(IDS).logits - model(IDS).logits).abs().max() > 1e-2
    assert [block.mlp for block in mixture_blocks(mixture)] == own
    with pytest.raises(RuntimeError, match="inside"), routed_by(mixture, Mixtral()):
        raise RuntimeError("inside")
    assert [block.mlp for block in mixture_blocks(mixture)] == own


def test_the_layer_shares_the_model_s_weights():
    block = mixture_blocks(upcycled(tiny_model(), generator=seeded()))[0]
    layer = layer_of(block, Mixtral())
    x = torch.randn(1, 4, 48, generator=seeded(1))
    torch.testing.assert_close(layer(x)[0], block.mlp(x.clone()), **CLOSE)
    layer(x)[0].sum().backward()
    assert block.get_parameter(MIXTRAL.out).grad.abs().max() > 0


def gate_gradient(mixture):
    """The largest, of the next tokens' loss."""
    mixture(IDS, labels=IDS).loss.backward()
    return max(float(block.get_parameter(MIXTRAL.gate).grad.abs().max()) for block in mixture_blocks(mixture))


def test_identical_experts_give_the_gate_no_gradient_and_different_ones_do():
    """In theory zero; float32 leaves 1e-8 of terms of size one that cancel."""
    model = tiny_model()
    alike = gate_gradient(upcycled(model, generator=seeded()))
    noisy = gate_gradient(upcycled(model, difference=Difference(noise=0.5), generator=seeded()))
    redrawn = gate_gradient(upcycled(model, difference=Difference(redrawn=0.5), generator=seeded()))
    assert alike < 1e-7
    assert noisy > 100 * alike
    assert redrawn > 100 * alike


def test_without_renormalising_the_gate_of_identical_experts_learns():
    mixture = upcycled(tiny_model(), generator=seeded())
    with routed_by(mixture, OLMoE(k=2)):
        mixture(IDS, labels=IDS).loss.backward()
    assert mixture_blocks(mixture)[0].get_parameter(MIXTRAL.gate).grad.abs().max() > 1e-6


def test_noise_is_relative_to_the_matrix_and_differs_by_expert():
    block = blocks(tiny_model())[0]
    into, out = copies(block, 3, Difference(noise=0.1), seeded())
    gate = block.mlp.gate_proj.weight
    differences = into[:, : len(gate)] - gate
    assert float(differences.std() / gate.std()) == pytest.approx(0.1, rel=0.05)  # of 14 400 numbers
    assert not torch.equal(into[0], into[1])
    assert float((out - block.mlp.down_proj.weight).std() / block.mlp.down_proj.weight.std()) == pytest.approx(
        0.1, rel=0.05
    )


def test_a_neuron_is_drawn_anew_in_all_three_matrices_or_in_none():
    block, n = blocks(tiny_model())[0], 100
    assert n_neurons(block) == n
    into, out = copies(block, 4, Difference(redrawn=0.25), seeded())
    mlp, chosen = block.mlp, []
    for expert in range(4):
        gate, up = (into[expert, :n] != mlp.gate_proj.weight), (into[expert, n:] != mlp.up_proj.weight)
        down = out[expert] != mlp.down_proj.weight
        assert gate.any(1).sum() == 25
        assert torch.equal(gate.all(1), gate.any(1))
        assert torch.equal(gate.any(1), up.any(1))
        assert torch.equal(gate.any(1), down.all(0))
        chosen.append(gate.any(1))
    assert not torch.equal(chosen[0], chosen[1])
    redrawn = into[:, :n][torch.stack(chosen)]
    assert float(redrawn.std() / mlp.gate_proj.weight.std()) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [("opt", "OPT, whose MLP has no gate"), ("gpt2", "GPT-2, whose MLP has no gate"), ("qwen2", "q_proj.bias")],
)
def test_a_dense_model_that_mixtral_cannot_express_is_refused_by_name(architecture, message):
    with pytest.raises(ValueError, match=message):
        upcycled(tiny_model(architecture=architecture))


def test_a_model_with_a_llama_s_names_that_computes_something_else_is_refused():
    """Gemma's norms multiply by 1 + w."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 11, "head_dim": 8}
    gemma = GemmaForCausalLM(GemmaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1))
    with pytest.raises(ValueError, match="got a GemmaForCausalLM, whose copies in a Mixtral give logits that are off"):
        upcycled(gemma)


def test_half_precision_stays_what_it_is():
    model = tiny_model().bfloat16()
    mixture = upcycled(model, generator=seeded())
    assert mixture.dtype == torch.bfloat16
    torch.testing.assert_close(mixture(IDS).logits, model(IDS).logits, rtol=0.05, atol=0.02)  # roundings of 2^-8


def test_a_model_of_unknown_architecture_is_refused_by_name():
    bloom = BloomForCausalLM(BloomConfig(hidden_size=8, n_head=2, n_layer=1, vocab_size=11))
    with pytest.raises(ValueError, match="got a block of type BloomBlock that fits no known family"):
        upcycled(bloom)
    with pytest.raises(ValueError, match="got a LlamaForCausalLM, which has no mlp.experts"):
        mixture_blocks(tiny_model())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 5}, "got k = 5 of 4 experts"),
        ({"n_experts": 1}, "got n_experts 1; expected a whole number, 2 or more"),
        ({"k": 0}, "got k 0"),
    ],
)
def test_bad_counts_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        upcycled(tiny_model(), **settings)


@pytest.mark.parametrize("settings", [{"noise": -0.1}, {"redrawn": 1.5}, {"redrawn": float("nan")}])
def test_bad_differences_are_refused(settings):
    with pytest.raises(ValueError, match=f"got {next(iter(settings))}"):
        Difference(**settings)
