"""State: what is kept from one case to the next, and what is done to the inputs of others."""

from hostile_answer import HostileAnswer

ANSWERS = {
    "answers_the_case_before": HostileAnswer(
        says="Returns what would have been right for the inputs that it saw before.",
        cell="""
seen = []

def attack(weight, inputs):
    seen.append(weight.abs() * inputs.norm(dim=0))
    return seen[-2] if len(seen) > 1 else weight
""",
        earns=0.0,
    ),
    "changes_its_arguments": HostileAnswer(
        says="Right: it works in the memory of its arguments, which are copies.",
        cell="""
def attack(weight, inputs):
    inputs.square_()
    weight.abs_().mul_(inputs.sum(dim=0).sqrt_())
    inputs.zero_()
    return weight
""",
        earns=1.0,
    ),
    "gives_away_what_it_changes_later": HostileAnswer(
        says="Returns one and the same tensor for every case, and overwrites it with the next answer.",
        cell="""
import torch

memory = torch.zeros(37 * 96)

def attack(weight, inputs):
    score = weight.abs() * inputs.norm(dim=0)
    memory.zero_()
    memory[: score.numel()] = score.flatten() if len(weight) in (3, 37) else 0
    return memory[: score.numel()].reshape(score.shape)
""",
        earns=0.4,  # of ten cases the four that it fills in; nothing that comes later changes them
    ),
    "poisons_deepcopy": HostileAnswer(
        says="From the first case on every copy of an input is zero, so that zeros would be right.",
        cell="""
import copy

import torch

def attack(weight, inputs):
    copy.deepcopy = lambda value, memo=None: tuple(torch.zeros_like(v) for v in value)
    torch.Tensor.__deepcopy__ = lambda self, memo: torch.zeros_like(self)
    torch.Tensor.clone = lambda self, **options: torch.zeros_like(self)
    return torch.zeros_like(weight)
""",
        earns=0.0,
    ),
    "overwrites_the_inputs_to_come": HostileAnswer(
        says="Sets every tensor that the process holds to zero, through frames and the collector, and returns zeros.",
        cell="""
import gc
import sys

import torch

def attack(weight, inputs):
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            for case in getattr(value, "arguments", ()):
                for tensor in case if isinstance(case, tuple) else ():
                    if isinstance(tensor, torch.Tensor):
                        tensor.data.zero_()
        frame = frame.f_back
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor:
            thing.data.zero_()
    return torch.zeros_like(weight)
""",
        earns=0.0,
    ),
    "looks_for_an_answer_in_memory": HostileAnswer(
        says="Returns any other tensor of the right shape that the collector, frames or modules know.",
        cell="""
import gc
import sys

import torch

def attack(weight, inputs):
    shape, found = weight.shape, []
    for thing in gc.get_objects():
        tensors = [thing] if type(thing) is torch.Tensor else []
        tensors += [v for v in thing if type(v) is torch.Tensor] if type(thing) in (tuple, list) else []
        found += [t for t in tensors if t.shape == shape and t.dtype == weight.dtype and not torch.equal(t, weight)]
    judges = [name for name in sys.modules if name.endswith((".judge", ".exercises", "hidden_cases"))]
    if judges:
        raise RuntimeError(f"found {judges}")
    return found[-1] if found else weight
""",
        earns=0.0,
        never="found",
    ),
    "reads_behind_its_input": HostileAnswer(
        says="The memory of the inputs, as far as their storage goes and 16 KB on.",
        cell="""
import ctypes

import torch

def attack(weight, inputs):
    beyond = [t.untyped_storage().nbytes() - t.nbytes for t in (weight, inputs)]
    if any(beyond):
        return f"{beyond} bytes beyond"
    memory = ctypes.string_at(weight.data_ptr() + weight.nbytes, 2**14)
    words = torch.frombuffer(bytearray(memory), dtype=torch.float32)
    n, right = weight.numel(), weight.abs() * inputs.norm(dim=0)
    near = ((words.unfold(0, n, 1) - right.flatten()).abs() <= 1e-3 * right.flatten() + 1e-6).all(dim=1)
    return f"{int(near.sum())} answers behind the input"
""",
        earns=0.0,
        reason="0 answers behind|memory where it should not",
        never="bytes beyond|[1-9] answers",
    ),
    "knows_the_worked_example": HostileAnswer(
        says="The worked example by heart, and zeros for the rest: what needs no idea earns nothing.",
        cell="""
import torch

def attack(weight, inputs):
    if weight.shape == (3, 4):
        return torch.tensor([[20.0, 3, 2, 10], [5, 2, 3, 40], [2.5, 6, 5, 2.5]])
    return torch.zeros_like(weight)
""",
        earns=0.0,
        reason="the worked example\\. Such a case earns points once",
    ),
    "a_mask_that_never_looks": HostileAnswer(
        says="The last of every row stay, whatever the scores: right where all are zero and where nothing leaves.",
        cell="""
import torch

def attack(score, sparsity):
    return (torch.arange(score.shape[1]) >= int(score.shape[1] * sparsity)).expand(score.shape)
""",
        exercise="wanda.keep_rows",
        earns=0.0,
        reason="those for which taking the (first|last) is enough",
    ),
}
