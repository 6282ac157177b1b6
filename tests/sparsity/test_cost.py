"""Cost: published figures, torch's own FLOP counter, real caches, and the roofline by hand."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.measure.roofline import (
    A100,
    GB,
    GIB,
    H100,
    H200,
    LLAMA2_7B,
    LLAMA2_70B,
    Device,
    Transformer,
    Work,
    linear_work,
    weight_memory,
)
from course_lib.models import blocks, head, linears, tiny_model, weight_of

TOY = Device("toy", flops_per_second=100.0, bytes_per_second=10.0, source="made up")


def test_a_7b_model_takes_28_gb_in_float32():
    assert weight_memory(7e9, 4) == 28 * GB
    assert LLAMA2_7B.n_weights == 6_738_415_616  # the real count is under 7e9, so the real model takes 26.95 GB
    assert weight_memory(LLAMA2_7B.n_weights, 4) / GB == pytest.approx(26.95, abs=0.005)


def test_llama_2_70b_takes_140_gb_and_a_cache_of_160_gib():
    assert weight_memory(70e9, 2) == 140 * GB
    assert LLAMA2_70B.n_weights == 68_976_648_192
    cache = LLAMA2_70B.cache_bytes(8192, batch=64)
    assert cache == 160 * GIB  # exactly, and 171.8 GB: the two halves of "140 GB + 160 GB" are in different units
    assert cache == 171_798_691_840
    assert weight_memory(LLAMA2_70B.n_weights, 2) / GIB == pytest.approx(128.5, abs=0.05)


def test_a_7b_cache_grows_by_100_mib_every_100_tokens_in_float32():
    assert LLAMA2_7B.cache_bytes(100, value_bytes=4) == 100 * 2**20


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen3"])
def test_sizes_are_read_off_a_model(architecture):
    model = tiny_model(architecture=architecture)
    shape = Transformer.of(model)
    matrices = [weight_of(linear) for block in blocks(model) for linear in linears(block).values()]
    assert shape.n_blocks * shape.block_weights == sum(matrix.numel() for matrix in matrices)
    assert shape.matrix_weights == shape.n_blocks * shape.block_weights + head(model).weight.numel()
    extra = shape.n_blocks * 2 * shape.head_size if architecture == "qwen3" else 0  # norms of queries and keys
    assert sum(p.numel() for p in model.parameters()) == shape.n_weights + extra


@pytest.mark.parametrize("architecture", ["opt", "gpt2"])
def test_a_model_without_a_gated_mlp_is_refused(architecture):
    with pytest.raises(ValueError, match="Llama-like"):
        Transformer.of(tiny_model(architecture=architecture))


def counted(model, **arguments):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        out = model(**arguments)
    # Some versions of transformers compute the angles of RoPE as a matrix product, which torch counts.
    modules = counter.get_flop_counts().items()
    angles = sum(sum(flops.values()) for name, flops in modules if name.endswith("rotary_emb"))
    return counter.get_total_flops() - angles, out


@pytest.mark.parametrize("batch", [1, 3])
def test_decode_flops_equal_torchs_count(batch):
    model = tiny_model()
    model.set_attn_implementation("eager")
    tokens = torch.arange(batch * 18).reshape(batch, 18) % 97
    _, out = counted(model, input_ids=tokens[:, :17], use_cache=True)
    flops, _ = counted(model, input_ids=tokens[:, 17:], past_key_values=out.past_key_values, use_cache=True)
    shape = Transformer.of(model)
    assert flops == shape.decode_step(context=17, batch=batch).flops


def test_prefill_flops_equal_torchs_count_but_for_the_half_above_the_diagonal():
    model, n = tiny_model(), 19
    model.set_attn_implementation("eager")  # computes all N^2 scores, then hides those above the diagonal
    flops, _ = counted(model, input_ids=torch.arange(n)[None], logits_to_keep=1, use_cache=True)
    shape = Transformer.of(model)
    hidden = shape.attention_flops(n * n - n * (n + 1) // 2)
    assert flops - hidden == shape.prefill(n).flops


def test_cache_bytes_equal_a_real_cache():
    model = tiny_model()
    _, out = counted(model, input_ids=torch.arange(2 * 7).reshape(2, 7), use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.layers)
    assert held == Transformer.of(model).cache_bytes(7, batch=2, value_bytes=4)


def test_decode_bytes_by_hand():
    # one block: query and output 2 * 4 * 4, key and value 2 * 4 * 2, MLP 3 * 4 * 5; head 7 * 4
    shape = Transformer(1, 4, 2, 1, 2, 5, 7)
    assert shape.block_weights == 32 + 16 + 60
    assert shape.matrix_weights == 108 + 28
    assert shape.n_weights == 136 + 3 * 4 + 28
    assert Transformer(1, 4, 2, 1, 2, 5, 7, tied=True).n_weights == 136 + 3 * 4
    step = shape.decode_step(context=9, batch=3)
    assert step.bytes == 136 * 2 + 3 * (2 * 1 * 2 * 2) * 10
    assert step.flops == 3 * (2 * 136 + 4 * 2 * 2 * 10)
    assert shape.decode_step(9, 3, weight_bytes=100).bytes == 100 + 240


def test_roofline_by_hand():
    assert TOY.ridge == 10
    slow_memory, slow_compute = Work(flops=50, bytes=20), Work(flops=500, bytes=20)
    assert (slow_memory.intensity, slow_memory.bound(TOY), slow_memory.seconds(TOY)) == (2.5, "memory", 2.0)
    assert (slow_compute.intensity, slow_compute.bound(TOY), slow_compute.seconds(TOY)) == (25, "compute", 5.0)
    assert slow_memory + slow_compute == Work(550, 40)


def test_a_linear_layer_by_hand():
    assert linear_work(3, 5, n_tokens=2, value_bytes=4) == Work(2 * 15 * 2, 15 * 4 + 2 * 8 * 4)
    assert linear_work(3, 5, 1, 4, n_stored=6, weight_bytes=50) == Work(12, 50 + 32)


def test_decoding_is_bound_by_memory_and_a_long_prompt_by_compute():
    for device in (A100, H100, H200):
        assert LLAMA2_70B.decode_step(8192).bound(device) == "memory"
        assert LLAMA2_70B.prefill(8192).bound(device) == "compute"


@pytest.mark.parametrize("rates", [(0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_a_device_without_speed_is_refused(rates):
    with pytest.raises(ValueError, match="expected a number above 0"):
        Device("broken", *rates, source="none")
