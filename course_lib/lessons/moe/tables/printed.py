"""What the notebook prints of what it has just computed.

Dimension key: T tokens, E experts, N windows.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.moe.figures.training import of_the_busiest
from course_lib.lessons.moe.live.training import Run
from course_lib.moe.routed import Routing


def copies_line(found: Float[Tensor, "T D"], expected: Float[Tensor, "T D"], name: str) -> str:
    """How far the output of copies is from what they are copies of."""
    error = ((found - expected).norm() / expected.norm()).item()
    size = (found.norm() / expected.norm()).item()
    return f"{name:<42} differs by {error:.1e} of its size, which is {size:.2f} of the MLP's"


def gradient_table(found: Mapping[str, Float[Tensor, "E D"]]) -> str:
    """The size of what reaches the gate, by kind of weight."""
    lines = [f"{'weights':<52}{'size of the gate’s gradient':>28}"]
    return "\n".join(lines + [f"{name:<52}{gradient.norm().item():>28.1e}" for name, gradient in found.items()])


def moved_table(moved: Mapping[str, int], n_tokens: int) -> str:
    """Whose weights change when the last token of a sequence is another one."""
    lines = [f"{'router':<44}{'earlier tokens that get other weights':>40}"]
    return "\n".join(lines + [f"{name:<44}{n:>30} of {n_tokens - 1:>6}" for name, n in moved.items()])


def per_layer(
    cases: Mapping[str, tuple[Tensor, Tensor]], balance: Callable[..., tuple], theirs: Callable[..., Tensor]
) -> str:
    """A balance loss of each layer, averaged, beside one of averages over layers; both 1 at balance."""
    lines = [f"{'two layers, 4 experts, 2 a token':<44}{'per layer':>18}{'transformers / k':>18}"]
    for name, (logits, chosen) in cases.items():
        k = chosen.shape[2]
        ours = float(balance(logits, chosen, 1.0)[0])
        other = float(theirs(tuple(logits), logits.shape[2], k)) / k
        lines.append(f"{name:<44}{ours:>18.2f}{other:>18.2f}")
    return "\n".join(lines)


def two_layers(n_tokens: int = 64) -> dict[str, tuple[Tensor, Tensor]]:
    """Logits (2, T, 4) and choices (2, T, 2): loads that are equal, and layers that use two experts each."""
    sure, turned = torch.full((2, n_tokens, 4), -20.0), torch.arange(n_tokens) % 2 * 2
    pairs = torch.stack([turned, turned + 1], dim=1)
    collapsed = torch.tensor([[0, 1], [2, 3]])[:, None].repeat(1, n_tokens, 1)
    both = pairs.repeat(2, 1, 1)
    return {
        name: (sure.scatter(2, chosen, 20.0), chosen)
        for name, chosen in (("loads are equal in both", both), ("each has its own two experts, always", collapsed))
    }


def runs_lines(runs: Mapping[str, Run], k: int) -> str:
    """Loss and loads of two models after training, and whether one reads better, window by window."""
    lines = []
    for name, run in runs.items():
        busiest = of_the_busiest(torch.stack([each.load for each in run.reading.routings]), k)
        idle = sum(int((each.load < 0.01).sum()) for each in run.reading.routings)
        lines.append(
            f"{name:<20}{run.reading.losses.mean():.3f} nats a byte; the {k} busiest experts have "
            f"{', '.join(f'{100 * share:.0f} %' for share in busiest.tolist())}; {idle} have under 1 %"
        )
    without, with_it = (run.reading.losses for run in runs.values())
    effect = of_samples((without - with_it).tolist())
    lines.append(
        f"{effect.value:+.3f} ± {effect.error:.3f} nats less with balancing, {effect.n} windows.\n"
        f"Claim: in this run, after {next(iter(runs.values())).steps[-1]} steps, balancing lowers the loss: "
        f"{verdict(effect)}"
    )
    return "\n".join(lines)


def estimates_table(compared: Mapping[str, Float[Tensor, "E"]]) -> str:
    """The mean of each estimate over all draws, beside the exact gradient, which comes first."""
    exact = next(iter(compared.values()))
    lines = [f"{'mean over all draws':<42}{'':>{8 * len(exact)}}{'off by':>10}"]
    for name, gradient in compared.items():
        off = ((gradient - exact).norm() / exact.norm()).item()
        lines.append(f"{name:<42}{''.join(f'{value:>8.3f}' for value in gradient.tolist())}{100 * off:>8.1f} %")
    return "\n".join(lines)


def perplexities(losses: Mapping[str, Float[Tensor, "N"]]) -> str:
    """A perplexity a line."""
    return "\n".join(f"{name:<56}perplexity {each.mean().exp():>8.1f}" for name, each in losses.items())


def awake(n_experts: int, k: int, tokens: Sequence[int]) -> str:
    """How many experts a batch is expected to wake, if each token chooses k of them evenly."""
    lines = [f"{'tokens at once':>16}{f'of {n_experts} experts awake':>24}"]
    return "\n".join(lines + [f"{n:>16}{n_experts * (1 - (1 - k / n_experts) ** n):>24.1f}" for n in tokens])


def drop_line(routings: Sequence[Routing]) -> str:
    """What one expert has at most in each layer."""
    return ", ".join(f"{100 * each.load.max():.0f} %" for each in routings)
