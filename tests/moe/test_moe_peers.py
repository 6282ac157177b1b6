"""The layer against the modules of transformers, on shared weights. Tolerance 1e-5: float32, sums in another order."""

import pytest
import torch
import transformers
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock
from transformers.models.phimoe.modeling_phimoe import PhimoeSparseMoeBlock
from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersSparseMLP

from course_lib.moe.experts import Experts
from course_lib.moe.layer import MoE
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.sparsemixer_v2 import SparseMixerV2
from course_lib.moe.routers.switch import Switch

SIZES = {"hidden_size": 32, "intermediate_size": 20, "num_experts_per_tok": 2, "num_attention_heads": 4}
X = torch.randn(3, 7, 32, generator=torch.Generator().manual_seed(5))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
ways = pytest.mark.parametrize("way", ["grouped", "expert_loop", "token_loop"])


def filled(module):
    """Random weights, in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def ours(its_experts, gate, router, way, **others):
    experts = Experts(its_experts.gate_up_proj.detach(), its_experts.down_proj.detach())
    return MoE(experts, router, gate.detach(), way=way, **others)


@ways
def test_mixtral(way):
    peer = filled(MixtralSparseMoeBlock(transformers.MixtralConfig(**SIZES, num_local_experts=5)))
    layer = ours(peer.experts, peer.gate.weight, Mixtral(), way)
    torch.testing.assert_close(layer(X)[0], peer(X.clone()), **CLOSE)


@ways
def test_olmoe(way):
    peer = filled(OlmoeSparseMoeBlock(transformers.OlmoeConfig(**SIZES, num_experts=5)))
    layer = ours(peer.experts, peer.gate.weight, OLMoE(k=2), way)
    torch.testing.assert_close(layer(X)[0], peer(X.clone()), **CLOSE)


@ways
def test_phimoe(way):
    peer = filled(PhimoeSparseMoeBlock(transformers.PhimoeConfig(**SIZES, num_local_experts=5)))
    layer = ours(peer.experts, peer.router.weight, SparseMixerV2(eps=peer.router.router_jitter_noise), way)
    torch.testing.assert_close(layer(X)[0], peer(X.clone()), **CLOSE)


@ways
def test_deepseek_with_groups_a_bias_and_a_shared_expert(way):
    groups = {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True}
    sizes = SIZES | {"moe_intermediate_size": 20, "num_experts_per_tok": 3}
    peer = filled(DeepseekV3MoE(transformers.DeepseekV3Config(**sizes, **groups, n_routed_experts=6)))
    bias = peer.gate.e_score_correction_bias.normal_(generator=torch.Generator().manual_seed(1))
    its = peer.shared_experts
    shared = Experts(torch.cat([its.gate_proj.weight, its.up_proj.weight])[None].detach(), its.down_proj.weight[None])
    router = DeepSeek(k=3, n_groups=3, kept_groups=2, scaling=2.5, bias=bias)
    layer = ours(peer.experts, peer.gate.weight, router, way, shared=shared)
    torch.testing.assert_close(layer(X)[0], peer(X.clone()), **CLOSE)


@ways
@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_switch_drops_the_same_tokens(way, capacity):
    """Its capacity is a number of tokens in each sequence: ours is c x 7 / 3."""
    config = transformers.SwitchTransformersConfig(d_model=32, d_ff=20, num_experts=3, expert_capacity=capacity)
    peer = filled(SwitchTransformersSparseMLP(config))
    its = list(peer.experts.values())
    experts = Experts(*(torch.stack([getattr(e, name).weight for e in its]).detach() for name in ("wi", "wo")), "relu")
    layer = MoE(experts, Switch(capacity * 3 / 7), peer.router.classifier.weight.detach(), way=way)
    output, routing = layer(X)
    torch.testing.assert_close(output, peer(X.clone()), **CLOSE)
    assert (routing.n_dropped > 0) == (capacity < 7)
