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
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.dejavu.live.gaps import Curves, gap
from course_lib.lessons.dejavu.live.neurons import energy_curve, importance, share_for
from course_lib.models import heads


def perplexities(curves: Curves, dense: Float[Tensor, "N"], nats: bool = False) -> str:
    """A line a way to choose, a column a share that stays; losses in nats where perplexities are too near to 1."""
    shares = sorted({share for by_share in curves.values() for share in by_share}, reverse=True)
    lines = [f"{'nats' if nats else 'perplexity':<24}" + "".join(f"{100 * share:>9.0f} %" for share in shares)]
    lines += [f"{'dense':<24}{_number(dense, nats):>11}"]
    for name, by_share in curves.items():
        cells = (_number(by_share[share], nats) if share in by_share else "" for share in shares)
        lines.append(f"{name:<24}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def _number(losses: Float[Tensor, "N"], nats: bool) -> str:
    return f"{losses.mean():.3f}" if nats else f"{losses.mean().exp():,.1f}"


def claim(said: str, curves: Curves, share: float, worse: str, better: str = "contextual") -> str:
    """By how many nats the one lies above the other at one share, window by window, and what follows."""
    effect = gap(curves[better][share], curves[worse][share])
    return (
        f"Claim: {said}: {verdict(effect)}\n    {worse}: {effect.value:+.3f} ± {effect.error:.3f} nats a token, "
        f"{effect.n} windows"
    )


def active_lines(models: Mapping[str, tuple[Sequence[str], Sequence[Seen]]]) -> str:
    """Of each model and block: how many neurons are exactly zero, and how many hold 95 % of a token's energy."""
    lines = [f"{'':<34}{'exactly zero':>14}{'hold 95 % of the energy':>26}"]
    for model, (names, seen) in models.items():
        for name, each in zip(names, seen, strict=True):
            zero = 100 * float((each.hidden == 0).float().mean())
            enough = 100 * share_for(energy_curve(importance(each)), 0.95)
            lines.append(f"{f'{model}, {name}':<34}{zero:>12.1f} %{enough:>24.1f} %")
    return "\n".join(lines)


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


def laps(found: Sequence[Lap], n_tokens: int) -> str:
    """Tokens per second of each way, and its loss beside that of the first, window by window."""
    first, *_ = found
    lines = [f"{'':<24}{'tokens a second':>16}{'times as fast':>15}{'nats':>8}   more than {first.way}"]
    for lap in found:
        line = f"{lap.way:<24}{lap.tokens_per_second(n_tokens):>16.0f}{lap.times_faster:>15.2f}{lap.loss:>8.3f}"
        if lap is not first:
            effect = of_samples([loss - own for loss, own in zip(lap.losses, first.losses, strict=True)])
            line += f"   {effect.value:+.3f} ± {effect.error:.3f}"
        lines.append(line)
    return "\n".join(lines)


def stored_line(model: PreTrainedModel) -> str:
    """Numbers that are stored for a token of which heads are missing, and for its heads: does that save room?"""
    of = heads(model)
    width, each = model.config.hidden_size, 2 * of.size
    needed, all_of_them = -(-width // each), of.n_key_value * each
    said = f"x has {width} numbers, the key and the value of one of {of.n_key_value} key-value heads {each}.\n"
    if needed <= of.n_key_value:
        return f"{said}Storing x takes no more room than what it stands for once {needed} of them are left out."
    return f"{said}All keys and values of a token are {all_of_them} numbers: storing x never saves room here."
