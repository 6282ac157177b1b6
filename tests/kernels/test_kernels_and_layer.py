"""The two kernels of a layer with experts compute what the library's layer computes, from the same weights."""

import pytest
import torch
from course_lib.kernels.experts import grouped_matmul, router_topk
from kernel_device import on_device

from course_lib.moe.layer import random_layer
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE

route, multiply = on_device(router_topk.launch), on_device(grouped_matmul.launch)
# Tokens, experts, k: below a tile; k = 1; k = E; a prime number of experts, most without tokens.
SHAPES = [(3, 4, 2), (21, 5, 1), (9, 3, 3), (6, 13, 2)]


@pytest.mark.parametrize("slow", [False, True], ids=["launched", "reference"])
@pytest.mark.parametrize("renormalise", [True, False], ids=["Mixtral", "OLMoE"])
@pytest.mark.parametrize(("n_tokens", "n_experts", "k"), SHAPES)
def test_the_layer(n_tokens, n_experts, k, renormalise, slow, generator):
    layer = random_layer(24, 40, n_experts, Mixtral(k) if renormalise else OLMoE(k), generator)
    for weight in (layer.experts.into, layer.experts.out, layer.gate):
        weight.data *= 10  # outputs of about one, so that an error would show
    x = torch.randn(n_tokens, 24, generator=generator)
    with torch.no_grad():
        expected, routing = layer(x)
        choose, compute = (router_topk.reference, grouped_matmul.reference) if slow else (route, multiply)
        routed = choose(routing.logits, k, "chosen" if renormalise else "all")
        into, out = layer.experts.into.detach(), layer.experts.out.detach()
        found = compute(x, into, out, routed.weight, routed.order, routed.offsets)
    assert routed.loads().tolist() == routing.chosen.sum(0).tolist()
    of_experts = torch.zeros(n_tokens, n_experts).scatter(1, routed.expert.long(), routed.weight)
    torch.testing.assert_close(of_experts, routing.weights, rtol=1e-5, atol=1e-6)  # exp of two libraries
    size = expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * size)  # float32 sums of 40 in another order


def test_equal_logits_go_to_the_same_experts():
    logits = torch.zeros(5, 6)
    logits[2, 4:] = 1.0
    routed, routing = route(logits, 3), Mixtral(3).route(logits)
    assert torch.zeros(5, 6).scatter(1, routed.expert.long(), 1.0).bool().equal(routing.chosen)
