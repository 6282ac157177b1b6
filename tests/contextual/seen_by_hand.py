"""What a selector reads, made up: an MLP of few neurons, and some tokens at it."""

import torch

from course_lib.contextual.neurons import Neurons
from course_lib.contextual.seen import Seen


def random_neurons(width=5, n=7, gated=True, activation="silu", seed=0, biases=False):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    return Neurons(
        gate=draw(n, width) if gated else None,
        up=draw(n, width),
        down=draw(width, n),
        activation=activation,
        gate_bias=draw(n) if biases and gated else None,
        up_bias=draw(n) if biases else None,
    )


def seen_of(neurons, x, embedding=None, earlier=None, ids=None, hidden=None):
    """Tokens x at these neurons; h is what the MLP computes unless it is given."""
    return Seen(
        x=x,
        embedding=x if embedding is None else embedding,
        earlier=earlier or {},
        hidden=neurons.values(x) if hidden is None else hidden,
        neurons=neurons,
        ids=torch.arange(len(x)) if ids is None else ids,
        real=torch.ones(len(x), dtype=torch.bool),
    )
