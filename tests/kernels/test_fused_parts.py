"""A Llama with fused parts computes what transformers' does, in a step and in a prompt, and is restored afterwards."""

import torch
from course_lib.kernels.timing.contest import Place, relative_error
from course_lib.kernels.timing.fused_parts import fused_parts
from course_lib.kernels.timing.random_llama import TINY, random_llama
from kernel_device import DEVICE
from transformers import DynamicCache
from transformers.models.llama import modeling_llama

from course_lib.kernels import runtime


@torch.no_grad()
def test_fused_parts_compute_the_same(monkeypatch):
    """In float32, whose sums differ by rounding alone; steps go through the kernels where there are any."""
    place = Place(torch.device(DEVICE), torch.float32, True, torch.Generator().manual_seed(0))
    model = random_llama(TINY, place)
    lengths, plain = [], modeling_llama.apply_rotary_pos_emb

    def turn(query, *others):
        lengths.append(query.shape[2])
        return plain(query, *others)

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", turn)
    ids = torch.arange(24, device=DEVICE).view(2, 12)
    kinds = [type(module) for module in model.modules()]

    def logits():
        cache = DynamicCache(config=model.config)
        prompt = model(ids[:, :11], past_key_values=cache, use_cache=True).logits
        position = torch.full((2, 1), 11, device=DEVICE)
        step = model(ids[:, 11:], past_key_values=cache, use_cache=True, position_ids=position).logits
        return torch.cat([prompt, step], dim=1)

    expected = logits()
    lengths.clear()
    with fused_parts(model):
        assert sum(isinstance(module, torch.nn.RMSNorm) for module in model.modules()) == 2 * TINY.n_blocks + 1
        got = logits()
    assert set(lengths) == ({11} if runtime.mode() in ("interpreted", "compiled") else {11, 1})
    assert relative_error(got, expected) < 1e-5
    assert [type(module) for module in model.modules()] == kinds
    assert modeling_llama.apply_rotary_pos_emb is turn
    assert torch.equal(logits(), expected)
