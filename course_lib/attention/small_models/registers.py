"""Registers in vision transformers: tokens that belong to no patch, so that no patch has to serve as a notepad.

Darcet, Oquab, Mairal, Bojanowski, 2023. https://arxiv.org/abs/2309.16588. Large vision transformers trained for long
give some patches of plain background norms far above all others, and attention goes to them: sinks, in images. A few
learned tokens beside the patches take that over. The model here is the one that transformers has for it
(dinov2_with_registers; its trained weights are on the hub), small and trained in seconds on scikit-learn's digits.

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

HIGH = 3.0  # norms above so many medians are called high


@dataclass(frozen=True)
class Digits:
    """Images of 8 × 8 pixels, three quarters to train on."""

    train: Float[Tensor, "N 1 8 8"]
    train_labels: Int[Tensor, "N"]
    test: Float[Tensor, "M 1 8 8"]
    test_labels: Int[Tensor, "M"]


def digits(seed: int) -> Digits:
    """Pixels from −1 to 1, in random order."""
    dataset = load_digits()
    images, labels = torch.from_numpy(dataset.images).float()[:, None] / 8 - 1, torch.from_numpy(dataset.target).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    train, test = order[: 3 * len(order) // 4], order[3 * len(order) // 4 :]
    return Digits(images[train], labels[train], images[test], labels[test])


class DigitViT(nn.Module):
    """16 patches of 2 × 2 pixels, a class token that is read in the end, and registers that nobody reads."""

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
            attn_implementation="eager",  # the one that shows its weights
        )
        self.n_registers = n_registers
        with seeded(seed):  # transformers draws first weights from torch's own generator
            self.body, self.head = Dinov2WithRegistersModel(config), nn.Linear(48, 10)

    def forward(self, images: Float[Tensor, "N 1 8 8"]) -> Float[Tensor, "N 10"]:
        return self.head(self.body(images).last_hidden_state[:, 0])


def trained(n_registers: int, data: Digits, seed: int, epochs: int, batch: int = 128, rate: float = 2e-3) -> DigitViT:
    """AdamW, the rate falling along a cosine."""
    model, generator = DigitViT(n_registers, seed).train(), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    n_batches = len(data.train) // batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * n_batches)
    for _ in range(epochs):
        order = torch.randperm(len(data.train), generator=generator)
        for chosen in order[: n_batches * batch].view(n_batches, batch):
            loss = cross_entropy(model(data.train[chosen]), data.train_labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: DigitViT, data: Digits) -> float:
    """On the images that were not trained on."""
    return (model(data.test).argmax(dim=1) == data.test_labels).float().mean().item()


@torch.no_grad()
def patch_norms(model: DigitViT, images: Float[Tensor, "N 1 8 8"]) -> Float[Tensor, "L N T"]:
    """Of each patch's token after each layer, before the last norm."""
    states = model.body(images, output_hidden_states=True).hidden_states[1:]
    return torch.stack([state[:, 1 + model.n_registers :].norm(dim=2) for state in states])


@torch.no_grad()
def class_attention(model: DigitViT, images: Float[Tensor, "N 1 8 8"]) -> dict[str, Float[Tensor, "L"]]:
    """What the class token reads in each layer: itself, all registers, its favourite patch, mean over heads, images."""
    weights = torch.stack(model.body(images, output_attentions=True).attentions).mean(dim=2)[:, :, 0]  # (L, N, tokens)
    parts = {
        "itself": weights[..., 0],
        "registers": weights[..., 1 : 1 + model.n_registers].sum(dim=2),
        "favourite_patch": weights[..., 1 + model.n_registers :].amax(dim=2),
    }
    return {name: part.mean(dim=1) for name, part in parts.items()}
