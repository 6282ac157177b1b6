"""Experts between two recurrent layers: Shazeer and others, Outrageously large neural networks, 2017,
https://arxiv.org/abs/1701.06538 (section 5.1, figure 1)

A language model of bytes: embedding, LSTM, a layer of experts applied to every position alike, LSTM, head. Before
attention this is where experts stood; what is new is that they do not care what lies around them.

Deviation: sums around every layer and no dropout; the paper adds the dropout that its long training needs.

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
    """relu(x A) B at every position: the plain twin of a layer of experts, which it can be exchanged for."""

    def __init__(self, width: int, n_hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.into = nn.Parameter(torch.randn(n_hidden, width, generator=generator) / width**0.5)
        self.out = nn.Parameter(torch.randn(width, n_hidden, generator=generator) / n_hidden**0.5)

    def forward(
        self, x: Float[Tensor, "B T W"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "B T W"], None]:
        """The output, and no routing."""
        return torch.relu(x @ self.into.T) @ self.out.T, None


class RecurrentLM(nn.Module):
    """LSTM, `middle`, LSTM. `middle(x, generator=...)` gives its output and its routing, as layers of experts do."""

    def __init__(self, middle: nn.Module, width: int, generator: torch.Generator) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width={width}: expected at least 1, and the width of the layer in the middle")
        with seeded(0):  # torch's own first weights, all of which are drawn again below
            self.embedding, self.head = nn.Embedding(N_BYTES, width), nn.Linear(width, N_BYTES)
            self.below, self.above = (nn.LSTM(width, width, batch_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            if "norm" not in name:
                bound = 1.0 if name.startswith("embedding") else width**-0.5
                nn.init.uniform_(weight, -bound, bound, generator=generator)
        self.middle = middle  # with the weights that it came with

    def forward(
        self, ids: Int[Tensor, "B T"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "B T V"], Any]:
        """Logits of the next byte, and who went to which expert. The generator is that of a router with noise."""
        x = self.embedding(ids)
        x = x + self.below(x)[0]
        output, routing = self.middle(self.norm(x), generator=generator)
        x = x + output
        return self.head(x + self.above(x)[0]), routing


def loss(
    model: RecurrentLM, ids: Int[Tensor, "B T"], generator: torch.Generator | None = None
) -> tuple[Float[Tensor, ""], Any]:
    """Nats a byte, over all but the first of each sequence, and the routing."""
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
    """In place, by AdamW. The same tokens in the same order for every model with the same seed.

    Args:
        tokens: bytes of a text, in a line.
        penalty: of a routing, added to the loss: what keeps the experts balanced.
        look: called after each step with the loss before it, without the penalty, and the routing.
    """
    if len(tokens) <= schedule.length + 1 or tokens.min() < 0 or tokens.max() >= N_BYTES:
        raise ValueError(
            f"got {len(tokens)} tokens from {int(tokens.min()) if len(tokens) else 0}: expected bytes, from 0 to 255, "
            f"and more of them than the {schedule.length + 1} of a sample; encode a longer text"
        )
    order, noise = (torch.Generator().manual_seed(seed + part) for part in (0, 1_000_003))
    optimiser = torch.optim.AdamW(groups(model, schedule.decay), betas=(0.9, 0.95))
    for step in range(schedule.n_steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate_at(step)
        with seeded_step(seed, step):  # dropout of the layer in the middle, if it has any
            nats, routing = loss(model, batch_at(tokens, schedule, order), noise)
        optimiser.zero_grad()
        (nats if penalty is None else nats + penalty(routing)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        look(step, nats.item(), routing)
