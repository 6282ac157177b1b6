"""Registers in vision transformers: extra tokens that take over the role of high-norm patches.

Darcet, Oquab, Mairal, Bojanowski, 2023. https://arxiv.org/abs/2309.16588. In large vision transformers after long
training, some background patches have far larger norms than all others and receive much of the attention: these are
attention sinks in images. If we append a few learned tokens (registers) to the patches, they take over this role. The
model is dinov2_with_registers from transformers (its trained weights are on the hub), small enough to train within
seconds on scikit-learn's digits.

Dimension key: N images, T patches, R registers, L layers, H heads.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

from course_lib.repetition import seeded

HIGH = 3.0  # norms above this multiple of the median count as high


@dataclass(frozen=True)
class Digits:
    """Images of 8 × 8 pixels with their labels; three quarters are for training."""

    train: Float[Tensor, "N 1 8 8"]
    train_labels: Int[Tensor, "N"]
    test: Float[Tensor, "M 1 8 8"]
    test_labels: Int[Tensor, "M"]


def digits(seed: int) -> Digits:
    """Load the digits with pixels scaled to [−1, 1], and split them at random."""
    dataset = load_digits()
    images, labels = torch.from_numpy(dataset.images).float()[:, None] / 8 - 1, torch.from_numpy(dataset.target).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    train, test = order[: 3 * len(order) // 4], order[3 * len(order) // 4 :]
    return Digits(images[train], labels[train], images[test], labels[test])


class DigitViT(nn.Module):
    """A classifier with 16 patches of 2 × 2 pixels, a class token for the output, and registers without an output."""

    def __init__(self, n_registers: int, seed: int):
        super().__init__()
        config = Dinov2WithRegistersConfig(
            hidden_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            image_size=8,
            patch_size=2,
            num_channels=1,
            num_register_tokens=n_registers,
            attn_implementation="eager",  # the only implementation that returns attention weights
        )
        self.n_registers = n_registers
        with seeded(seed):  # transformers initialises weights from torch's global generator
            self.body, self.head = Dinov2WithRegistersModel(config), nn.Linear(48, 10)

    def forward(self, images: Float[Tensor, "N 1 8 8"]) -> Float[Tensor, "N 10"]:
        return self.head(self.body(images).last_hidden_state[:, 0])


def trained(n_registers: int, data: Digits, seed: int, epochs: int, batch: int = 128, rate: float = 2e-3) -> DigitViT:
    """Train a model with AdamW and a cosine learning-rate schedule."""
    model, generator = DigitViT(n_registers, seed).train(), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    n_batches = len(data.train) // batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * n_batches)
    for _ in range(epochs):
        order = torch.randperm(len(data.train), generator=generator)
        for indices in order[: n_batches * batch].view(n_batches, batch):
            loss = cross_entropy(model(data.train[indices]), data.train_labels[indices])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: DigitViT, data: Digits) -> float:
    """Return the accuracy on the test images."""
    return (model(data.test).argmax(dim=1) == data.test_labels).float().mean().item()


@torch.no_grad()
def patch_norms(model: DigitViT, images: Float[Tensor, "N 1 8 8"]) -> Float[Tensor, "L N T"]:
    """Return the norm of each patch token after each layer, before the final norm."""
    states = model.body(images, output_hidden_states=True).hidden_states[1:]
    return torch.stack([state[:, 1 + model.n_registers :].norm(dim=2) for state in states])


@torch.no_grad()
def class_attention(model: DigitViT, images: Float[Tensor, "N 1 8 8"]) -> dict[str, Float[Tensor, "L"]]:
    """Return the weight of the class token on itself, on all registers, and on the patch with the largest weight.

    All are means over heads and images, per layer.
    """
    # Tokens are in the order class token, registers, patches; row 0 holds the class token's weights: (L, N, tokens).
    weights = torch.stack(model.body(images, output_attentions=True).attentions).mean(dim=2)[:, :, 0]
    parts = {
        "itself": weights[..., 0],
        "registers": weights[..., 1 : 1 + model.n_registers].sum(dim=2),
        "favourite_patch": weights[..., 1 + model.n_registers :].amax(dim=2),
    }
    return {name: part.mean(dim=1) for name, part in parts.items()}
