"""Every accessor on a tiny random model of every architecture, and the errors."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from course_lib import models

SIZES = {  # family -> (query heads, key-value heads, head size, linears of a block)
    "llama": (6, 2, 8, 7),
    "mistral": (6, 2, 8, 7),
    "qwen2": (6, 2, 8, 7),
    "qwen3": (6, 2, 12, 7),
    "opt": (6, 6, 8, 6),
    "gpt2": (6, 6, 8, 4),
}


@pytest.fixture(params=SIZES)
def name(request):
    return request.param


def test_the_trunk_gets_the_ids_and_holds_the_blocks(name):
    model, found = models.tiny_model(architecture=name), []
    trunk = models.trunk(model)
    assert all(any(part is block for part in trunk.modules()) for block in models.blocks(model))
    trunk.register_forward_pre_hook(lambda _, args, given: found.extend([*args, *given.values()][:1]), with_kwargs=True)
    ids = torch.arange(3, 8)[None]
    for call in (model, model.base_model):
        call(input_ids=ids)
    assert all(torch.equal(each, ids) for each in found)
    assert len(found) == 2


def test_the_activation_is_named(name):
    expected = {"opt": "relu", "gpt2": "gelu_new"}.get(name, "silu")
    assert models.activation(models.tiny_model(architecture=name)) == expected


def test_a_configuration_without_an_activation_is_refused():
    model = nn.Linear(2, 2)
    model.config = SimpleNamespace(hidden_act=None)
    with pytest.raises(ValueError, match="got a Linear that names no activation as hidden_act or activation_function"):
        models.activation.__wrapped__(model)


def test_parts_have_the_sizes_of_the_configuration(name):
    model = models.tiny_model(architecture=name)
    heads = models.heads(model)
    assert (heads.n_query, heads.n_key_value, heads.size) == SIZES[name][:3]
    assert heads.group == SIZES[name][0] // SIZES[name][1]
    assert len(models.blocks(model)) == 2
    for block in models.blocks(model):
        assert len(models.linears(block)) == SIZES[name][3]
        assert models.n_neurons(block) == 100
    assert models.head(model).weight.shape == (97, 48)
    assert models.final_norm(model).weight.shape == (48,)


def test_every_matrix_of_a_block_is_among_its_linears(name):
    block = models.blocks(models.tiny_model(architecture=name))[0]
    matrices = {id(p) for p in block.parameters() if p.ndim == 2}
    assert matrices == {id(m.weight) for m in models.linears(block).values()}


def test_linears_of_a_group_read_the_same_input_and_weights_map_inputs_to_outputs(name):
    """weight_of(linear) @ x must be what the layer computes, whichever way its family stores the matrix."""
    model = models.tiny_model(architecture=name)
    block = models.blocks(model)[0]
    seen = {}

    def record(layer):
        return lambda module, args, output: seen.update({layer: (args[0], output, module)})

    for layer, module in models.linears(block).items():
        module.register_forward_hook(record(layer))
    with torch.no_grad():
        model(torch.arange(5)[None])
    for group in models.input_groups(block):
        assert all(torch.equal(seen[layer][0], seen[group[0]][0]) for layer in group)
    for inputs, output, module in seen.values():
        bias = module.bias if module.bias is not None else 0.0
        torch.testing.assert_close(inputs @ models.weight_of(module).T + bias, output, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("architecture", ["llama", "opt", "gpt2"])
def test_layers_are_the_linears_of_all_blocks_in_order_with_those_that_read_the_same_input(architecture):
    model = models.tiny_model(architecture=architecture)
    layers = models.layers_of(model)
    assert [(layer.block, layer.part, layer.module) for layer in layers] == [
        (block, part, module) for block in models.blocks(model) for part, module in models.linears(block).items()
    ]
    assert len({layer.name for layer in layers}) == len(layers)
    assert all(layer.name == f"{layer.block_name}.{layer.part}" for layer in layers)
    first, last = layers[0], layers[-1]
    assert (first.block_name, last.block_name) == ("blocks.0", "blocks.1")
    groups = [layer.group for layer in layers if layer.is_first]
    assert [tuple(name.split(".", 2)[2] for name in group) for group in groups] == [
        group for block in models.blocks(model) for group in models.input_groups(block)
    ]
    assert [name for group in groups for name in group] == [layer.name for layer in layers]
    assert all(layer.name in layer.group for layer in layers)


def test_layers_by_block():
    model = models.tiny_model()
    layers = models.layers_of(model)
    layers_in = models.by_block(layers)
    assert list(layers_in) == list(models.blocks(model))
    assert [layer for inside in layers_in.values() for layer in inside] == layers


def test_input_groups_of_llama_share_by_hand():
    block = models.blocks(models.tiny_model())[0]
    assert models.input_groups(block) == (
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        ("self_attn.o_proj",),
        ("mlp.gate_proj", "mlp.up_proj"),
        ("mlp.down_proj",),
    )


def test_weight_view_writes_through(name):
    module = next(iter(models.linears(models.blocks(models.tiny_model(architecture=name))[0]).values()))
    models.weight_of(module).zero_()
    assert module.weight.abs().sum() == 0


def test_tiny_models_are_seeded_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    a, b, c = models.tiny_model(1), models.tiny_model(1), models.tiny_model(2)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(a.lm_head.weight, b.lm_head.weight)
    assert not torch.equal(a.lm_head.weight, c.lm_head.weight)


def test_unknown_architecture_says_what_is_missing():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn = nn.Linear(2, 2)

    class Model(nn.Module):
        def __init__(self, path_holder):
            super().__init__()
            self.model = path_holder

    holder = nn.Module()
    holder.layers = nn.ModuleList([Block()])
    with pytest.raises(ValueError, match=r"type Block.*lacks self_attn.q_proj.*ARCHITECTURES"):
        models.blocks(Model(holder))
    with pytest.raises(ValueError, match=r"got a Linear without a list of blocks at model.layers"):
        models.blocks(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="got architecture 'mamba'; expected one of llama"):
        models.tiny_model(architecture="mamba")


def test_load_model_reads_a_folder(tmp_path, tiny_tokenizer):
    saved = models.tiny_model(3)
    saved.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    model, tokenizer = models.load_model(str(tmp_path), device="cpu")
    assert not model.training
    assert model.dtype == torch.float32
    assert torch.equal(model.lm_head.weight, saved.lm_head.weight)
    assert tokenizer("a b").input_ids == tiny_tokenizer("a b").input_ids


def test_load_model_says_in_one_message_what_to_do_without_a_hub(tmp_path):
    with pytest.raises(ValueError, match=r"got the model name '.*nowhere', which could not be loaded.*smollm2-135m"):
        models.load_model(str(tmp_path / "nowhere"), device="cpu")


@pytest.mark.real
def test_a_part_of_the_default_model_is_its_first_blocks_neurons_and_tokens(real_model):
    whole, tokenizer = real_model
    with models.part_only(models.Part(2, 96)):
        part, short = models.load_model()
    width, n_tokens = models.Part.width, models.Part.n_tokens
    assert (len(models.blocks(part)), part.config.num_hidden_layers, part.config.intermediate_size) == (2, 2, 96)
    assert (part.config.hidden_size, models.heads(part)) == (width, models.heads(whole))
    for mine, theirs in zip(models.blocks(part), models.blocks(whole), strict=False):
        for name in ("q_proj", "k_proj", "v_proj"):
            assert torch.equal(
                mine.self_attn.get_submodule(name).weight, theirs.self_attn.get_submodule(name).weight[:, :width]
            )
        assert torch.equal(mine.self_attn.o_proj.weight, theirs.self_attn.o_proj.weight[:width])
        assert torch.equal(mine.mlp.gate_proj.weight, theirs.mlp.gate_proj.weight[:96, :width])
        assert torch.equal(mine.mlp.up_proj.weight, theirs.mlp.up_proj.weight[:96, :width])
        assert torch.equal(mine.mlp.down_proj.weight, theirs.mlp.down_proj.weight[:width, :96])
        assert torch.equal(mine.input_layernorm.weight, theirs.input_layernorm.weight[:width])
        assert torch.equal(mine.post_attention_layernorm.weight, theirs.post_attention_layernorm.weight[:width])
    assert torch.equal(part.model.norm.weight, whole.model.norm.weight[:width])
    assert len(short) == part.config.vocab_size == n_tokens
    assert torch.equal(part.lm_head.weight, whole.lm_head.weight[:n_tokens, :width])
    assert part.lm_head.weight is part.model.embed_tokens.weight
    assert short("a part of it").input_ids == tokenizer("a part of it").input_ids  # all of them are early ones
    text = "Œuvre: an encyclopædia of sparsity\n\t<|im_end|> 日本"
    assert max(short(text).input_ids) < n_tokens <= max(tokenizer(text).input_ids)
    assert short.decode(short(text).input_ids) == text
    assert part(torch.tensor([short(text).input_ids])).logits.isfinite().all()
    with models.part_only(models.Part(2, 96, width=None)):
        wide, _ = models.load_model()
    assert torch.equal(models.blocks(wide)[0].mlp.up_proj.weight, models.blocks(whole)[0].mlp.up_proj.weight[:96])
    assert wide.config.hidden_size == whole.config.hidden_size


@pytest.mark.real
def test_a_part_that_was_changed_is_loaded_as_it_was():
    with models.part_only(models.Part(2, 96)):
        part, _ = models.load_model()
        before = {name: weight.clone() for name, weight in part.state_dict().items()}
        for weight in part.parameters():
            weight.data.zero_()
        models.blocks(part)[0].register_forward_hook(print)
        del part.model.layers[1]
        part.config.num_hidden_layers = 1
        again, _ = models.load_model()
    assert all(torch.equal(weight, before[name]) for name, weight in again.state_dict().items())
    assert again.state_dict().keys() == before.keys()
    assert again.config.num_hidden_layers == len(models.blocks(again)) == 2
    assert not models.blocks(again)[0]._forward_hooks


@pytest.mark.real
def test_no_part_is_taken_for_another_or_for_the_whole():
    with models.part_only(models.Part(2, 96)):
        models.load_model()
    with models.part_only(models.Part(3, 48)):
        part, _ = models.load_model()
        assert models.load_model(dtype=torch.float16)[0].dtype == torch.float16
    assert (len(models.blocks(part)), models.n_neurons(models.blocks(part)[0])) == (3, 48)
    model, tokenizer = models.load_model()
    assert (len(models.blocks(model)), model.config.vocab_size, len(tokenizer)) == (30, 49152, 49152)
