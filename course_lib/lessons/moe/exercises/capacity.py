"""The exercise moe.capacity, "Who overflows": its cases and its named mistakes.

Dimension key: G groups, N tokens in each, D width, E experts.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import up_to_rounding
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Answer = tuple[Tensor, Tensor]
Keep = Callable[[Tensor, Tensor, int, float], Tensor]  # of (chosen, weights, n_experts, factor)


def _agree_by_name(got: Any, expected: Any, case: Case) -> str | None:
    """Near enough, and a difference says in which of the two results it is."""
    found = up_to_rounding(got, expected, case)
    return found and found.replace("value 0:", "keep:").replace("value 1:", "new stream:")


def _groups(case: Case, got: Any, expected: tuple) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices
    from course_lib.lessons.common.masks import compare_masks

    if torch.equal(torch.as_tensor(got[0]).bool(), expected[0]):
        return compare_matrices(torch.as_tensor(got[1])[0], expected[1][0], "token of the first group", "channel")
    fig = compare_masks(got[0], expected[0])
    for panel in fig.axes:
        panel.set_xlabel("token; dark has a place")
        panel.set_yticks(range(len(expected[0])))
    fig.axes[0].set_ylabel("group")
    return fig


def _room(chosen: Tensor, n_experts: int, factor: float) -> int:
    return math.floor(chosen.shape[1] * factor / n_experts)


def _rank(chosen: Tensor) -> Tensor:
    """How many tokens of the group, up to this one, chose the same expert: (G, N)."""
    return (chosen[:, :, None] == chosen[:, None, :]).tril().sum(dim=2)


def _in_order(chosen: Tensor, weights: Tensor, n_experts: int, factor: float) -> Tensor:
    return _rank(chosen) <= _room(chosen, n_experts, factor)


def _by(keep: Keep) -> Callable[..., Answer]:
    """The answer with another rule for who has a place."""

    def answer(stream: Tensor, outputs: Tensor, chosen: Tensor, weights: Tensor, n: int, factor: float) -> Answer:
        has_place = keep(chosen, weights, n, factor)
        return has_place, stream + (weights * has_place)[:, :, None] * outputs

    return answer


def _with_room(room: Callable[[Tensor, int, float], float]) -> Callable[..., Answer]:
    """The answer with another number of places."""
    return _by(lambda chosen, weights, n, factor: _rank(chosen) <= room(chosen, n, factor))


def _then(behind: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Answer]:
    """The right places, and another stream, from (stream, outputs, weights (G, N, 1), keep (G, N, 1))."""

    def answer(stream: Tensor, outputs: Tensor, chosen: Tensor, weights: Tensor, n: int, factor: float) -> Answer:
        keep = _in_order(chosen, weights, n, factor)
        return keep, behind(stream, outputs, weights[:, :, None], keep[:, :, None])

    return answer


_right = _by(_in_order)


def _mask_as(change: Callable[[Tensor, Tensor, int], Any]) -> Callable[..., Any]:
    """The right stream beside something else than the mask: change(keep, chosen, n_experts)."""
    return lambda s, o, c, w, n, f: (change(_right(s, o, c, w, n, f)[0], c, n), _right(s, o, c, w, n, f)[1])


def _among(order: Callable[[Tensor], Tensor]) -> Keep:
    """The first `room` of every expert's tokens in another order: weights of these tokens -> places."""

    def keep(chosen: Tensor, weights: Tensor, n_experts: int, factor: float) -> Tensor:
        has_place, room = torch.zeros(chosen.shape, dtype=torch.bool), _room(chosen, n_experts, factor)
        for group in range(len(chosen)):
            for expert in range(n_experts):
                wish = (chosen[group] == expert).nonzero().flatten()
                has_place[group, wish[order(weights[group, wish])[:room]]] = True
        return has_place

    return keep


def _over_the_batch(room: Callable[[Tensor, int, float], int]) -> Keep:
    """Tokens of all groups in one queue."""

    def keep(chosen: Tensor, weights: Tensor, n_experts: int, factor: float) -> Tensor:
        return (_rank(chosen.reshape(1, -1)) <= room(chosen, n_experts, factor)).reshape(chosen.shape)

    return keep


def _room_of_batch(chosen: Tensor, n_experts: int, factor: float) -> int:
    return math.floor(chosen.numel() * factor / n_experts)


def _whole_experts(chosen: Tensor, weights: Tensor, n_experts: int, factor: float) -> Tensor:
    return (chosen[:, :, None] == chosen[:, None, :]).sum(dim=2) <= _room(chosen, n_experts, factor)


def _first_of_all(places: Callable[[Tensor, int, float], int]) -> Keep:
    """The first tokens of each group, whatever they chose."""
    return lambda chosen, w, n, factor: (torch.arange(chosen.shape[1]) < places(chosen, n, factor)).expand(chosen.shape)


def _capacity_cases(generator: torch.Generator) -> list[Case]:
    def drawn(groups: int, tokens: int, width: int, n_experts: int, factor: float) -> tuple:
        """Groups in which some experts are asked for by many tokens and others by few."""
        liked = torch.rand(groups, n_experts, generator=generator) ** 2 + 0.1
        chosen = torch.multinomial(liked, tokens, replacement=True, generator=generator)
        weights = 0.2 + 0.8 * torch.rand(groups, tokens, generator=generator)
        stream, outputs = (torch.randn(groups, tokens, width, generator=generator) for _ in range(2))
        return stream, outputs, chosen, weights, n_experts, factor

    chosen = torch.tensor([[0, 0, 1, 0, 2, 0], [2, 2, 2, 1, 0, 2]])
    weights = torch.tensor([[0.5, 0.25, 0.5, 0.75, 0.5, 1.0], [0.25, 0.5, 1.0, 0.5, 0.25, 0.75]])
    stream = torch.arange(1.0, 13.0).reshape(2, 6, 1).repeat(1, 1, 2)
    by_hand = stream, torch.tensor([4.0, -4.0]).expand(2, 6, 2), chosen, weights, 3, 1.0
    s, o, c, w, *rest = drawn(3, 18, 5, 4, 1.25)
    turned = s.transpose(0, 1).contiguous().transpose(0, 1), o, c.T.contiguous().T, w, *rest
    crowded = drawn(2, 12, 4, 4, 1.5)
    crowded[2][0] = 2  # all tokens of this group want the same expert
    crowded[2][1].clamp_(max=2)  # and no token wants expert 3, so how many experts there are says n_experts alone
    return [
        Case("2 groups of 6, 2 places an expert, by hand: 3 and 5, 2 and 5 overflow", by_hand),
        Case("3 groups of 15 tokens, 4 experts, factor 1.25", drawn(3, 15, 7, 4, 1.25)),
        Case("as many groups as tokens as experts as channels", drawn(8, 8, 8, 8, 2.0)),
        Case("fewer places than tokens, factor 0.75", drawn(4, 22, 3, 5, 0.75)),
        Case("a group in which all want the same expert, and an expert that no token wants", crowded),
        Case("not contiguous", turned),
    ]


def _library(
    stream: Tensor, outputs: Tensor, chosen: Tensor, weights: Tensor, n_experts: int, factor: float
) -> tuple[Tensor, Tensor]:
    from course_lib.moe.choice import admitted, among
    from course_lib.moe.routers.switch import Switch

    room = Switch(capacity_factor=factor).capacity(chosen.shape[1], n_experts)
    keep = torch.stack([admitted([among(group[:, None], n_experts)], room).any(dim=1) for group in chosen])
    return keep, stream + (outputs * weights[..., None]).where(keep[..., None], 0)


CAPACITY = Exercise(
    id="moe.capacity",
    title="Who overflows",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_right,
    agree=_agree_by_name,
    cases=_capacity_cases,
    picture=_groups,
    library=_library,
    mistakes=(
        Mistake(
            "ranked by weight",
            "The places went to the largest weights. So a later token can take the place of an earlier one, and what "
            "the model says at a position would depend on the text that follows. Who comes first has the place.",
            _by(_among(lambda weights: weights.argsort(descending=True))),
        ),
        Mistake(
            "smallest weights first",
            "The places went to the smallest weights. They go to the first tokens, whatever the weights are.",
            _by(_among(lambda weights: weights.argsort())),
        ),
        Mistake(
            "residual zeroed too",
            "The places are right, but a token that overflows has lost its residual stream as well. It loses the "
            "expert's part alone, and goes on as it came.",
            _then(lambda s, o, w, keep: keep * (s + w * o)),
        ),
        Mistake(
            "residual zeroed and weighted",
            "The places are right, but the residual stream was multiplied by the weight, and set to zero where a token "
            "found no place. The stream goes on as it is, and only the expert's output is weighted and masked.",
            _then(lambda s, o, w, keep: keep * w * (s + o)),
        ),
        Mistake(
            "no residual",
            "This is the experts' part alone. It is added to the stream, which is all that a token without a place "
            "has.",
            _then(lambda s, o, w, keep: keep * w * o),
        ),
        Mistake(
            "stream replaced",
            "Tokens with a place have the expert's part in place of their residual stream. The expert's part is added "
            "to the stream.",
            _then(lambda s, o, w, keep: torch.where(keep, w * o, s)),
        ),
        Mistake(
            "computed all the same",
            "The mask is right, but the new stream does not use it: a token without a place got its expert's output "
            "too.",
            _then(lambda s, o, w, keep: s + w * o),
        ),
        Mistake(
            "without the weight",
            "The expert's output was added without its weight.",
            _then(lambda s, o, w, keep: s + keep * o),
        ),
        Mistake(
            "weight on the stream as well",
            "The weight, or what is left of it to one, was put on the stream too. The stream goes on as it is, and the "
            "weighted output is added.",
            _then(lambda s, o, w, keep: torch.where(keep, w * (s + o), s)),
            also=(
                _then(lambda s, o, w, keep: torch.where(keep, (1 - w) * s + w * o, s)),
                _then(lambda s, o, w, keep: w * (s + keep * o)),
            ),
        ),
        Mistake(
            "counted over the batch",
            "The tokens of all groups stand in one queue, or the places were counted from all of them. Every group "
            "has places of its own, N tokens' worth: what becomes of a sequence must not depend on the others.",
            _by(_over_the_batch(_room_of_batch)),
            also=(_by(_over_the_batch(_room)), _with_room(_room_of_batch)),
        ),
        Mistake(
            "one place fewer",
            "Every expert has one place fewer than it should: count tokens from one and places with <=, or from zero "
            "and with <.",
            _with_room(lambda c, n, f: _room(c, n, f) - 1),
        ),
        Mistake(
            "one place more",
            "Every expert has one place more than it should: counted from zero, the last place is one below their "
            "number.",
            _with_room(lambda c, n, f: _room(c, n, f) + 1),
        ),
        Mistake(
            "rounded up",
            "The number of places was rounded up, or to the nearest whole number. A part of a place is none: round "
            "down.",
            _with_room(lambda c, n, f: math.ceil(f * c.shape[1] / n)),
            also=(_with_room(lambda c, n, f: round(f * c.shape[1] / n)),),
        ),
        Mistake(
            "rounded too early",
            "N / n_experts was rounded before the factor came. Multiply first and round once.",
            _with_room(lambda c, n, f: int(f * (c.shape[1] // n))),
        ),
        Mistake(
            "factor forgotten",
            "This is an equal share without the capacity factor.",
            _with_room(lambda c, n, f: c.shape[1] // n),
            also=(_with_room(lambda c, n, f: c.shape[1] / n),),
        ),
        Mistake(
            "experts counted in the choices",
            "The number of experts was taken from `chosen`. An expert that no token of the batch wants has places too: "
            "divide by n_experts.",
            _with_room(lambda c, n, f: _room(c, int(c.max()) + 1, f)),
            also=(
                _with_room(lambda c, n, f: _room(c, len(c.unique()), f)),
                _by(
                    lambda c, w, n, f: torch.cat(
                        [_rank(row[None]) <= _room(row[None], len(row.unique()), f) for row in c]
                    )
                ),
                _by(
                    lambda c, w, n, f: torch.cat(
                        [_rank(row[None]) <= _room(row[None], int(row.max()) + 1, f) for row in c]
                    )
                ),
            ),
        ),
        Mistake(
            "divided by the factor",
            "The factor makes more places where it is above one: multiply by it.",
            _with_room(lambda c, n, f: int(c.shape[1] / n / f)),
        ),
        Mistake(
            "a place for everybody",
            "Nobody overflows here. Look along which axis the tokens were counted, and whether the number of places "
            "was divided by the number of experts.",
            _with_room(lambda c, n, f: c.shape[1]),
            also=(_with_room(lambda c, n, f: f * c.shape[1]),),
        ),
        Mistake(
            "last come, first served",
            "The last tokens have the places. They go to the first ones.",
            _by(lambda c, w, n, f: _in_order(c.flip(1), w, n, f).flip(1)),
        ),
        Mistake(
            "the whole expert",
            "An expert that too many tokens want serves none of them here. The first ones have their places.",
            _by(_whole_experts),
        ),
        Mistake(
            "places of all experts together",
            "The first tokens of a group have places whatever expert they chose. Places are counted expert by expert.",
            _by(_first_of_all(lambda c, n, f: n * _room(c, n, f))),
            also=(_by(_first_of_all(_room)),),
        ),
        Mistake(
            "who has no place",
            "The mask is the other way round: True is for a token that found a place.",
            _mask_as(lambda keep, c, n: ~keep),
            also=(_by(lambda c, w, n, f: ~_in_order(c, w, n, f)),),
        ),
        Mistake(
            "places instead of a mask",
            "These are the numbers of the places. What is asked for is True or False for each token.",
            _mask_as(lambda keep, c, n: _rank(c)),
            also=(_mask_as(lambda keep, c, n: _rank(c) - 1),),
        ),
        Mistake(
            "an axis of experts left",
            "The mask still has an axis of experts. Each token wants one of them: sum over it.",
            _mask_as(lambda keep, c, n: torch.nn.functional.one_hot(c, n).bool() & keep[:, :, None]),
        ),
        Mistake(
            "one of the two",
            "Two values are asked for, in this order: who found a place, and the new stream.",
            lambda s, o, c, w, n, f: _right(s, o, c, w, n, f)[1],
            also=(
                lambda s, o, c, w, n, f: _right(s, o, c, w, n, f)[0],
                lambda s, o, c, w, n, f: _right(s, o, c, w, n, f)[::-1],
            ),
        ),
    ),
    also_right=(
        Variant("a loop with counters", lambda *given: _by_counters(*given)),
        Variant("expert by expert", _by(lambda c, w, n, f: _expert_by_expert(c, n, f))),
        Variant("zeros and ones for the mask", _mask_as(lambda keep, c, n: keep.long())),
        Variant("as the least stream", _then(lambda s, o, w, keep: torch.where(keep, s + w * o, s))),
    ),
    hints=(
        "Number the tokens of a group that chose the same expert, in their order. Who has which number?",
        "one_hot(chosen, n_experts) is (G, N, E); its cumsum over the tokens says how many have chosen an expert up to "
        "each token. Of the E counts of a token, which one is its own?",
        "The mask goes into the weight, not into the stream: stream + (weights * keep)[..., None] * outputs.",
    ),
)


def _by_counters(
    stream: Tensor, outputs: Tensor, chosen: Tensor, weights: Tensor, n_experts: int, factor: float
) -> tuple[list[list[bool]], Tensor]:
    room, new, keep = int(chosen.shape[1] * factor // n_experts), stream.clone(), []
    for group, row in enumerate(chosen.tolist()):
        left, has_place = [room] * n_experts, []
        for token, expert in enumerate(row):
            has_place.append(left[expert] > 0)
            left[expert] -= 1
            if has_place[-1]:
                new[group, token] += weights[group, token] * outputs[group, token]
        keep.append(has_place)
    return keep, new


def _expert_by_expert(chosen: Tensor, n_experts: int, factor: float) -> Tensor:
    keep = torch.zeros_like(chosen, dtype=torch.bool)
    for expert in range(n_experts):
        wish = chosen == expert
        keep |= wish & (wish.cumsum(dim=1) < 1 + _room(chosen, n_experts, factor))
    return keep
