"""Wrong values dressed as right ones, and right ones in unusual dress: what counts is the value that is read once."""

from hostile_answer import HostileAnswer

ANSWERS = {
    "says_it_is_a_tensor": HostileAnswer(
        says="An object whose class says that it is a tensor, and that has every method of one.",
        cell="""
import torch

class Pretender:
    __class__ = property(lambda self: torch.Tensor)
    shape = property(lambda self: torch.Size([3, 4]))
    dtype, layout, ndim = torch.float32, torch.strided, 2

    def __getattr__(self, name):
        return lambda *arguments, **options: self

    def __len__(self):
        return 3

    def __eq__(self, other):
        return True

    __hash__ = object.__hash__

def attack(weight, inputs):
    return Pretender()
""",
        earns=0.0,
    ),
    "number_that_changes": HostileAnswer(
        says="Registered as numbers, equal to everything, and another value whenever they are read.",
        cell="""
import itertools
import numbers

@numbers.Real.register
class Changing:
    values = itertools.count()

    def __float__(self):
        return next(self.values) / 100

    __int__ = __index__ = __float__

    def __eq__(self, other):
        return True

    __le__ = __ge__ = __lt__ = __gt__ = __eq__

    def __sub__(self, other):
        return 0.0

    __rsub__ = __abs__ = __add__ = __radd__ = __sub__
    __hash__ = object.__hash__

def attack(n_right, n):
    return Changing(), Changing(), Changing()
""",
        exercise="wanda.interval",
        earns=0.0,
    ),
    "equal_text_and_floats": HostileAnswer(
        says="Three kinds of number that compare as equal, and a tuple that gives its items twice.",
        cell="""
import decimal
import fractions

class Equal(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__

class Exact(fractions.Fraction):
    def __eq__(self, other):
        return True

    __hash__ = fractions.Fraction.__hash__

class Twice(tuple):
    def __iter__(self):
        return iter((0.6, 0.50398, 0.69602))

    def __len__(self):
        return 3

def attack(n_right, n):
    return Twice((Equal(7), Exact(7), decimal.Decimal(7)))
""",
        exercise="wanda.interval",
        earns=0.0,
    ),
    "a_generator": HostileAnswer(
        says="Rows that are made when they are read, for ever.",
        cell="""
def attack(weight, inputs):
    return (row for _ in iter(int, 1) for row in weight)
""",
        earns=0.0,
        reason="generator",
    ),
    "a_list_that_lies_about_its_length": HostileAnswer(
        says="A list and a dictionary that say one length and hold another.",
        cell="""
class Short(list):
    def __len__(self):
        return 3

    def __getitem__(self, at):
        return [0.0] * 4

class Keys(dict):
    def __len__(self):
        return 0

    def items(self):
        return iter([(0, 0)] * 3)

def attack(weight, inputs):
    return Short([0.0] * 100_000) if len(weight) == 3 else Keys({0: 0})
""",
        earns=0.0,
    ),
    "float8": HostileAnswer(
        says="Right, but for the digits that eight bits cannot hold.",
        cell="""
import torch

def attack(weight, inputs):
    return (weight.abs() * inputs.norm(dim=0)).to(torch.float8_e4m3fn)
""",
        earns=0.0,
    ),
    "sixty_axes": HostileAnswer(
        says="The right numbers behind sixty axes of length one.",
        cell="""
def attack(weight, inputs):
    score = weight.abs() * inputs.norm(dim=0)
    return score.reshape(*[1] * 60, *score.shape)
""",
        earns=0.0,
    ),
    "no_storage_of_its_own": HostileAnswer(
        says="Tensors of the meta device and of mkldnn, and numbers whose imaginary part is zero.",
        cell="""
import torch

def attack(weight, inputs):
    score = weight.abs() * inputs.norm(dim=0)
    if len(weight) == 3:
        return torch.empty_like(score, device="meta")
    return torch.zeros_like(score).to_mkldnn() if len(weight) == 37 else score + 0j
""",
        earns=0.0,
    ),
    "one_number_everywhere": HostileAnswer(
        says="A single number that is spread over the whole shape without memory, and would broadcast.",
        cell="""
def attack(weight, inputs):
    score = weight.abs() * inputs.norm(dim=0)
    return score[:1, :1].expand(score.shape)
""",
        earns=0.0,
    ),
    "right_in_sparse_pieces": HostileAnswer(
        says="Right: an uncoalesced sparse tensor in which every entry stands twice, half of it each time.",
        cell="""
import torch

def attack(weight, inputs):
    score = weight.abs() * inputs.norm(dim=0)
    places = torch.ones_like(score).nonzero().T
    return torch.sparse_coo_tensor(places.repeat(1, 2), score.flatten().repeat(2) / 2, score.shape)
""",
        earns=1.0,
    ),
    "right_as_a_parameter": HostileAnswer(
        says="Right: a parameter that wants a gradient, read backwards and back from numpy.",
        cell="""
import torch

def attack(weight, inputs):
    score = (weight.abs() * inputs.norm(dim=0)).double()
    return torch.nn.Parameter(torch.from_numpy(score.numpy()[::-1].copy())[range(len(score) - 1, -1, -1)])
""",
        earns=1.0,
    ),
    "right_in_whole_numbers": HostileAnswer(
        says="Right: masks as unsigned integers, as half floats, as one byte for True that is not one, and as lists.",
        cell="""
import torch

def attack(score, sparsity):
    leave = score.sort(dim=1, stable=True).indices[:, : int(score.shape[1] * sparsity)]
    keep = torch.ones_like(score, dtype=torch.bool).scatter(1, leave, False)
    if len(score) == 3:
        return keep.to(torch.uint64)
    if len(score) == 31:
        return keep.half()
    if len(score) == 6:
        return (keep.to(torch.uint8) * 7).view(torch.bool)
    return keep.tolist()
""",
        exercise="wanda.keep_rows",
        earns=1.0,
    ),
    "two_for_true": HostileAnswer(
        says="Masks that hold the scores, two for True, or NaN where a weight leaves.",
        cell="""
import torch

def attack(score, sparsity):
    leave = score.sort(dim=1, stable=True).indices[:, : int(score.shape[1] * sparsity)]
    keep = torch.ones_like(score, dtype=torch.bool).scatter(1, leave, False)
    if len(score) == 31:
        return keep * 2
    return torch.where(keep, score, 0) if len(score) == 6 else torch.where(keep, 1.0, torch.nan) - keep.float() * 0.5
""",
        exercise="wanda.keep_rows",
        earns=0.0,
    ),
}
