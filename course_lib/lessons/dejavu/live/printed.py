"""What the notebook prints of what it has just computed.

Dimension key: T tokens, N windows.
"""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.execute.race import Lap
from course_lib.contextual.neurons import Neurons
from course_lib.contextual.seen import Seen
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.dejavu.live.gaps import Curves, gap
from course_lib.lessons.dejavu.live.neurons import energy_curve, importance, share_for
from course_lib.models import heads


def perplexities(curves: Curves, dense: Float[Tensor, "N"], nats: bool = False) -> Table:
    """Perplexity by way to choose and fraction that is kept; losses in nats where perplexities are too close to 1."""
    fractions = sorted({fraction for by_fraction in curves.values() for fraction in by_fraction}, reverse=True)
    frame = [{"neurons chosen by": "dense", "all": _value(dense, nats)}]
    for name, losses in curves.items():
        values = {percent(fraction): _value(losses[fraction], nats) for fraction in fractions if fraction in losses}
        frame.append({"neurons chosen by": name} | values)
    return Table(
        frame,
        caption=f"{'Loss (nats)' if nats else 'Perplexity'} by the fraction that is kept",
        formats=dict.fromkeys(["all", *map(percent, fractions)], number(3 if nats else 1)),
    )


def _value(losses: Float[Tensor, "N"], nats: bool) -> float:
    return (losses.mean() if nats else losses.mean().exp()).item()


def claim(said: str, curves: Curves, share: float, worse: str, better: str = "contextual") -> str:
    """By how many nats the one lies above the other at one share, window by window, and what follows."""
    effect = gap(curves[better][share], curves[worse][share])
    return (
        f"Claim: {said}: {verdict(effect)}\n    {worse}: {effect.value:+.3f} ± {effect.error:.3f} nats a token, "
        f"{effect.n} windows"
    )


def active_table(models: Mapping[str, tuple[Sequence[str], Sequence[Seen]]]) -> Table:
    """For each model and block: how many neurons are exactly zero, and how many hold 95 % of a token's energy."""
    zero, enough = "exactly zero", "hold 95 % of the energy"
    return Table(
        [
            {"model": model, "block": name, zero: float((each.hidden == 0).float().mean())}
            | {enough: float(share_for(energy_curve(importance(each)), 0.95))}
            for model, (names, seen) in models.items()
            for name, each in zip(names, seen, strict=True)
        ],
        caption="How many neurons are zero, and how many matter",
        formats=dict.fromkeys((zero, enough), number(1, "%", 100)),
    )


def bytes_line(predictor: nn.Module, neurons: Neurons) -> str:
    """What a predictor adds to what a token reads of a block's MLP."""
    n_bytes = sum(parameter.nbytes for parameter in predictor.parameters())
    return (
        f"{n_bytes:,} bytes of predictor beside {neurons.n_bytes:,} of the MLP: {100 * n_bytes / neurons.n_bytes:.1f} %"
    )


def recalls(by_distance: Mapping[int, Float[Tensor, "N"]], most: float = 0.02) -> str:
    """Recall by how many blocks earlier the predictor reads, and whether that costs less than `most`."""
    own = by_distance[0]
    lines = [f"its own input: recall {own.mean():.3f}"]
    for n, recall in by_distance.items():
        if n:
            effect = of_samples((recall - own).tolist(), threshold=-most)
            lost = of_samples((own - recall).tolist())
            said = f"{n} block{'s' * (n > 1)} earlier: recall {recall.mean():.3f}, lower by "
            lines.append(f"{said}{lost.value:.3f} ± {lost.error:.3f}; less than {most} lost: {verdict(effect)}")
    return "\n".join(lines)


def laps(found: Sequence[Lap], n_tokens: int) -> Table:
    """Tokens per second of each way, and its loss compared with that of the first, window by window."""
    first, *_ = found
    above = f"above {first.way}"
    frame = []
    for lap in found:
        row = {"way": lap.way, "tokens per second": lap.tokens_per_second(n_tokens), "speedup": lap.times_faster}
        gaps = [loss - own for loss, own in zip(lap.losses, first.losses, strict=True)]
        effect = None if lap is first else of_samples(gaps)
        row |= {above: effect and effect.value, "error": effect and effect.error}
        frame.append(row | {"loss (nats)": lap.loss})
    return Table(
        frame,
        caption="Decoding with some of the neurons",
        formats={
            "tokens per second": number(),
            "speedup": number(2),
            "loss (nats)": number(3),
            (above, "error"): plus_minus(3, sign=True),
        },
        note="± one standard error over the windows, in nats per token.",
    )


def stored_line(model: PreTrainedModel) -> str:
    """Numbers that are stored for a token of which heads are missing, and for its heads: does that save room?"""
    of = heads(model)
    width, each = model.config.hidden_size, 2 * of.size
    needed, all_of_them = -(-width // each), of.n_key_value * each
    said = f"x has {width} numbers, the key and the value of one of {of.n_key_value} key-value heads {each}.\n"
    if needed <= of.n_key_value:
        return f"{said}Storing x takes no more room than what it stands for once {needed} of them are left out."
    return f"{said}All keys and values of a token are {all_of_them} numbers: storing x never saves room here."
