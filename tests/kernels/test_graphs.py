"""Steps recorded as CUDA graphs, with a fake torch.cuda: the order of what is done, and what stays in memory."""

import gc
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from course_lib.kernels.bench.end_to_end import chosen_neurons
from course_lib.kernels.timing import graphs
from course_lib.kernels.timing.contest import Place
from course_lib.kernels.timing.graphs import WARM_UPS, NotCapturable, captured
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.kernels import runtime

CPU = torch.device("cpu")


def test_without_a_gpu_a_step_is_called_as_it_is():
    ran = []
    step = lambda: ran.append(1)  # noqa: E731
    assert captured(step, CPU) is step
    assert len(ran) == WARM_UPS


@pytest.fixture
def fake_gpu(monkeypatch):
    """Enough of torch.cuda for a graph: a log of what is done, and a step that may wait for the GPU."""
    log = []

    @contextmanager
    def block(name, *arguments, **named):
        log.append(name)
        yield

    class Graph:
        def replay(self):
            log.append("replay")

    stream = SimpleNamespace(wait_stream=lambda other: log.append("wait"))
    for name, value in {
        "current_stream": lambda device: stream,
        "CUDAGraph": Graph,
        "set_stream": lambda stream: log.append("stream restored"),
        "stream": lambda stream: block("side stream"),
        "graph": lambda graph, stream: block("capture"),
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda mode: log.append(mode),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(graphs, "_stream", lambda device: stream)
    return log


def test_a_step_is_warmed_up_then_recorded_then_replayed(fake_gpu):
    outputs = iter("abcd")
    replay = captured(lambda: fake_gpu.append("step") or next(outputs), torch.device("cuda"))
    warm_up = ["side stream", "error", "step", 0]  # nothing may wait in it
    assert fake_gpu == ["step", "step", "wait", *warm_up, "wait", "capture", "step", "stream restored"]
    assert (replay(), replay()) == ("d", "d")
    assert fake_gpu[-2:] == ["replay", "replay"]


def test_a_step_that_waits_for_the_gpu_is_not_recorded(fake_gpu):
    def step():
        if "error" in fake_gpu:
            raise RuntimeError("called a synchronizing CUDA operation\nmore")

    with pytest.raises(NotCapturable, match=r"^RuntimeError: called a synchronizing CUDA operation$"):
        captured(step, torch.device("cuda"))
    assert fake_gpu[-2:] == [0, "stream restored"]
    assert "capture" not in fake_gpu


class Memory(TorchDispatchMode):
    """Of the operations inside: the memory that they read and that was there before. It is not kept alive."""

    def __init__(self):
        super().__init__()
        self.given, self.made = [], set()

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        for tensor in _tensors((arguments, named)):
            if (memory := StorageWeakRef(tensor.untyped_storage())).cdata not in self.made:
                self.given.append(memory)
        outputs = operation(*arguments, **(named or {}))
        self.made |= {StorageWeakRef(tensor.untyped_storage()).cdata for tensor in _tensors(outputs)}
        return outputs

    def freed(self):
        return sum(memory.expired() for memory in self.given)


def _tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


@pytest.fixture
def recordings(fake_gpu, monkeypatch):
    """The memory of each recording. As with a graph, nothing else refers to the tensors that were read."""
    found = []

    @contextmanager
    def graph(graph, stream):
        found.append(memory := Memory())
        with memory:
            yield

    monkeypatch.setattr(torch.cuda, "graph", graph)
    return found


def test_a_recording_keeps_what_only_its_step_refers_to(recordings):
    replay = captured(partial(torch.sum, torch.arange(3.0)), torch.device("cuda"))
    gc.collect()
    assert [(len(memory.given), memory.freed()) for memory in recordings] == [(1, 0)]
    del replay
    assert recordings[0].freed() == 1


@pytest.mark.skipif(runtime.INTERPRETED, reason="a bench refuses the interpreter")
def test_no_side_of_chosen_neurons_reads_memory_that_has_been_freed(recordings, monkeypatch):
    """Neither indices, nor hash tables, nor tokens, once the contest is built and its makers have returned."""
    monkeypatch.setattr(chosen_neurons, "captured", lambda step, device: captured(step, torch.device("cuda")))
    place = Place(CPU, torch.float32, True, torch.Generator().manual_seed(0))
    contests = list(chosen_neurons.contests(place))
    gc.collect()
    assert len(recordings) == sum(len(contest.sides) for contest in contests)
    assert all(memory.given for memory in recordings)
    assert [memory.freed() for memory in recordings] == [0] * len(recordings)
