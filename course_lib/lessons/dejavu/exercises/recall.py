"""The exercise dejavu.recall, "How good is a prediction": its cases and its named mistakes.

Dimension key: T tokens, F neurons, D width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near

Number = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Parts = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Ratio = Callable[[Tensor, Tensor], Tensor]


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Both shares up to rounding."""
    return all_near(got, expected, {"recall": 1e-6, "energy": 1e-6})


def _of_sums(part: Tensor, whole: Tensor) -> Tensor:
    return part.sum() / whole.sum()


def _each(dim: int, finish: Callable[[Tensor], Tensor] = torch.mean, least: float = 0.0) -> Ratio:
    """The mean of the shares of single tokens (dim 1), or of single neurons (dim 0)."""
    return lambda part, whole: finish(part.sum(dim) / whole.sum(dim).clamp(min=least))


# Tokens in which nothing is active: as they come, as zeros, left out, as all found.
_MEANS = (
    _each(1),
    _each(1, least=1.0),
    _each(1, least=1e-9),
    _each(1, torch.nanmean),
    _each(1, lambda shares: shares.nan_to_num(1.0).mean()),
    _each(0),
    _each(0, least=1e-9),
    _each(0, least=1.0),
    _each(0, torch.nanmean),
)


def _found(hidden: Tensor, down: Tensor, active: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """(part, whole) of the recall."""
    return (active & keep).double(), active.double()


def _energies(hidden: Tensor, down: Tensor, active: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """(part, whole) of the energy."""
    each = (hidden.double() * down.double().norm(dim=0)).square()
    return each * keep, each


def _recall(*given: Tensor) -> Tensor:
    return _of_sums(*_found(*given))


def _energy(*given: Tensor) -> Tensor:
    return _of_sums(*_energies(*given))


def _with(recall: Number = _recall, energy: Number = _energy) -> Callable[..., tuple[Tensor, Tensor]]:
    return lambda *given: (recall(*given), energy(*given))


def _other_energy(each: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """With another measure for what a neuron adds: (hidden, down) -> (T, F)."""
    return _with(energy=lambda h, d, a, k: _of_sums(each(h.double(), d.double()) * k, each(h.double(), d.double())))


def _in_both(of: Ratio) -> Callable[..., tuple[Tensor, Tensor]]:
    """Means of ratios in the recall and in the energy."""
    return _with(lambda *given: of(*_found(*given)), lambda *given: of(*_energies(*given)))


def _in_recall(of: Ratio) -> Callable[..., tuple[Tensor, Tensor]]:
    return _with(lambda *given: of(*_found(*given)))


def _in_energy(of: Ratio) -> Callable[..., tuple[Tensor, Tensor]]:
    return _with(energy=lambda *given: of(*_energies(*given)))


def _by_token(of: Ratio) -> Callable[..., tuple[Tensor, Tensor]]:
    """Means of ratios in both, in the energy those of tokens."""
    return _with(lambda *given: of(*_found(*given)), lambda *given: _each(1, least=1e-9)(*_energies(*given)))


def _other_recall(formula: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """With another number in its place: (active, keep), both in float64, -> one number."""
    return _with(lambda h, d, a, k: formula(a.double(), k.double()))


def _of_the_sum(h: Tensor, d: Tensor, a: Tensor, k: Tensor) -> Tensor:
    """The squared length of what the kept ones add together, against that of the whole output."""
    return ((h * k).double() @ d.double().T).square().sum() / (h.double() @ d.double().T).square().sum()


def _what_is_missed(h: Tensor, d: Tensor, a: Tensor, k: Tensor) -> Tensor:
    return 1 - _of_the_sum(h, d, a, ~k)


def _recall_cases(generator: torch.Generator) -> list[Case]:
    def predicted(worth: Tensor, active: Tensor) -> Tensor:
        """A prediction that finds most of what is active, and takes some that are not."""
        chance = torch.where(active, 0.75, 0.2)
        return torch.rand(worth.shape, generator=generator) < chance

    def weights(width: int, neurons: int) -> Tensor:
        """Neurons of very different lengths."""
        return torch.randn(width, neurons, generator=generator) * (0.2 + 3 * torch.rand(neurons, generator=generator))

    def relu(tokens: int, neurons: int, width: int) -> tuple[Tensor, ...]:
        """Some tokens with many active neurons, most with few, two with none."""
        shift = torch.linspace(1.5, -2.5, tokens)[:, None]
        hidden = (2 * torch.randn(tokens, neurons, generator=generator) + shift).relu()
        hidden[[1, tokens - 1]] = 0
        return hidden, weights(width, neurons), hidden > 0, predicted(hidden, hidden > 0)

    def swiglu(tokens: int, neurons: int, width: int) -> tuple[Tensor, ...]:
        """Values of both signs, of which the larger ones of each token count as active."""
        loud = torch.logspace(-1, 0.7, tokens)[:, None]
        hidden = loud * torch.randn(tokens, neurons, generator=generator)
        active = hidden.abs() > 0.9 * loud
        return hidden, weights(width, neurons), active, predicted(hidden, active)

    by_hand = (
        torch.tensor([[1.0, 5.0, 0.0], [0.0, 0.0, 5.0]]),
        torch.tensor([[3.0, 1.0, 0.0], [4.0, 0.0, 2.0]]),
        torch.tensor([[True, True, False], [False, False, True]]),
        torch.tensor([[True, False, True], [False, True, True]]),
    )
    turned = [tensor.T.contiguous().T for tensor in swiglu(8, 21, 30)]
    return [
        Case("2 tokens, 3 neurons, by hand: 2 of 3 found, 125 of 150", by_hand),
        Case("ReLU: 12 tokens, 37 neurons, width 20, two tokens without any", relu(12, 37, 20)),
        Case("SwiGLU: 10 tokens, 50 neurons, the larger third is active", swiglu(10, 50, 16)),
        Case("as many tokens as neurons as channels", swiglu(9, 9, 9)),
        Case("ReLU: 30 tokens, 12 neurons, width 5", relu(30, 12, 5)),
        Case("not contiguous", tuple(turned)),
    ]


def _library(hidden: Tensor, down: Tensor, active: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.contextual.predictor.scores import scores

    found = scores(keep, active, hidden, down.norm(dim=0))
    return torch.tensor(found.recall), torch.tensor(found.energy)


RECALL = Exercise(
    id="dejavu.recall",
    title="How good is a prediction",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_with(),
    cases=_recall_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=(
        Mistake(
            "precision",
            "This is the precision: of the neurons that were predicted, the share that is active. Predicting too many "
            "costs time; what costs quality are active neurons that were not predicted, so divide by the active ones.",
            _other_recall(lambda a, k: (a * k).sum() / k.sum()),
        ),
        Mistake(
            "precision of each token",
            "This is the precision of each token, the fraction of its predicted neurons that is active, and then a "
            "mean over the tokens. Recall divides by the active neurons; and sum over everything first, then divide "
            "once.",
            _with(lambda *g: ((g[2] & g[3]).sum(1) / g[3].sum(1)).mean()),
            also=(_with(lambda *g: ((g[2] & g[3]).sum(1) / g[3].sum(1).clamp(min=1)).mean()),),
        ),
        Mistake(
            "accuracy",
            "Neurons that are silent and were not predicted count as hits here. Where most are silent, predicting "
            "nothing at all would score high.",
            _other_recall(lambda a, k: (a == k).double().mean()),
            also=(_other_recall(lambda a, k: (a == k).double().sum() / a.sum()),),
        ),
        Mistake(
            "mean of ratios",
            "A share was taken for each token, or for each neuron, and then the mean of these. A token with one active "
            "neuron then weighs as much as one with a hundred, and one with none has no share at all. Sum over "
            "everything first and divide once.",
            _in_both(_MEANS[0]),
            also=(
                _in_recall(_MEANS[0]),
                _in_energy(_MEANS[0]),
                _in_both(_MEANS[1]),
                _in_recall(_MEANS[1]),
                _in_energy(_MEANS[1]),
                _in_both(_MEANS[2]),
                _in_recall(_MEANS[2]),
                _in_energy(_MEANS[2]),
                _in_both(_MEANS[3]),
                _in_recall(_MEANS[3]),
                _in_energy(_MEANS[3]),
                _in_both(_MEANS[4]),
                _in_recall(_MEANS[4]),
                _in_energy(_MEANS[4]),
                _in_both(_MEANS[5]),
                _in_recall(_MEANS[5]),
                _in_energy(_MEANS[5]),
                _in_both(_MEANS[6]),
                _in_recall(_MEANS[6]),
                _in_energy(_MEANS[6]),
                _in_both(_MEANS[7]),
                _in_recall(_MEANS[7]),
                _in_energy(_MEANS[7]),
                _in_both(_MEANS[8]),
                _in_recall(_MEANS[8]),
                _in_energy(_MEANS[8]),
                _by_token(_MEANS[0]),
                _by_token(_MEANS[1]),
                _by_token(_MEANS[2]),
                _by_token(_MEANS[3]),
                _by_token(_MEANS[4]),
                _by_token(_MEANS[5]),
                _by_token(_MEANS[6]),
                _by_token(_MEANS[7]),
                _by_token(_MEANS[8]),
            ),
        ),
        Mistake(
            "unsquared",
            "The lengths themselves were added. An energy is their square, and twice the length counts four times.",
            _other_energy(lambda h, d: (h * d.norm(dim=0)).abs()),
        ),
        Mistake(
            "signed and unsquared",
            "The products h_i ‖w_i‖ were added with their signs, so that they cancel. An energy is a squared length.",
            _other_energy(lambda h, d: h * d.norm(dim=0)),
        ),
        Mistake(
            "half squared",
            "Only one of the two factors was squared. What neuron i adds is the vector h_i w_i, of the length "
            "|h_i| ‖w_i‖, and all of that is squared.",
            _other_energy(lambda h, d: h.square() * d.norm(dim=0)),
            also=(
                _other_energy(lambda h, d: h.abs() * d.square().sum(0)),
                _other_energy(lambda h, d: h * d.square().sum(0)),
            ),
        ),
        Mistake(
            "without the weights behind",
            "The values h alone were squared, or with one length for all neurons, which cancels. A neuron with a large "
            "value and a short column of `down` adds little.",
            _other_energy(lambda h, d: h.square()),
        ),
        Mistake(
            "values alone, unsquared",
            "The values h alone were added up, with or without their signs. What neuron i adds is the vector h_i w_i: "
            "its length is |h_i| times that of its column of `down`, and the energy is the square of that.",
            _other_energy(lambda h, d: h.abs()),
            also=(_other_energy(lambda h, d: h),),
        ),
        Mistake(
            "without the values",
            "Only a neuron's column of `down` was used, squared or not, so that a neuron that gives zero counts as "
            "much as one that gives a large value.",
            _other_energy(lambda h, d: d.square().sum(0).expand(h.shape)),
            also=(_other_energy(lambda h, d: d.norm(dim=0).expand(h.shape)),),
        ),
        Mistake(
            "norm over the wrong axis",
            "This norm runs along the rows of `down`, over the neurons. The weights behind neuron i are its column i: "
            "dim=0.",
            _other_energy(lambda h, d: (h * d.norm(dim=1)).square()),
            also=(_other_energy(lambda h, d: (h * d.norm(dim=1)).abs()),),
        ),
        Mistake(
            "length of the sum",
            "The vectors of all kept neurons were added before their length was taken. They partly cancel, so that "
            "keeping fewer can give more. Take each by itself: (h_i ‖w_i‖)².",
            _with(energy=_of_the_sum),
            also=(_with(energy=_what_is_missed), _with(energy=lambda *g: _of_the_sum(*g).sqrt())),
        ),
        Mistake(
            "root of the share",
            "The root was taken at the end. A share of the squares is asked for.",
            _with(energy=lambda *g: _energy(*g).sqrt()),
        ),
        Mistake(
            "energy of the active ones",
            "Only active neurons count here. What is kept counts whether somebody calls it active or not, and so does "
            "what is lost.",
            _with(energy=lambda *g: _of_sums(_energies(*g)[0] * g[2], _energies(*g)[1])),
            also=(
                _with(energy=lambda *g: _of_sums(_energies(*g)[0] * g[2], _energies(*g)[1] * g[2])),
                _with(energy=lambda *g: _of_sums(_energies(*g)[0], _energies(*g)[1] * g[2])),
            ),
        ),
        Mistake(
            "energy of what is active, not of what is predicted",
            "This is the energy of the active neurons. What was predicted is in `keep`.",
            _with(energy=lambda h, d, a, k: _energy(h, d, a, a)),
        ),
        Mistake(
            "active found anew",
            "The neurons with a value above zero, or other than zero, were taken for the active ones. Which count as "
            "active is given: for SwiGLU, where no value is zero, somebody has drawn a line.",
            _with(lambda h, d, a, k: _recall(h, d, h > 0, k)),
            also=(_with(lambda h, d, a, k: _recall(h, d, h != 0, k)),),
        ),
        Mistake(
            "what is missed",
            "This is the share that is lost. One minus it is found, or kept.",
            _with(lambda *g: 1 - _recall(*g), lambda *g: 1 - _energy(*g)),
            also=(_with(lambda *g: 1 - _recall(*g)), _with(energy=lambda *g: 1 - _energy(*g))),
        ),
        Mistake(
            "divided by all neurons",
            "The hits were divided by the number of all neurons: .mean() of a mask does that. Divide by how many are "
            "active.",
            _other_recall(lambda a, k: (a * k).mean()),
        ),
        Mistake(
            "a mixture with precision",
            "F1 and the overlap of two sets also punish what was predicted in vain. Recall asks about active neurons "
            "alone.",
            _other_recall(lambda a, k: 2 * (a * k).sum() / (a.sum() + k.sum())),
            also=(_other_recall(lambda a, k: (a * k).sum() / (a + k).clamp(max=1).sum()),),
        ),
        Mistake(
            "how many, not which",
            "How many neurons are predicted was divided by how many are active, or one of the two by how many there "
            "are. It matters which ones they are: active & keep.",
            _other_recall(lambda a, k: k.sum() / a.sum()),
            also=(_other_recall(lambda a, k: k.mean()), _other_recall(lambda a, k: a.mean())),
        ),
        Mistake(
            "recall weighed by energy",
            "In the recall each active neuron counts the same. How much each adds is what the second number says.",
            _with(lambda *g: _of_sums(_energies(*g)[0] * g[2], _energies(*g)[1] * g[2])),
        ),
        Mistake(
            "sums, not shares",
            "One of the two, or both, is a sum or a mean: how many were found, or how much energy was kept. Divide the "
            "sum by that of the whole.",
            _with(lambda *g: _found(*g)[0].sum(), lambda *g: _energies(*g)[0].sum()),
            also=(
                _with(lambda *g: _found(*g)[0].sum()),
                _with(energy=lambda *g: _energies(*g)[0].sum()),
                _with(energy=lambda *g: _energies(*g)[0].mean()),
            ),
        ),
        Mistake(
            "in per cent",
            "Shares between 0 and 1 are asked for.",
            lambda *g: (100 * _recall(*g), 100 * _energy(*g)),
        ),
        Mistake(
            "one a token",
            "There is still a number for each token. Sum over the tokens too, before dividing.",
            lambda *g: (_each(1, lambda x: x)(*_found(*g)), _each(1, lambda x: x)(*_energies(*g))),
            also=(lambda *g: (_recall(*g), _each(1, lambda x: x)(*_energies(*g))),),
        ),
        Mistake(
            "one of the two, or the other way round",
            "Two numbers are asked for: recall, and then energy.",
            lambda *g: _with()(*g)[0],
            also=(lambda *g: _with()(*g)[1], lambda *g: _with()(*g)[::-1]),
        ),
    ),
    also_right=(
        Variant("token by token", lambda *g: _by_tokens(*g)),
        Variant("h² · Σ w²", lambda h, d, a, k: (k[a].float().mean(), _by_squares(h, d, k))),
        Variant("in float64", lambda h, d, a, k: _with()(h.double(), d.double(), a, k)),
        Variant("Python numbers", lambda *g: tuple(x.item() for x in _with()(*g))),
    ),
    hints=(
        "Recall: of all True entries of `active`, over all tokens, which share is also True in `keep`? Two sums and "
        "one division.",
        "Neuron i adds h_i times its column of `down`. The length of column i is down.norm(dim=0)[i].",
        "(hidden * down.norm(dim=0)).square() is (T, F). Its sum where `keep` is True, divided by its sum.",
    ),
)


def _by_tokens(hidden: Tensor, down: Tensor, active: Tensor, keep: Tensor) -> tuple[float, float]:
    n_found = n_active = kept = whole = 0.0
    for values, is_active, is_kept in zip(hidden, active, keep, strict=True):
        added = (down * values).square().sum(dim=0)
        n_found += int(is_kept[is_active].sum())
        n_active += int(is_active.sum())
        kept += float(added[is_kept].sum())
        whole += float(added.sum())
    return n_found / n_active, kept / whole


def _by_squares(hidden: Tensor, down: Tensor, keep: Tensor) -> Tensor:
    column, squares = down.square().sum(dim=0), hidden.square()
    return ((squares * keep) @ column).sum() / (squares @ column).sum()
