"""The cache on its kernels: what it reads, remembers and evicts is what the PyTorch code reads, remembers and evicts.

Numbers differ by the order of sums in float32; tokens and kept positions are equal.
"""

from types import SimpleNamespace

import pytest
import torch
from course_lib.kernels.dispatch import kernels
from kernel_device import COMPILED, DEVICE
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.kernels import runtime
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.scissorhands import Scissorhands
from course_lib.kv.policies.snapkv import SnapKV
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.tova import TOVA
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import Observed, ObservedMass
from course_lib.kv.quantized import Quantized
from course_lib.kv.recycled import Recycled, recycling
from course_lib.kv.rotation import RollingSlots
from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import FREE
from course_lib.models import blocks, tiny_model

on_kernels = pytest.mark.skipif(
    not (runtime.INTERPRETED or COMPILED), reason="kernels run on a GPU, or here under TRITON_INTERPRET=1"
)
close = {"rtol": 1e-4, "atol": 1e-5}  # float32: sums in another order, and a sine that is 2^-20 off
IDS = torch.randint(3, 97, (1, 14), generator=torch.Generator().manual_seed(3))


def small_model():
    """Two layers whose tokens look at few others: else all scores would follow from how long a token was there."""
    model = tiny_model()
    for block in blocks(model):
        block.self_attn.q_proj.weight.data *= 20
    return model.to(DEVICE)


@torch.no_grad()
def decoded(model, make, on, n_steps, prompt=IDS):
    """Tokens, logits, and slots in the order of the text, of a prompt and some steps of decoding."""
    with kernels(on), make(model) as cache:
        ids, tokens = prompt.to(DEVICE), []
        for _ in range(n_steps):
            at = torch.arange(cache.get_seq_length(), cache.get_seq_length() + ids.shape[1], device=DEVICE)[None]
            logits = model(ids, past_key_values=cache, position_ids=at, use_cache=True).logits[:, -1:]
            ids = logits.argmax(dim=2)
            tokens.append(ids)
    kept = [slots.position.sort(dim=2) for slots in cache.slots]
    columns = [
        {name: column[:, :, : slots.n].float() for name, column in slots.storage.items() if column.ndim == 3}
        for slots in cache.slots
    ]
    in_order = [
        {name: column.gather(2, by.indices) for name, column in layer.items()}
        for layer, by in zip(columns, kept, strict=True)
    ]
    return torch.cat(tokens, dim=1), logits, [by.values for by in kept], in_order


WAYS = {
    "H2O, normalised": lambda model: evicting(model, H2O(budget=12, recent=4, sinks=1, normalised=True)),
    "H2O, rolling": lambda model: evicting(model, H2O(budget=12, recent=4), positions="rolling"),
    "StreamingLLM, rolling": lambda model: evicting(model, StreamingLLM(budget=12), positions="rolling"),
    "SnapKV": lambda model: evicting(model, SnapKV(budget=12, recent=4)),
    "TOVA": lambda model: evicting(model, TOVA(budget=12)),
    "Scissorhands": lambda model: evicting(model, Scissorhands(budget=12, recent=4, window=8)),
    "4 bits": lambda model: evicting(model, H2O(budget=12, recent=4), vectors=Quantized(group=8, residual=4)),
    "recycled": lambda model: recycling(model, Recycled(budget=8, every=2)),
}
# The interpreter is slow: there, each kernel runs in one of them.
EACH_KERNEL = ("H2O, normalised", "StreamingLLM, rolling", "SnapKV", "4 bits", "recycled")


@on_kernels
@pytest.mark.parametrize("name", WAYS if COMPILED else EACH_KERNEL)
def test_a_model_decodes_the_same_tokens_and_keeps_the_same(name):
    model, recycled = small_model(), name == "recycled"  # whose first step reads what a full step took
    mine, its = (decoded(model, WAYS[name], on, n_steps=2 + recycled) for on in (True, False))
    assert torch.equal(mine[0], its[0])
    torch.testing.assert_close(mine[1], its[1], **close)
    for found, expected in zip(mine[2], its[2], strict=True):
        assert torch.equal(found, expected)
    for found, expected in zip(mine[3], its[3], strict=True):
        assert found.keys() == expected.keys()
        for name in found:
            torch.testing.assert_close(found[name], expected[name], **close)


def slots_of(generator, kind, n_sequences=2, n=37, rotated_from=5):
    """Full slots with memories, from which tokens have left, so that they lie in any order and lags differ."""
    keys, values = torch.randn(2, n_sequences, 2, n + 3, 8, generator=generator).to(DEVICE)
    slots = kind.empty(keys)
    new = NewTokens.unpadded(n + 3, torch.arange(rotated_from, rotated_from + n + 3, device=DEVICE)[None], slots.n_seen)
    slots.append_(keys, values, new)
    score = torch.rand(n_sequences, 2, n + 3, generator=generator).to(DEVICE)
    slots.keep_best_(score, torch.full((n_sequences, 2), n, device=DEVICE))
    memory = {name: torch.rand(n_sequences, 2, n, generator=generator).to(DEVICE) for name in ("mass", "other")}
    return slots.remember_(memory | {"parts": torch.rand(n_sequences, 2, n, 8, generator=generator).to(DEVICE)})


@on_kernels
@pytest.mark.parametrize("kind", [Slots, RollingSlots])
@pytest.mark.parametrize("without", ["", "parts"], ids=["a column for torch", "one launch"])
def test_a_step_in_place_is_that_of_torch(kind, without, generator):
    """A token comes and the lowest leaves: all columns, also behind the slots in use, and at the same addresses."""
    state, found = generator.get_state(), []
    for on in (True, False):
        slots = slots_of(generator.set_state(state), kind)
        slots.storage.pop(without, None)
        key, value = torch.randn(2, 2, 1, 2, 8, generator=generator).to(DEVICE).transpose(2, 3)  # as models give them
        score = torch.rand(2, 2, 38, generator=generator).to(DEVICE)
        score[0, 0, [7, 9]] = -1.0  # of equal ones the first
        with kernels(on):
            slots.append_(key, value, NewTokens.unpadded(1, torch.tensor([[50]], device=DEVICE), slots.n_seen))
            addresses = [slots.n_seen.data_ptr(), *(column.data_ptr() for column in slots.storage.values())]
            slots.drop_lowest_(score, recent=3, sinks=2)
        assert addresses == [slots.n_seen.data_ptr(), *(column.data_ptr() for column in slots.storage.values())]
        found.append(slots)
    mine, its = found
    assert mine.n == its.n == 37
    assert torch.equal(mine.n_seen, its.n_seen)
    for name, column in mine.storage.items():
        assert torch.equal(column[:, :, :37], its.storage[name][:, :, :37]), name


@on_kernels
@pytest.mark.parametrize("n_slots", [1, 16, 70])
def test_scores_that_are_all_protected_lose_the_first_slot(n_slots):
    slots = Slots.empty(torch.ones(1, 1, 1, 4, device=DEVICE))
    vectors = torch.arange(4.0 * n_slots, device=DEVICE).view(1, 1, n_slots, 4)
    slots.append_(vectors, vectors, NewTokens.unpadded(n_slots, None, slots.n_seen))
    with kernels(True):
        slots.drop_lowest_(torch.rand(1, 1, n_slots, device=DEVICE), recent=n_slots)
    assert slots.n == n_slots - 1
    assert slots.position.flatten().tolist() == [n_slots - 1, *range(1, n_slots - 1)][: n_slots - 1]


@on_kernels
@pytest.mark.parametrize(("bits", "group", "residual"), [(4, 8, 5), (8, 4, 3), (4, 24, 0)])
def test_few_bits_are_packed_and_unpacked_as_in_torch(bits, group, residual, generator):
    """Groups of 24 stay in torch. Slots in any order, with FREE ones and room for more, in bfloat16."""
    at, found = torch.randn(2, 2, 20, 24, generator=generator).to(DEVICE, torch.bfloat16), []
    valid = torch.arange(19, device=DEVICE)[None] >= torch.tensor([[0], [6]], device=DEVICE)
    new = at[:, :, 19:].transpose(1, 2).contiguous().transpose(1, 2)  # strides as models give them
    for on in (True, False):
        slots = Slots.empty(at, Quantized(bits=bits, group=group, residual=residual))
        with kernels(on):
            slots.append_(at[:, :, :19], -at[:, :, :19], NewTokens.of(valid))
            slots.append_(new, -new, NewTokens.unpadded(1, None, slots.n_seen))
            found.append((slots.keys, slots.values, slots.storage))
    (*mine, my_storage), (*its, its_storage) = found
    for name, column in my_storage.items():
        assert torch.equal(column[:, :, :20], its_storage[name][:, :, :20]), name
    for got, expected in zip(mine, its, strict=True):
        torch.testing.assert_close(got, expected, rtol=2.0**-7, atol=0)  # one product and sum, rounded once or twice


class WithoutWaiting(TorchDispatchMode):
    """Refuses what makes the host wait for the device, and copies from one to the other, which no graph can hold."""

    WAIT = ("_local_scalar_dense", "nonzero", "masked_select", "aten::equal", "is_nonzero", "unique")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(name in func.name() for name in self.WAIT), f"{func.name()} waits for the device"
        result = func(*args, **(kwargs or {}))
        if "copy" in func.name():
            devices = {tensor.device for tensor in (*args, result) if isinstance(tensor, torch.Tensor)}
            assert len(devices) <= 1, f"{func.name()} copies between host and device"
        return result


STEADY = {
    "Full": (lambda model: evicting(model, Full()), 1),
    "SnapKV": (lambda model: evicting(model, SnapKV(budget=12, recent=4)), 1),
    "Window": (lambda model: evicting(model, Window(budget=12)), 0),
    "StreamingLLM": (lambda model: evicting(model, StreamingLLM(budget=12)), 0),
    "H2O": (lambda model: evicting(model, H2O(budget=12, recent=4)), 0),
    "TOVA": (lambda model: evicting(model, TOVA(budget=12)), 0),
    "recycled": (lambda model: recycling(model, Recycled(budget=8, every=50)), 0),
}
ON_A_GPU = {  # their PyTorch code waits, and their kernels do not
    "StreamingLLM, rolling": (lambda model: evicting(model, StreamingLLM(budget=12), positions="rolling"), 0),
    "4 bits": (
        lambda model: evicting(model, H2O(budget=12, recent=4), vectors=Quantized(group=8, residual=4)),
        0,
    ),
}


def addresses(cache):
    columns = [column.data_ptr() for slots in cache.stores for column in slots.storage.values()]
    rings = [ring.data_ptr() for slots in cache.stores if slots.ring for ring in slots.ring.vectors.values()]
    return [*columns, *rings, *(slots.n_seen.data_ptr() for slots in cache.stores)]


@pytest.mark.parametrize("name", [*STEADY, *(ON_A_GPU if COMPILED else ())])
@torch.no_grad()
def test_a_step_in_full_slots_waits_for_nothing_and_stays_where_it_is(name):
    """Hence a CUDA graph can hold it. Where nothing leaves, each step has one slot more."""
    make, growth = (STEADY | ON_A_GPU)[name]
    model = small_model()
    with make(model) as cache:
        keys, values = torch.randn(2, 2, 2, 12, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
        cache.fill_(keys, values)
        token, at = torch.full((2, 1), 5, device=DEVICE), torch.full((2, 1), 12, device=DEVICE)
        for _ in range(3):  # a full step of recycled attention, room for one more slot, and memories
            model(token, past_key_values=cache, position_ids=at, use_cache=True)
        before, n_before = addresses(cache), [slots.n for slots in cache.slots]
        with WithoutWaiting():
            for _ in range(2):
                model(token, past_key_values=cache, position_ids=at, use_cache=True)
        assert addresses(cache) == before
        assert [slots.n - n for slots, n in zip(cache.slots, n_before, strict=True)] == [2 * growth] * 2
        assert cache.slots[0].n_seen.tolist() == [17, 17]
        n_evicted = cache.n_evicted
        cache.count_replayed(3)
        assert cache.get_seq_length() == 20
        assert cache.n_evicted - n_evicted == (6 if name not in ("Full", "SnapKV", "recycled") else 0)


@pytest.mark.skipif(not COMPILED, reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("name", [*STEADY, *ON_A_GPU])
@torch.no_grad()
def test_a_graph_replays_the_steps(name):
    """The logits of three replays are those of three steps, with the same tokens."""
    make, growth = (STEADY | ON_A_GPU)[name]
    model, logits = small_model(), []
    keys, values = torch.randn(2, 2, 2, 12, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    for replays in (True, False):
        with make(model) as cache:
            cache.fill_(keys, values)
            token, at = torch.full((2, 1), 5, device=DEVICE), torch.full((2, 1), 12, device=DEVICE)

            def step(cache=cache, token=token, at=at):
                return model(token, past_key_values=cache, position_ids=at, use_cache=True).logits

            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(stream)
            n_steps = 1 if growth else 3  # a graph repeats the step at one length
            if replays:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    output = step()
            for i in range(n_steps):
                token.fill_(7 + i), at.fill_(15 + i)
                graph.replay() if replays else None
                logits.append(output.clone() if replays else step())
    torch.testing.assert_close(
        torch.stack(logits[: len(logits) // 2]), torch.stack(logits[len(logits) // 2 :]), **close
    )


def test_what_a_kernel_observes_is_what_the_weights_say(generator):
    weights = torch.rand(2, 2, 3, 1, 9, generator=generator)
    position, last, asked = torch.tensor([[8], [8]]), torch.tensor([8, 8]), []
    explicit = Observed(weights, position, last)
    mass = ObservedMass(weights.sum(dim=(2, 3)), 3, position, last, lambda: asked.append(1) or weights)
    for name in ("by_query", "received", "mean_received", "newest_of_all_heads"):
        torch.testing.assert_close(getattr(mass, name), getattr(explicit, name))
    assert mass.n_groups == explicit.n_groups == 3
    assert mass.is_first
    assert not asked
    assert mass.weights is mass.weights is weights
    assert asked == [1]


@on_kernels
def test_a_policy_that_asks_for_the_weights_gets_them(generator):
    """In a step of decoding, in a prompt, and where there are FREE slots."""
    model = small_model()

    class Curious(H2O):
        def remember(self, slots, seen):
            found.append(SimpleNamespace(weights=seen.weights, received=seen.received, n=slots.n))
            torch.testing.assert_close(seen.received, seen.weights.sum(dim=(2, 3)), **close)
            return super().remember(slots, seen)

    found = []
    decoded(model, lambda model: evicting(model, Curious(budget=7, recent=3)), True, n_steps=2, prompt=IDS[:, :9])
    assert [tuple(seen.weights.shape[2:]) for seen in found] == [(3, 9, 9)] * 2 + [(3, 1, 8)] * 2


@on_kernels
@pytest.mark.parametrize("rolling", [False, True] if COMPILED else [False])
def test_free_slots_are_not_read(rolling):
    """Heads that keep fewer tokens than others."""
    model, settings = small_model(), H2O(budget=12, recent=2, by_head=(1.0, 0.5))
    positions = "rolling" if rolling else "original"
    mine, its = (decoded(model, lambda m: evicting(m, settings, positions), on, n_steps=2) for on in (True, False))
    torch.testing.assert_close(mine[1], its[1], **close)
    for found, expected in zip(mine[2], its[2], strict=True):
        assert torch.equal(found, expected)
        assert (found == FREE).any()
