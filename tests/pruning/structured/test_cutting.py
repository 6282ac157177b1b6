"""A cut model is the old one without what left: against zeroed weights, after saving, with a cache, and in numbers."""

import copy
from dataclasses import asdict, replace

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, GemmaConfig, LlamaConfig

from course_lib.attention.small_models.byte_model import untrained
from course_lib.models import architecture, blocks, heads, tiny_model
from course_lib.pruning.structured.activations import observe
from course_lib.pruning.structured.choice import Kept, Scores, choose, everything
from course_lib.pruning.structured.parts import parameters_of
from course_lib.pruning.structured.search import possible
from course_lib.pruning.structured.shape import Shape, count, n_parameters, shape_of
from course_lib.pruning.structured.surgery import cut, take

FREE = ("llama", "mistral", "qwen2", "qwen3")  # heads and width may change
FAMILIES = (*FREE, "opt", "gpt2")
TOKENS = torch.arange(5, 30)[None] % 97


def smaller(family):
    """A target that this family can have, of awkward sizes."""
    if family in FREE:
        return Shape(width=40, blocks=1, neurons=73, heads=4, groups=2)
    return Shape(width=48, blocks=1, neurons=73, heads=6, groups=6)


def model_of(family):
    """Biases and norms are drawn too: ones and zeros would hide that they were not cut."""
    model, generator = tiny_model(architecture=family), torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def random_scores(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = asdict(shape)
    within = {kind: (shape.blocks, sizes[kind]) for kind in ("neurons", "heads", "groups")}
    return Scores(
        **{
            kind: torch.rand(within.get(kind, (sizes[kind],)), generator=generator)
            for kind in ("neurons", "heads", "groups", "width", "blocks")
        }
    )


def logits(model):
    with torch.no_grad():
        return model(TOKENS, use_cache=False).logits


def without(model, kept):
    """The slow twin: the whole model, with zeros where something leaves and without the blocks that do."""
    model = copy.deepcopy(model)
    size = heads(model).size
    for index, block in enumerate(blocks(model)):
        kind = architecture(block)
        output, down = (block.get_submodule(path) for path in (kind.attention[-1], kind.mlp[-1]))
        # GPT-2 stores inputs first.
        into = {module: (module.weight.data.T if kind.fused else module.weight.data) for module in (output, down)}
        group = heads(model).group
        stays = {int(h) for h in kept.heads[index] if int(h) // group in kept.groups[index].tolist()}
        for head in set(range(heads(model).n_query)) - stays:
            into[output][:, head * size : (head + 1) * size] = 0
        for neuron in set(range(into[down].shape[1])) - set(kept.neurons[index].tolist()):
            into[down][:, neuron] = 0
    whole = blocks(model)
    for index in reversed(range(len(whole))):
        if index not in kept.blocks.tolist():
            del whole[index]
    model.config.num_hidden_layers = len(whole)
    return model


def index_sets(n, least=1):
    return st.lists(st.integers(0, n - 1), min_size=least, max_size=n, unique=True).map(sorted)


@settings(max_examples=12, deadline=None)
@given(data=st.data(), family=st.sampled_from(FAMILIES))
def test_cutting_is_leaving_out(data, family):
    model = model_of(family)
    shape = shape_of(model)
    n_neurons = data.draw(st.integers(1, shape.neurons))
    neurons = [sorted(data.draw(st.permutations(range(shape.neurons)))[:n_neurons]) for _ in range(2)]
    n_groups, each = shape.groups, 1
    if family in FREE:
        n_groups, each = data.draw(st.sampled_from([(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]))
    groups = [sorted(data.draw(st.permutations(range(shape.groups)))[:n_groups]) for _ in range(2)]
    size = shape.heads // shape.groups
    chosen = [
        [group * size + h for group in row for h in sorted(data.draw(st.permutations(range(size)))[:each])]
        for row in groups
    ]
    kept = Kept(
        blocks=torch.tensor(data.draw(index_sets(shape.blocks))),
        width=torch.arange(shape.width),
        neurons=torch.tensor(neurons),
        heads=torch.tensor(chosen),
        groups=torch.tensor(groups),
    )
    # Sums in another order, in float32, of logits of size 1.
    torch.testing.assert_close(logits(take(model, kept)), logits(without(model, kept)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FREE)
def test_width_that_holds_nothing_leaves_without_a_trace_if_the_norm_makes_up_for_it(family):
    model = model_of(family)
    silent = torch.tensor([3, 5, 17, 18, 31, 47])
    for parameter in parameters_of(model):
        if "norm" not in parameter.name and (parameter.axes[0] == "width" or parameter.axes == (None, "width")):
            parameter.tensor.data.index_fill_(parameter.axes.index("width"), silent, 0)
    scores = Scores(width=torch.ones(48).index_fill_(0, silent, 0))
    before, target = logits(model), replace(shape_of(model), width=42)
    torch.testing.assert_close(logits(cut(model, target, scores)), before, atol=1e-5, rtol=0)
    plain = (logits(cut(model, target, scores, rescale=False)) - before).abs().max()
    assert plain > 1e-3  # √(48/42) = 1.07: seven per cent, not rounding


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cut_model_is_saved_loaded_and_asked_like_any_other(family, tmp_path):
    model = model_of(family)
    small = cut(model, smaller(family), random_scores(shape_of(model)))
    assert type(small) is type(model)
    assert shape_of(small) == smaller(family)
    small.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(loaded), logits(small))
    assert type(loaded) is type(model)
    settings = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    with_cache, without_cache = (loaded.generate(TOKENS, use_cache=use, **settings) for use in (True, False))
    assert with_cache.shape == (1, 33)
    assert torch.equal(with_cache, without_cache)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_old_model_and_the_random_numbers_stay_as_they_were(family):
    model = model_of(family)
    before, state = logits(model), copy.deepcopy(model.state_dict())
    config = model.config.to_dict()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    small = cut(model, smaller(family), random_scores(shape_of(model)))
    assert torch.equal(torch.rand(3), expected)
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.zero_()
    assert torch.equal(logits(model), before)
    assert model.config.to_dict() == config
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_as_predicted(family):
    model = model_of(family)
    for target in (shape_of(model), smaller(family), replace(smaller(family), blocks=2, neurons=1)):
        small = cut(model, target, random_scores(shape_of(model)))
        assert n_parameters(model, target) == sum(parameter.numel() for parameter in small.parameters())


def test_a_count_by_hand():
    # 7 words of 4 channels; 2 blocks of q 4x6 (2 heads of 3), k and v 4x3 each, o 6x4, and three MLP matrices 4x5.
    sizes = count(Shape(width=4, blocks=2, neurons=5, heads=2, groups=1), vocabulary=7, head_size=3)
    assert sizes == {"embedding": 28, "attention": 2 * (24 + 12 + 12 + 24), "mlp": 2 * 60, "head": 0}


@pytest.mark.parametrize(
    ("width", "neurons", "n_heads", "groups", "billions"),
    [(6144, 24576, 48, 8, 15.6), (4096, 16384, 32, 32, 8.5), (4096, 16384, 48, 8, 8.27), (3072, 9216, 24, 8, 4.19)],
)
def test_published_sizes_follow_from_published_shapes(width, neurons, n_heads, groups, billions):
    """Nemotron-4 15B, Nemotron-3 8B, Minitron 8B and 4B: two MLP matrices, heads of 128, a head of its own."""
    shape = Shape(width=width, blocks=32, neurons=neurons, heads=n_heads, groups=groups)
    sizes = count(shape, vocabulary=256_000, head_size=128, mlp_matrices=2, tied=False)
    digits = len(str(billions).split(".")[1])
    assert round(sum(sizes.values()) / 1e9, digits) == billions


def test_what_is_said_block_by_block_leaves_with_its_block():
    model = model_of("qwen3")
    model.config.layer_types = ["full_attention", "sliding_attention"]
    kept = replace(everything(shape_of(model)), blocks=torch.tensor([1]))
    assert take(model, kept).config.layer_types == ["sliding_attention"]


def test_other_sizes_of_numbers_stay():
    model = model_of("llama").to(torch.bfloat16)
    small = cut(model, smaller("llama"), random_scores(shape_of(model)))
    assert {parameter.dtype for parameter in small.parameters()} == {torch.bfloat16}


REFUSED = {
    "opt has no heads of a size of their own": ("opt", {"heads": 4, "groups": 4}, "always width / heads wide"),
    "gpt2 has none either": ("gpt2", {"heads": 4, "groups": 4}, "always width / heads wide"),
    "LayerNorm subtracts a mean": ("opt", {"width": 42}, "subtracts the mean"),
    "also that of gpt2": ("gpt2", {"width": 42}, "subtracts the mean"),
    "more than there is": ("llama", {"neurons": 101}, "got 101 neurons to keep; the model has 100"),
    "more blocks": ("llama", {"blocks": 3}, "got 3 blocks to keep; the model has 2"),
    "wider groups": ("llama", {"heads": 4, "groups": 1}, "at most 3 heads"),
    "no multiple of the heads": ("llama", {"width": 40}, "with 6 heads.*Use 36"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_is_refused_in_words(reason):
    family, change, words = REFUSED[reason]
    model = model_of(family)
    target = replace(shape_of(model), **change)
    with pytest.raises(ValueError, match=words):
        cut(model, target, random_scores(shape_of(model)))


def test_widths_on_both_sides_are_offered_at_the_sizes_of_smollm2():
    """512 is no multiple of 9; 513 is one, but its rows end in the middle of 16 bytes."""
    sizes = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 4}
    config = LlamaConfig(**sizes, num_hidden_layers=1, intermediate_size=8, vocab_size=11)
    model = AutoModelForCausalLM.from_config(config).eval()
    shape = shape_of(model)
    with pytest.raises(
        ValueError, match=r"got width 512 with 9 heads; .*though a head's size is given\. Use 504 or 540"
    ):
        cut(model, replace(shape, width=512), random_scores(shape))
    for width in (504, 540):
        assert shape_of(cut(model, replace(shape, width=width), random_scores(shape))).width == width


@pytest.mark.parametrize("change", [{"groups": 0}, {"heads": 5}, {"neurons": -1}, {"blocks": True}])
def test_no_such_shape(change):
    with pytest.raises(ValueError, match="expected"):
        replace(shape_of(tiny_model()), **change)


@pytest.mark.parametrize(
    "scores", [Scores(), Scores(neurons=torch.zeros(2, 99)), Scores(neurons=torch.full((2, 100), torch.nan))]
)
def test_scores_that_do_not_say_which_leave(scores):
    model = tiny_model()
    with pytest.raises(ValueError, match=r"of neurons; to keep 50 of 100, finite scores of shape \(2, 100\)"):
        cut(model, replace(shape_of(model), neurons=50), scores)


def test_a_norm_that_adds_one_to_its_weight_keeps_its_width():
    """Gemma's: the factor would be wrong, and nothing would say so."""
    config = GemmaConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
        intermediate_size=100, vocab_size=97, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    shape = shape_of(model)
    with pytest.raises(ValueError, match="does not multiply by its weight as RMSNorm does"):
        cut(model, replace(shape, width=42), random_scores(shape))
    kept = choose(random_scores(shape), shape, replace(shape, neurons=73, heads=4))
    torch.testing.assert_close(logits(take(model, kept)), logits(without(model, kept)), atol=1e-5, rtol=1e-5)


SIZES = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
SIZES |= {"intermediate_size": 100, "vocab_size": 97, "pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}


def look_alike(family, **settings):
    """A family that has Llama's names, with norms and biases that change what they read."""
    model = untrained(getattr(transformers, f"{family}Config")(**(SIZES | settings)), 0).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize(
    ("family", "settings"), [("StableLm", {}), ("StableLm", {"use_qkv_bias": True}), ("Olmo", {"head_dim": 8})]
)
@pytest.mark.parametrize("change", [{"neurons": 73}, {"blocks": 1}, {}, {"heads": 4}])
def test_families_without_an_rms_norm_are_cut_or_refused_by_name(family, settings, change):
    model = look_alike(family, **settings)
    shape = shape_of(model)
    kept = choose(random_scores(shape), shape, replace(shape, **change))
    if family == "StableLm" and change == {"heads": 4}:  # whose attention divides the width by the heads
        with pytest.raises(ValueError, match="StableLmForCausalLM, in which a head is always width / heads wide"):
            take(model, kept)
        return
    torch.testing.assert_close(logits(take(model, kept)), logits(without(model, kept)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("family", "words"), [("StableLm", "subtracts the mean"), ("Olmo", "not multiply by its weight")]
)
def test_families_without_an_rms_norm_keep_their_width(family, words):
    model = look_alike(family)
    with pytest.raises(ValueError, match=f"got width 42 for a {family}ForCausalLM.*{words}"):
        cut(model, replace(shape_of(model), width=42), random_scores(shape_of(model)))


@pytest.mark.parametrize("family", ["Mistral", "Qwen2", "Qwen3", "Gemma", "Granite", "SmolLM3"])
def test_heads_need_not_divide_the_width_where_the_family_takes_that(family, tmp_path):
    """Five heads of 8 in a width of 48: only LlamaConfig wants a multiple."""
    model = look_alike(family, num_key_value_heads=1, head_dim=8)
    shape = shape_of(model)
    kept = choose(random_scores(shape), shape, replace(shape, heads=5))
    small = take(model, kept)
    torch.testing.assert_close(logits(small), logits(without(model, kept)), atol=1e-5, rtol=0)
    small.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(loaded), logits(small))
    assert loaded.generate(TOKENS, max_new_tokens=3, do_sample=False, eos_token_id=None).shape == (1, 28)


def test_qwen2_may_lose_a_head_of_each_group_and_search_finds_that():
    """As Qwen2-0.5B, of 14 heads in 2 groups: 12 do not divide the width."""
    model = look_alike("Qwen2", hidden_size=56, num_attention_heads=14)
    assert possible(model, replace(shape_of(model), heads=12))
    llama = look_alike("Llama", hidden_size=56, num_attention_heads=14, head_dim=4)
    assert not possible(llama, replace(shape_of(llama), heads=12))


@pytest.mark.parametrize("epsilon", [1e-2, 1e-6])
@pytest.mark.parametrize("has_bias", [False, True])
def test_norms_of_queries_and_keys_do_not_follow_the_width(epsilon, has_bias, tmp_path):
    """Width that holds nothing leaves without a trace, also where one ε is set for norms of two kinds."""
    model = look_alike("Qwen3", head_dim=8, rms_norm_eps=epsilon, attention_bias=has_bias)
    silent = torch.arange(30, 48)
    for parameter in parameters_of(model):
        if "layernorm" not in parameter.name and "width" in parameter.axes:
            parameter.tensor.data.index_fill_(parameter.axes.index("width"), silent, 0)
    scores = Scores(width=torch.ones(48).index_fill_(0, silent, 0))
    small = cut(model, replace(shape_of(model), width=30), scores)
    torch.testing.assert_close(logits(small), logits(model), atol=1e-5, rtol=0)
    small.save_pretrained(tmp_path)
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path).eval()), logits(small))


def test_a_model_without_a_norm_after_its_blocks_is_refused_by_name():
    """As opt-350m, whose blocks have their norms after attention and MLP."""
    sizes = {key: value for key, value in SIZES.items() if key not in ("num_key_value_heads", "intermediate_size")}
    config = transformers.OPTConfig(**sizes, ffn_dim=100, word_embed_proj_dim=24, do_layer_norm_before=False)
    model = untrained(config, 0).eval()
    for call in (
        lambda: take(model, replace(everything(shape_of(model)), blocks=torch.tensor([1]))),
        lambda: observe(model, TOKENS, progress=False),
        lambda: n_parameters(model, shape_of(model)),
    ):
        with pytest.raises(ValueError, match="got a OPTForCausalLM without a norm after its last block.*opt-350m"):
            call()


def test_a_model_without_weights_is_refused():
    model = tiny_model().to("meta")
    with pytest.raises(ValueError, match="meta device, which has no weights"):
        take(model, everything(shape_of(model)))


def test_a_norm_over_all_heads_is_not_taken_for_one_of_each():
    model = tiny_model(architecture="qwen3")
    model.model.layers[0].self_attn.q_norm.weight = torch.nn.Parameter(torch.ones(72))
    with pytest.raises(ValueError, match=r"q_norm\.weight of shape \(72,\)"):
        cut(model, replace(shape_of(model), heads=4), random_scores(shape_of(model)))


def test_a_parameter_that_no_part_knows_is_named():
    model = tiny_model()
    model.model.layers[0].mlp.extra = torch.nn.Linear(48, 3)
    with pytest.raises(ValueError, match=r"layers\.0\.mlp\.extra\.weight"):
        cut(model, replace(shape_of(model), neurons=50), random_scores(shape_of(model)))


def tensors_of(module):
    """Every tensor of a module, whether it is registered or only an attribute."""
    return [*module._parameters.values(), *module._buffers.values(), *vars(module).values()]


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_without_values_and_nothing_is_drawn(family):
    model = tiny_model(architecture=family)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    student = cut(model, replace(shape_of(model), neurons=50), random_scores(shape_of(model)))
    assert torch.equal(torch.rand(1), expected)
    tensors = [each for module in student.modules() for each in tensors_of(module) if isinstance(each, torch.Tensor)]
    assert {each.device.type for each in tensors} == {"cpu"}
    theirs = {each.data_ptr() for each in model.parameters()} | {each.data_ptr() for each in model.buffers()}
    assert not theirs & {each.data_ptr() for each in tensors if each.numel()}  # the model is not touched later either
