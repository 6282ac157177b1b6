"""Figures for the deck of lesson 01: those of its notebook, with data measured where the deck is built or committed."""

from functools import lru_cache

from matplotlib.figure import Figure
from torch import Tensor

from course_lib.data import corpora
from course_lib.lessons.patterns import figures
from course_lib.lessons.patterns.experiment import measured
from course_lib.lessons.patterns.measure import (
    dynamic_and_static,
    inputs_of,
    keep_most_active,
    one_of_each,
    stored_in_each_group,
)
from course_lib.measure.roofline import H100
from course_lib.models import blocks, head, linears, load_model, weight_of
from course_lib.sparsity.patterns import Unstructured
from course_lib.sparsity.speed import layer_speed

_model = lru_cache(maxsize=1)(load_model)


def _weight(block: int = 10, name: str = "mlp.up_proj") -> Tensor:
    return weight_of(linears(blocks(_model()[0])[block])[name])


def _held_out() -> Tensor:
    return corpora.windows("wikipedia", 5, 128, _model()[1], split="evaluation", seed=0)


def masks() -> Figure:
    return figures.masks(_weight(), one_of_each(0.5), first=64)


def groups() -> Figure:
    return figures.groups(stored_in_each_group(Unstructured(0.5).keep(_weight().abs())))


def square_kept_curves() -> Figure:
    return figures.square_kept_curves(_weight())


def perplexities() -> Figure:
    return figures.perplexities(measured(), vocabulary=weight_of(head(_model()[0])).shape[0])


def bytes_per_weight() -> Figure:
    return figures.bytes_per_weight(_weight())


def speed() -> Figure:
    large = weight_of(head(_model()[0]))[:24576].clone()
    return figures.speed(layer_speed(large, densities=[0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7], tokens=(1, 64)))


def limits() -> Figure:
    return figures.limits(11008, 4096, H100)


def activity() -> Figure:
    model = _model()[0]
    layer = linears(blocks(model)[15])["mlp.down_proj"]
    neurons = inputs_of(model, layer, _held_out())
    errors = dynamic_and_static(weight_of(layer), neurons, (0.05, 0.1, 0.25, 0.5, 0.75))
    return figures.activity(keep_most_active(neurons, neurons.shape[1] // 10), errors)
