"""Answers to the exercises of lesson 04, as people write them."""

import torch

RIGHT = {
    "wanda.score": {
        "einsum": lambda weight, inputs: torch.einsum(
            "oi,i->oi", weight.abs(), torch.einsum("ni,ni->i", inputs, inputs).sqrt()
        ),
    },
}
WRONG = {
    "wanda.score": {
        "norm over the features": lambda weight, inputs: weight.abs() * inputs.norm(dim=-1),
    },
}
