"""Mixture of experts between two LSTMs. Shazeer and others, Outrageously large neural networks, 2017,
https://arxiv.org/abs/1701.06538 (section 5.1, figure 1)

A byte-level language model: embedding, LSTM, layer of experts, LSTM, LM head. The experts process each position
separately; only the LSTMs carry information from one position to the next. Each layer has a residual connection.

Deviation: no dropout, which the paper uses in its much longer training.

Dimension key: B sequences, T tokens, W width, V = 256 bytes.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.attention.small_models.training import Schedule, batch_at, groups
from course_lib.repetition import seeded, seeded_step

N_BYTES = 256
QUICK = Schedule(n_steps=100, batch=16, length=128, rate=1e-2, warm_up=20, decay=0.01)


class Dense(nn.Module):
    """Two-layer MLP relu(x A) B at every position: the dense control with the interface of a layer of experts."""

    def __init__(self, width: int, n_hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.into = nn.Parameter(torch.randn(n_hidden, width, generator=generator) / width**0.5)
        self.out = nn.Parameter(torch.randn(width, n_hidden, generator=generator) / n_hidden**0.5)

    def forward(
        self, x: Float[Tensor, "B T W"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "B T W"], None]:
        """Return the output, and None in place of a routing."""
        return torch.relu(x @ self.into.T) @ self.out.T, None


class RecurrentLM(nn.Module):
    """Language model with an LSTM before and after `middle`.

    `middle(x, generator=...)` returns its output and its routing, as a layer of experts does, or `Dense`.
    """

    def __init__(self, middle: nn.Module, width: int, generator: torch.Generator) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width={width}: expected at least 1, and the width of the layer in the middle")
        with seeded(0):  # torch's initialisation, replaced below except for the norm's constants
            self.embedding, self.head = nn.Embedding(N_BYTES, width), nn.Linear(width, N_BYTES)
            self.below, self.above = (nn.LSTM(width, width, batch_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            if "norm" not in name:
                bound = 1.0 if name.startswith("embedding") else width**-0.5
                nn.init.uniform_(weight, -bound, bound, generator=generator)
        self.middle = middle  # assigned after the loop, so it keeps its own initialisation

    def forward(
        self, ids: Int[Tensor, "B T"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "B T V"], Any]:
        """Return the logits of the next byte, and the routing. A noisy router draws from the generator."""
        # Residual stream x (B, T, W): x += LSTM(x), then x += middle(norm(x)), then head(x + LSTM(x)).
        x = self.embedding(ids)
        x = x + self.below(x)[0]
        output, routing = self.middle(self.norm(x), generator=generator)
        x = x + output
        return self.head(x + self.above(x)[0]), routing


def loss(
    model: RecurrentLM, ids: Int[Tensor, "B T"], generator: torch.Generator | None = None
) -> tuple[Float[Tensor, ""], Any]:
    """Return the cross-entropy in nats per byte, averaged over all bytes except the first ones; and the routing."""
    logits, routing = model(ids[:, :-1], generator)
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()), routing


def train(
    model: RecurrentLM,
    tokens: Int[Tensor, "N"],
    schedule: Schedule,
    seed: int,
    penalty: Callable[[Any], Tensor] | None = None,
    look: Callable[[int, float, Any], None] = lambda step, loss, routing: None,
) -> None:
    """Train the model in place with AdamW. With the same seed, every model gets the same batches in the same order.

    Args:
        tokens: the bytes of one text.
        penalty: maps a routing to a term that is added to the loss, such as a balance loss.
        look: called after each step with the step, the loss before it (without the penalty), and the routing.

    Raises:
        ValueError: there are values that are not bytes, or the text is not longer than one sequence.
    """
    if len(tokens) <= schedule.length + 1 or tokens.min() < 0 or tokens.max() >= N_BYTES:
        raise ValueError(
            f"got {len(tokens)} tokens from {int(tokens.min()) if len(tokens) else 0}: expected bytes, from 0 to 255, "
            f"and more than the {schedule.length + 1} of one sequence; encode a longer text"
        )
    # Two generators: what a router draws does not change the order of the batches.
    order, noise = (torch.Generator().manual_seed(seed + part) for part in (0, 1_000_003))
    optimiser = torch.optim.AdamW(groups(model, schedule.decay), betas=(0.9, 0.95))
    for step in range(schedule.n_steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate_at(step)
        with seeded_step(seed, step):  # for dropout in the middle layer, if it has any
            nats, routing = loss(model, batch_at(tokens, schedule, order), noise)
        optimiser.zero_grad()
        (nats if penalty is None else nats + penalty(routing)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        look(step, nats.item(), routing)
