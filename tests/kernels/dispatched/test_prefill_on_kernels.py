"""Sparse prefill on its kernels: the same blocks, and the same outputs, as with the PyTorch code.

Outputs differ by the order of sums in float32. So do the sums by which blocks are chosen; no two of these inputs' sums
are so close that this chooses another block.
"""

import pytest
import torch
from course_lib.kernels.cache import block_sparse_prefill, line_masses, prefill_index, smallest_set
from course_lib.kernels.dispatch import kernels
from kernel_device import COMPILED, DEVICE

from course_lib.attention.prefill import cumulative
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.baselines import RandomBlocks, SinkAndWindow, VerticalSlash
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.index import dense_index
from course_lib.kernels import runtime
from course_lib.models import tiny_model

pytestmark = pytest.mark.skipif(
    not (runtime.INTERPRETED or COMPILED), reason="kernels run on a GPU, or here under TRITON_INTERPRET=1"
)
close = {"rtol": 1e-4, "atol": 1e-5}  # float32: sums in another order
BLOCK = 16
RULES = [
    FlexPrefill(block_size=BLOCK, gamma=0.7, tau=1.0, min_budget=16),  # all heads choose blocks
    FlexPrefill(block_size=BLOCK, gamma=0.7, tau=0.0, min_budget=16),  # all heads choose lines
    SinkAndWindow(block_size=BLOCK, density=0.5),
    VerticalSlash(block_size=BLOCK, density=0.6),
    RandomBlocks(block_size=BLOCK, density=0.5),
]
EACH_KERNEL = [rule for rule in RULES if isinstance(rule, FlexPrefill | VerticalSlash)]  # the interpreter is slow
each_rule = pytest.mark.parametrize(
    "rule",
    RULES if COMPILED else EACH_KERNEL,
    ids=lambda rule: f"{type(rule).__name__}-{getattr(rule, 'tau', '')}",
)


@pytest.fixture
def calls(monkeypatch):
    """How often each kernel was launched."""
    made = {}
    modules = {"block_sparse_prefill": block_sparse_prefill, "line_masses": line_masses, "smallest_set": smallest_set}
    for name, module in modules.items():

        def counted(*arguments, launch=module.launch, name=name):
            made[name] = made.get(name, 0) + 1
            return launch(*arguments)

        monkeypatch.setattr(module, "launch", counted)
    return made


@pytest.fixture
def sorted_sets(monkeypatch):
    """The interpreter takes a second for the smallest set of one row, so that only its own test runs this kernel."""
    if runtime.INTERPRETED:
        monkeypatch.setattr(smallest_set, "takes", lambda *tensors: False)


@torch.no_grad()
def prefilled(rule, on, mask=None):
    ids = torch.randint(3, 97, (1 if mask is None else 2, 37), generator=torch.Generator().manual_seed(1))
    model = tiny_model().to(DEVICE)
    mask = None if mask is None else mask.to(DEVICE)
    with kernels(on), prefilling(model, rule) as watch:
        return model(ids.to(DEVICE), attention_mask=mask).logits, watch


@each_rule
@pytest.mark.usefixtures("sorted_sets")
def test_prompts_are_read_with_the_kernels_as_without(rule, calls):
    logits, watch = prefilled(rule, on=True)
    assert calls.pop("block_sparse_prefill") == 2  # layers
    assert bool(calls) == isinstance(rule, FlexPrefill | VerticalSlash)
    calls.clear()
    expected, expected_watch = prefilled(rule, on=False)
    assert not calls
    torch.testing.assert_close(logits, expected, **close)
    for name in ("density", "coverage", "query_aware"):
        torch.testing.assert_close(getattr(watch, name), getattr(expected_watch, name), **close)
    assert watch.density.device.type == "cpu"


@pytest.mark.usefixtures("sorted_sets")
def test_padding_on_either_side_is_left_out(calls):
    mask = torch.ones(2, 37, dtype=torch.long)
    mask[0, :2], mask[1, 35:] = 0, 0
    logits, _ = prefilled(RULES[2], on=True, mask=mask)
    assert calls["block_sparse_prefill"] == 4  # layers times texts
    expected, _ = prefilled(RULES[2], on=False, mask=mask)
    real = mask.bool()
    torch.testing.assert_close(logits.cpu()[real], expected.cpu()[real], **close)


def test_the_heads_of_a_transposed_text_and_a_ragged_block(generator):
    """As transformers hands them over: (tokens, heads, size) seen from the side."""
    query, keys, values = (torch.randn(37, n, 16, generator=generator).to(DEVICE).transpose(0, 1) for n in (4, 2, 2))
    index = RULES[-1].index(query, keys, 0.25)
    with kernels(True):
        got = block_sparse_attention(query, keys, values, index, 0.25)
    with kernels(False):
        torch.testing.assert_close(got, block_sparse_attention(query, keys, values, index, 0.25), **close)


def test_a_scaling_that_turns_the_order_of_logits_around_goes_to_pytorch(generator, calls):
    """The kernel finds the largest logit before it scales."""
    query, keys, values = (torch.randn(2, 37, 16, generator=generator).to(DEVICE) for _ in range(3))
    index = RULES[-1].index(query, keys, 0.25)
    with kernels(True):
        block_sparse_attention(query, keys, values, index, -0.25)
    assert not calls


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_smallest_sets_are_those_of_sorting(share, generator):
    mass = torch.rand(1, 2, 40, generator=generator).to(DEVICE)
    always = (torch.rand(1, 2, 40, generator=generator) < 0.1).to(DEVICE)
    with kernels(True):
        got = cumulative.smallest_set(mass, share, 4, always)
    with kernels(False):
        assert torch.equal(got, cumulative.smallest_set(mass, share, 4, always))


@pytest.mark.parametrize("n_tokens", [80, 76], ids=["whole", "ragged"])
@pytest.mark.parametrize("tau", [0.0, 0.16, 5.0])
@pytest.mark.usefixtures("sorted_sets")
def test_heads_choose_with_the_kernels_as_without(tau, n_tokens, generator, monkeypatch):
    """Heads of both kinds where τ lies between their distances. Sums are in another order: none is at the limit."""
    query = torch.randn(4, n_tokens, 16, generator=generator)
    query *= torch.tensor([0.1, 1, 3, 5])[:, None, None]  # the means say less about sharp attention
    keys = torch.randn(2, n_tokens, 16, generator=generator).to(DEVICE)
    query, decided = query.to(DEVICE), []
    rule = FlexPrefill(block_size=BLOCK, gamma=0.7, tau=tau, min_budget=16)
    judge = prefill_index.aware_heads
    monkeypatch.setattr(prefill_index, "aware_heads", lambda *a: decided.append(judge(*a)) or decided[-1])
    with kernels(True):
        got = rule.index(query, keys, 0.25)
    with kernels(False):
        expected = rule.index(query, keys, 0.25)
    assert len(decided) == 1, "the kernel decides, once"
    assert torch.equal(got.query_aware, expected.query_aware)
    assert torch.equal(got.reads, expected.reads)
    assert tau != 0.16 or 0 < got.query_aware.sum() < 4


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.usefixtures("sorted_sets")
def test_what_is_no_number_is_refused_as_without_kernels(which, broken, generator):
    text = [torch.randn(2, 80, 16, generator=generator).to(DEVICE) for _ in range(2)]
    text[which][1, 3, 5] = broken
    with kernels(True), pytest.raises(ValueError, match="queries and keys of which 1 of 5120 values"):
        RULES[0].index(*text, 0.25)


def test_lists_are_those_of_sorting(generator):
    n = 5
    reads = (torch.rand(3, n, n, generator=generator) < 0.5).tril() | torch.eye(n, dtype=torch.bool)
    reads[0] = dense_index(1, n * BLOCK, BLOCK).reads[0]
    index = RULES[-1].index(*torch.randn(2, 3, n * BLOCK, 16, generator=generator), 0.25)
    index = type(index)(reads.to(DEVICE), n * BLOCK, BLOCK)
    with kernels(True):
        columns, counts = index.lists()
    with kernels(False):
        expected, expected_counts = index.lists()
    assert torch.equal(counts, expected_counts)
    assert columns.dtype == counts.dtype == torch.int32
    listed = torch.arange(n, device=columns.device) < counts[:, :, None]
    assert torch.equal(columns[listed], expected[:, :, :n][listed[:, :, : expected.shape[2]]])
