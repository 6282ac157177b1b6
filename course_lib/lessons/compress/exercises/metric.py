"""The exercise compress.metric, "With and without a prompt": its cases and its named mistakes.

Dimension key: N windows, T tokens of a window, P vectors of the prompt.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Ratio and error up to the rounding of a mean of losses of a few nats in float32."""
    return all_near(got, expected, {"ratio": 1e-5, "error": 1e-5})


def _metric(prompted: Tensor, plain: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    start = prompted.shape[1] - plain.shape[1]
    counts = real[:, 1:]
    a = _mean(prompted[:, start:], counts)
    b = _mean(plain, counts)
    differences = a - b
    ratio = differences.mean().exp()
    error = ratio * differences.std() / len(differences) ** 0.5
    return ratio, error


def _mean(losses: Tensor, counts: Tensor) -> Tensor:
    """The mean of each window over the scored tokens."""
    return (losses.double() * counts).sum(dim=1) / counts.sum(dim=1)


def _zeros_counted(prompted: Tensor, start: int, counts: Tensor, first: int) -> Tensor:
    """The mean over all columns, including the zeros of the prompt, with or without the first token."""
    scored = prompted.double()[:, start - 1 :] * counts
    return scored[:, first:].sum(dim=1) / (start - 1 + counts.sum(dim=1))


def _metric_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_windows: int, n_tokens: int, n: int, padding: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Hard and easy windows; the first token is expensive, and the padding holds any numbers."""
        hard = 1 + 2 * torch.rand(n_windows, 1, generator=generator)
        plain = hard * (0.3 + 1.5 * torch.rand(n_windows, n_tokens - 1, generator=generator))
        gain = 0.1 + 0.3 * torch.rand(n_windows, 1, generator=generator)
        behind = plain - gain + 0.4 * torch.randn(n_windows, n_tokens - 1, generator=generator)
        first = 5 + 4 * torch.rand(n_windows, 1, generator=generator)
        length = torch.randint(n_tokens // 2, n_tokens, (n_windows, 1), generator=generator)
        real = torch.arange(n_tokens) < (length if padding else torch.full_like(length, n_tokens))
        wild = 9 * torch.rand(n_windows, n_tokens - 1, generator=generator)
        plain, behind = plain.where(real[:, 1:], wild), behind.abs().where(real[:, 1:], wild.flip(1))
        return torch.cat([torch.zeros(n_windows, n - 1), first, behind], dim=1), plain, real

    log2 = torch.tensor(2.0).log().item()
    by_hand = (
        torch.tensor([[0.0, 9.0, 1.0, 3.0], [0.0, 9.0, 2.0, 7.0]]),
        torch.tensor([[1.0 + log2, 3.0 + log2], [2.0 + 3 * log2, 5.0]]),
        torch.tensor([[True, True, True], [True, True, False]]),
    )
    turned = [tensor.T.contiguous().T for tensor in drawn(7, 12, 5)]
    return [
        Case("2 vectors, windows of 3 and 2 tokens, by hand: 1/2 and 1/8, together 1/4", by_hand),
        Case("8 windows of 40 tokens, 6 vectors, no padding", drawn(8, 40, 6, padding=False)),
        Case("10 windows of at most 30 tokens, 4 vectors", drawn(10, 30, 4)),
        Case("a single vector", drawn(9, 20, 1)),
        Case("more vectors than tokens", drawn(6, 14, 25)),
        Case("few windows", drawn(3, 50, 8)),
        Case("not contiguous", tuple(turned)),
    ]


def _library(prompted: Tensor, plain: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.compress.steps import paired_ratio

    return paired_ratio(prompted, plain, real)


METRIC = Exercise(
    id="compress.metric",
    title="With and without a prompt",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_metric,
    cases=_metric_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_metric),
    also_right=(
        Variant("window by window", lambda *given: _in_loops(*given)),
        Variant("with NaN at the padding", lambda *given: _by_nanmean(*given)),
        Variant("in float64, as Python numbers", lambda *given: tuple(x.item() for x in _metric(*given))),
    ),
    hints=(
        "Which token does column 0 of `plain` belong to? Which column of `prompted` belongs to the same token?",
        "real[:, 1:] marks the columns of `plain` whose token is real. Take the mean over these, per window, in both "
        "tensors.",
        "d = difference of the two means, (N,). The ratio is d.mean().exp(), its error the ratio times d.std() / √N.",
    ),
)


def _in_loops(prompted: Tensor, plain: Tensor, real: Tensor) -> tuple[float, float]:
    n, differences = prompted.shape[1] - plain.shape[1], []
    for one, other, is_real in zip(prompted.tolist(), plain.tolist(), real.tolist(), strict=True):
        length = sum(is_real)
        differences.append((sum(one[n : n + length - 1]) - sum(other[: length - 1])) / (length - 1))
    mean = sum(differences) / len(differences)
    variance = sum((d - mean) ** 2 for d in differences) / (len(differences) - 1)
    ratio = 2.718281828459045**mean
    return ratio, ratio * (variance / len(differences)) ** 0.5


def _by_nanmean(prompted: Tensor, plain: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    both = (prompted[:, -plain.shape[1] :] - plain).masked_fill(~real[:, 1:], torch.nan)
    each = both.nanmean(dim=1)
    return each.mean().exp(), each.mean().exp() * (each.var() / len(each)).sqrt()
