"""The layer of experts with kernels on and off: outputs, routing, losses, padding; what keeps PyTorch code."""

import pytest
import torch
from course_lib.kernels.dispatch import kernels
from course_lib.kernels.experts import grouped_matmul, pair_matmul, router_topk
from kernel_device import COMPILED, DEVICE
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib import discover
from course_lib.kernels import runtime
from course_lib.moe import losses, routers
from course_lib.moe.by_kernels import WEIGHTS
from course_lib.moe.experts import Experts, random_experts
from course_lib.moe.layer import MoE
from course_lib.moe.routed import DecidedRouting, Routing, joined
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.gshard import GShard
from course_lib.moe.routers.hash_layers import Hash
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.moefied import MoEfied
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch
from course_lib.moe.routing import Router

pytestmark = pytest.mark.skipif(
    runtime.mode() == "reference", reason="without a GPU, kernels run under TRITON_INTERPRET=1 only"
)
WIDTH, NEURONS, N_EXPERTS = 24, 20, 5
FEW, MANY = 3, 21  # tokens, by pairs and by tiles
CHOOSING = [
    Mixtral(2), Mixtral(1), OLMoE(3), MoEfied(2), NoisyTopK(2), Switch(capacity_factor=None),
    GShard(capacity_factor=None), DeepSeek(2, scaling=2.5), DeepSeek(2, bias=torch.tensor([0.0, 0.4, -0.3, 0.2, 0.1])),
]  # fmt: skip
# Many tokens take other kernels for the products, but the same to choose experts.
CASES = [(each, FEW) for each in CHOOSING] + [(each, MANY) for each in (CHOOSING if COMPILED else CHOOSING[:1])]
OTHERS = [Switch(), GShard(), DeepSeek(2, n_groups=5, kept_groups=2)]
TABLES = ("logits", "weights", "probs", "chosen", "keep", "real")
# Sums of 24 and 20 numbers in another order, in float32; of the experts' outputs as well.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def made(router, generator, **settings):
    layer = MoE(random_experts(N_EXPERTS, WIDTH, NEURONS, std=0.3, generator=generator), router, **settings)
    layer.gate.data = 0.3 * torch.randn(N_EXPERTS, WIDTH, generator=generator)
    if isinstance(router, DeepSeek) and router.bias is not None:
        object.__setattr__(router, "bias", router.bias.to(DEVICE))
    return layer.requires_grad_(False).to(DEVICE)


def tokens(generator, *shape):
    return torch.randn(*shape, WIDTH, generator=generator).to(DEVICE)


def both(layer, x, **more):
    """The layer's results with kernels and without."""
    with kernels(True):
        on = layer(x, **more)
    with kernels(False):
        return on, layer(x, **more)


def assert_same(on, off):
    torch.testing.assert_close(on[0], off[0], **CLOSE)
    for name in TABLES:
        torch.testing.assert_close(getattr(on[1], name), getattr(off[1], name), **CLOSE)
    assert on[1].sent is None


def assert_pytorch_code(on, off):
    """Close, not equal: on a GPU, its sums by token are made in the order of arrival."""
    assert type(on[1]) is Routing
    torch.testing.assert_close(on[0], off[0], **CLOSE)


@pytest.fixture
def no_kernels(monkeypatch):
    """Inside, every call of a kernel fails."""

    def called(*arguments, **named):
        raise AssertionError("a kernel was called")

    for module in (pair_matmul, grouped_matmul, router_topk):
        monkeypatch.setattr(module, "run", called)


@pytest.mark.parametrize(("router", "n_tokens"), CASES, ids=repr)
def test_kernels_and_pytorch_give_the_same(router, n_tokens, generator):
    on, off = both(made(router, generator), tokens(generator, n_tokens))
    assert type(on[1]) is DecidedRouting
    assert type(off[1]) is Routing
    assert_same(on, off)


@pytest.mark.parametrize("router", OTHERS, ids=repr)
def test_routers_that_drop_or_look_at_groups_keep_pytorch_code(router, generator, no_kernels):
    assert_pytorch_code(*both(made(router, generator), tokens(generator, MANY)))


def test_every_router_is_either_known_to_the_kernel_or_keeps_pytorch_code(generator, no_kernels):
    assert {type(router) for router in CHOOSING} == set(WEIGHTS)
    rest = set(discover.subclasses(routers, Router)) - set(WEIGHTS)
    assert {"Hash", "ExpertChoice", "SparseMixer", "SparseMixerV2"} <= {router.__name__ for router in rest}
    ids = torch.arange(MANY, device=DEVICE)
    for router in rest:
        layer, more = made(router(), generator), {"ids": ids} if router is Hash else {}
        assert_pytorch_code(*both(layer, tokens(generator, MANY), **more))


def test_a_router_made_from_another_keeps_pytorch_code(generator, no_kernels):
    class Worst(Mixtral):
        def _route(self, logits, given):
            return super()._route(-logits, given)

    assert_pytorch_code(*both(made(Worst(2), generator), tokens(generator, FEW)))


def test_sequences_with_padding_and_a_shared_expert(generator):
    """Rows of padding hold NaN, and their outputs are those of the shared expert alone, which are NaN."""
    layer = made(Mixtral(2), generator)
    x, real = tokens(generator, 2, 7), torch.ones(2, 7, dtype=torch.bool, device=DEVICE)
    real[0, 5:], x[0, 5:] = False, torch.nan
    on, off = both(layer, x, real=real)
    assert type(on[1]) is DecidedRouting
    assert on[0][0, 5:].eq(0).all()
    assert_same(on, off)
    shared = random_experts(1, WIDTH, NEURONS, std=0.3, generator=generator).to(DEVICE)
    layer.shared = shared.requires_grad_(False)
    assert_same(*both(layer, tokens(generator, 2, 7)))


def test_losses_and_loads_read_the_tables(generator):
    (_, on), (_, off) = both(made(OLMoE(2), generator), tokens(generator, MANY))
    for loss in (
        lambda each: losses.importance(each.weights),
        lambda each: losses.balance(each.probs, each.chosen),
        lambda each: losses.z_loss(each.logits, each.real),
        lambda each: each.load,
    ):
        torch.testing.assert_close(loss(on), loss(off), **CLOSE)
    assert on.n_dropped == 0
    assert len(joined([on, off]).weights) == 2 * MANY


def test_a_routing_without_padding_can_be_made_from_a_decided_one(generator):
    (_, on), (_, off) = both(made(Mixtral(2), generator), tokens(generator, FEW))
    padding = torch.tensor([True, False, False], device=DEVICE)
    for name in TABLES:
        torch.testing.assert_close(getattr(on.without(padding), name), getattr(off.without(padding), name), **CLOSE)


def test_tables_are_built_when_they_are_read(generator):
    with kernels(True):
        routing = made(Mixtral(2), generator)(tokens(generator, FEW))[1]
    assert not set(TABLES) & set(vars(routing))
    assert routing.weights is routing.weights


@pytest.mark.parametrize("case", ["gradient", "other way", "training", "relu", "bias", "autocast", "strides"])
def test_what_the_kernels_cannot_do_runs_pytorch_code(case, generator):
    layer, x, more = made(Mixtral(2), generator), tokens(generator, FEW), {}
    if case == "gradient":
        layer.experts.into.requires_grad_()
    if case == "other way":
        layer.way = "expert_loop"
    if case == "training":
        more["generator"] = torch.Generator(DEVICE)
    if case == "relu":
        layer.experts = random_experts(N_EXPERTS, WIDTH, NEURONS, "relu").requires_grad_(False).to(DEVICE)
    if case == "bias":
        bias = torch.ones(N_EXPERTS, 2 * NEURONS, device=DEVICE)
        layer.experts = Experts(layer.experts.into, layer.experts.out, bias=bias).requires_grad_(False)
    if case == "strides":
        layer.gate.data = layer.gate.data.T.contiguous().T
    with kernels(True), torch.autocast(DEVICE, torch.bfloat16, enabled=case == "autocast"):
        assert type(layer(x, **more)[1]) is Routing


def test_without_gradients_weights_that_could_have_one_run_kernels(generator):
    layer = made(Mixtral(2), generator).requires_grad_()
    with kernels(True), torch.inference_mode():
        assert type(layer(tokens(generator, FEW))[1]) is DecidedRouting


class Forbidden(TorchDispatchMode):
    """Fails where the host would wait for numbers of the GPU."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "item", "equal", "_to_copy", "unique", "bincount")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if any(name.startswith(each) for each in self.WAITS):
            raise AssertionError(f"{name} waits for the GPU")
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("n_tokens", [FEW, MANY])
def test_the_host_never_waits(n_tokens, generator, monkeypatch):
    """Interpreted kernels read numbers themselves, so what launches them is watched without them."""
    layer, x = made(DeepSeek(2, bias=torch.zeros(N_EXPERTS)), generator), tokens(generator, n_tokens)
    real = torch.ones(n_tokens, dtype=torch.bool, device=DEVICE)
    if runtime.INTERPRETED:
        for module in (pair_matmul, grouped_matmul, router_topk):
            for name in [name for name, value in vars(module).items() if hasattr(value, "run")]:
                monkeypatch.setattr(module, name, Nothing())
    with kernels(True):
        layer(x, real=real)  # tunes and compiles, where there is something to
        with Forbidden():
            layer(x)
            layer(x, real=real)
    with kernels(False), Forbidden(), pytest.raises(AssertionError, match="waits"):
        layer(x)


class Nothing:
    """Stands for a kernel that does nothing."""

    def __getitem__(self, grid):
        return lambda *arguments, **named: None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records graphs")
@pytest.mark.parametrize("n_tokens", [FEW, MANY])
def test_a_graph_records_the_layer(n_tokens, generator):
    layer, x = made(Mixtral(2), generator), tokens(generator, n_tokens)
    with torch.inference_mode():
        expected, graph = layer(x)[0], torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = layer(x)[0]
        output.zero_()
        graph.replay()
    assert torch.equal(output, expected)
