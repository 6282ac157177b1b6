"""Two more problems for small networks: exclusive or, and scikit-learn's handwritten digits.

Dimension key: P patterns, I inputs, O outputs.
"""

import torch

from course_lib.pruning.classic.network import DTYPE, Network, Patterns

XOR_NETWORK = Network((2, 2, 1))
DIGITS_NETWORK = Network((64, 20, 10))


def xor() -> Patterns:
    """The four patterns of exclusive or."""
    inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=DTYPE)
    return Patterns(inputs, (inputs.sum(1, keepdim=True) == 1).to(DTYPE))


def digits(generator: torch.Generator, n_training: int = 1200) -> tuple[Patterns, Patterns]:
    """Handwritten digits of 8 × 8 pixels (1797 in all), scaled to [0, 1], one output a class: training and test set."""
    from sklearn.datasets import load_digits  # a second to import, and only this function needs it

    found = load_digits()
    if not 0 < n_training < len(found.data):
        raise ValueError(f"n_training={n_training}: expected at least 1 and fewer than all {len(found.data)} digits")
    order = torch.randperm(len(found.data), generator=generator)
    inputs = torch.tensor(found.data, dtype=DTYPE)[order] / 16
    targets = torch.nn.functional.one_hot(torch.tensor(found.target), 10).to(DTYPE)[order]
    return Patterns(inputs[:n_training], targets[:n_training]), Patterns(inputs[n_training:], targets[n_training:])
