"""Figures for the deck of lesson 03: those of its notebook, measured where the deck is built."""

from functools import lru_cache

from matplotlib.figure import Figure
from torch import Tensor, nn

from course_lib.data import corpora
from course_lib.lessons.sparsegpt import figures
from course_lib.lessons.sparsegpt.measure import (
    WithoutUpdates,
    errors_in_block,
    first_inputs_of,
    settled_until,
)
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.pruning.input_statistics import input_grams
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import Unstructured

BLOCK = 15


@lru_cache(maxsize=1)
def _block() -> tuple[nn.Module, dict[str, Gram]]:
    model, tokenizer = load_model()
    calibration = corpora.windows("wikipedia", 16, 256, tokenizer, split="calibration", seed=0)
    return blocks(model)[BLOCK], input_grams(model, calibration, BLOCK)


def _layer(name: str) -> tuple[Tensor, Gram]:
    block, grams = _block()
    return weight_of(linears(block)[name]), grams[name]


def title() -> Figure:
    """The sweep half way."""
    return _sweep((48,))


def objective() -> Figure:
    weight, gram = _layer("self_attn.q_proj")
    return figures.objective(weight, gram.matrix)


def spectrum() -> Figure:
    model, tokenizer = load_model()
    one = corpora.windows("wikipedia", 1, 256, tokenizer, split="calibration", seed=0)
    name = "self_attn.q_proj"
    short, gram = input_grams(model, one, BLOCK)[name], _layer(name)[1]
    return figures.spectrum({short.n_tokens: short.matrix, gram.n_tokens: gram.matrix}, damping=0.01)


def what_others_explain() -> Figure:
    _, gram = _layer("self_attn.q_proj")
    factor, name = gram.factor(0.01), f"Block {BLOCK}, input of attention"
    return figures.what_others_explain(gram.matrix, factor.upper, gram.n_tokens, name)


def sweep() -> Figure:
    return _sweep((32, 64, 96))


def _sweep(columns: tuple[int, ...]) -> Figure:
    weight, gram = _layer("self_attn.q_proj")
    piece, corner = weight[:32, :96], first_inputs_of(gram, 96)
    solution = SparseGPT(block_size=32).solve(piece, corner)
    return figures.sweep(piece, {column: settled_until(piece, solution, column) for column in columns})


def layer_errors() -> Figure:
    half = Unstructured(0.5, per="layer")
    methods = {
        "magnitude": Magnitude(),
        "Wanda": Wanda(),
        "its mask, no updates": WithoutUpdates(half),
        "SparseGPT": SparseGPT(half),
        "its mask, best weights": Refit(half, chooser=SparseGPT),
    }
    return figures.layer_errors(errors_in_block(*_block(), methods, n_outputs=64))
