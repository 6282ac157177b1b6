"""What the notebook prints of what it has just computed.

Dimension key: T tokens, E experts, N windows.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.moe.figures.training import of_the_busiest
from course_lib.lessons.moe.live.training import Run
from course_lib.moe.routed import Routing


def copies_table(outputs: Mapping[str, Float[Tensor, "T D"]], expected: Float[Tensor, "T D"]) -> Table:
    """How far the output of copies is from what they are copies of."""
    return Table(
        [
            {
                "weights of the two experts": name,
                "relative error": ((output - expected).norm() / expected.norm()).item(),
                "size": (output.norm() / expected.norm()).item(),
            }
            for name, output in outputs.items()
        ],
        caption="The output of copied experts compared with that of the MLP",
        formats={"relative error": "{:.1e}".format, "size": number(2)},
        note="size: norm of the output divided by the norm of the MLP's output.",
    )


def gradient_table(found: Mapping[str, Float[Tensor, "E D"]]) -> Table:
    """The norm of the gate's gradient, by kind of weight."""
    return Table(
        [{"weights": name, "norm of the gradient": gradient.norm().item()} for name, gradient in found.items()],
        caption="The gradient of the gate",
        formats={"norm of the gradient": "{:.1e}".format},
    )


def moved_table(moved: Mapping[str, int], n_tokens: int) -> Table:
    """Whose weights change when the last token of a sequence is another one."""
    return Table(
        [{"router": name, "earlier tokens that change": n, "of": n_tokens - 1} for name, n in moved.items()],
        caption="Earlier tokens that get other weights when only the last token changes",
        formats={("earlier tokens that change", "of"): "{} of {}".format},
    )


def per_layer(
    cases: Mapping[str, tuple[Tensor, Tensor]], balance: Callable[..., tuple], theirs: Callable[..., Tensor]
) -> Table:
    """A balance loss of each layer, averaged, compared with one of averages over layers; both 1 at balance."""
    frame = []
    for name, (logits, chosen) in cases.items():
        k = chosen.shape[2]
        ours = float(balance(logits, chosen, 1.0)[0])
        other = float(theirs(tuple(logits), logits.shape[2], k)) / k
        frame.append({"loads": name, "per layer": ours, "transformers / k": other})
    return Table(
        frame,
        caption="The balance loss of two layers with 4 experts, 2 per token",
        formats={"per layer": number(2), "transformers / k": number(2)},
    )


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


def runs_table(runs: Mapping[str, Run], k: int) -> Table:
    """Loss and loads of the models after training."""
    frame = []
    for name, run in runs.items():
        busiest = of_the_busiest(torch.stack([each.load for each in run.reading.routings]), k).tolist()
        idle = sum(int((each.load < 0.01).sum()) for each in run.reading.routings)
        frame.append(
            {"model": name, "loss (nats per byte)": run.reading.losses.mean().item()}
            | {f"block {block}: the {k} busiest": fraction for block, fraction in enumerate(busiest)}
            | {"experts below 1 %": idle}
        )
    return Table(
        frame,
        caption=f"After training: loss, and the choices that the {k} busiest experts have",
        formats={"loss (nats per byte)": number(3)}
        | {f"block {block}: the {k} busiest": percent for block in range(len(busiest))},
    )


def runs_lines(runs: Mapping[str, Run]) -> str:
    """Whether one of two models has the lower loss, window by window."""
    without, with_it = (run.reading.losses for run in runs.values())
    effect = of_samples((without - with_it).tolist())
    return (
        f"{effect.value:+.3f} ± {effect.error:.3f} nats less with balancing, {effect.n} windows.\n"
        f"Claim: in this run, after {next(iter(runs.values())).steps[-1]} steps, balancing lowers the loss: "
        f"{verdict(effect)}"
    )


def estimates_table(compared: Mapping[str, Float[Tensor, "E"]]) -> Table:
    """The mean of each estimate over all random trials, and the exact gradient, which comes first."""
    exact = next(iter(compared.values()))
    frame = []
    for name, gradient in compared.items():
        values = {f"expert {expert}": value for expert, value in enumerate(gradient.tolist())}
        frame.append({"estimate": name} | values | {"off by": ((gradient - exact).norm() / exact.norm()).item()})
    return Table(
        frame,
        caption="The gradient of a router: the mean of each estimate",
        formats={f"expert {expert}": number(3) for expert in range(len(exact))} | {"off by": number(1, "%", 100)},
    )


def perplexities(losses: Mapping[str, Float[Tensor, "N"]]) -> Table:
    """One perplexity per model."""
    return Table(
        [{"model": name, "perplexity": each.mean().exp().item()} for name, each in losses.items()],
        caption="Perplexity on held-out text",
        formats={"perplexity": number(1)},
    )


def awake(n_experts: int, k: int, tokens: Sequence[int]) -> Table:
    """How many experts a batch is expected to use, if each token chooses k of them evenly."""
    heading = f"experts used, of {n_experts}"
    return Table(
        [{"batch size": n, heading: n_experts * (1 - (1 - k / n_experts) ** n)} for n in tokens],
        caption="How many experts a batch needs",
        formats={heading: number(1)},
    )


def drop_line(routings: Sequence[Routing]) -> str:
    """What one expert has at most in each layer."""
    return ", ".join(f"{100 * each.load.max():.0f} %" for each in routings)
