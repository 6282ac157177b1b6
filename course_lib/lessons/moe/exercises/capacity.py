"""The exercise moe.capacity, "Which tokens are dropped": its cases and its named mistakes.

Dimension key: G groups, N tokens in each, D width, E experts.
"""

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import up_to_rounding
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _agree_by_name(got: Any, expected: Any, case: Case) -> str | None:
    """Close enough; a difference names the result that it is in."""
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


def _capacity(
    stream: Tensor, outputs: Tensor, chosen: Tensor, weights: Tensor, n_experts: int, factor: float
) -> tuple[Tensor, Tensor]:
    room = _room(chosen, n_experts, factor)
    rank = _rank(chosen)
    keep = rank <= room
    new = stream + (weights * keep)[:, :, None] * outputs
    return keep, new


def _room(chosen: Tensor, n_experts: int, factor: float) -> int:
    return math.floor(chosen.shape[1] * factor / n_experts)


def _rank(chosen: Tensor) -> Tensor:
    """The number of tokens of the group, up to this one, that chose the same expert: (G, N)."""
    return (chosen[:, :, None] == chosen[:, None, :]).tril().sum(dim=2)


def _by_weight(chosen: Tensor, weights: Tensor, room: int, descending: bool) -> Tensor:
    """The first `room` of every expert's tokens in the order of their weights."""
    has_place = torch.zeros(chosen.shape, dtype=torch.bool)
    for group in range(len(chosen)):
        for expert in range(int(chosen.max()) + 1):
            wish = (chosen[group] == expert).nonzero().flatten()
            has_place[group, wish[weights[group, wish].argsort(descending=descending)[:room]]] = True
    return has_place


def _capacity_cases(generator: torch.Generator) -> list[Case]:
    def drawn(groups: int, tokens: int, width: int, n_experts: int, factor: float) -> tuple:
        """Groups in which many tokens choose some experts and few choose others."""
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
    crowded[2][0] = 2  # all tokens of this group choose the same expert
    crowded[2][1].clamp_(max=2)  # no token chooses expert 3, so that only n_experts gives their number
    return [
        Case("2 groups of 6, 2 slots per expert, by hand: 3 and 5, 2 and 5 are dropped", by_hand),
        Case("3 groups of 15 tokens, 4 experts, factor 1.25", drawn(3, 15, 7, 4, 1.25)),
        Case("as many groups as tokens as experts as channels", drawn(8, 8, 8, 8, 2.0)),
        Case("fewer slots than tokens, factor 0.75", drawn(4, 22, 3, 5, 0.75)),
        Case("a group in which all choose the same expert, and an expert that no token chose", crowded),
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
    title="Which tokens are dropped",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_capacity,
    agree=_agree_by_name,
    cases=_capacity_cases,
    picture=_groups,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_capacity),
    also_right=(
        Variant("a loop with counters", lambda *given: _by_counters(*given)),
        Variant("expert by expert", lambda *given: _expert_by_expert(*given)),
        Variant("zeros and ones for the mask", lambda *given: (_capacity(*given)[0].long(), _capacity(*given)[1])),
        Variant("as the least stream", lambda *given: _least_stream(*given)),
    ),
    hints=(
        "Number the tokens of a group that chose the same expert, in their order. Which number does a token have?",
        "one_hot(chosen, n_experts) is (G, N, E); its cumsum over the tokens counts the choices of each expert up to "
        "each token. Which of the E counts of a token belongs to its own expert?",
        "Apply the mask to the weight, not to the stream: stream + (weights * keep)[..., None] * outputs.",
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


def _expert_by_expert(
    stream: Tensor, outputs: Tensor, chosen: Tensor, weights: Tensor, n_experts: int, factor: float
) -> tuple[Tensor, Tensor]:
    keep = torch.zeros_like(chosen, dtype=torch.bool)
    for expert in range(n_experts):
        wish = chosen == expert
        keep |= wish & (wish.cumsum(dim=1) < 1 + _room(chosen, n_experts, factor))
    return keep, stream + (weights * keep)[:, :, None] * outputs


def _least_stream(
    stream: Tensor, outputs: Tensor, chosen: Tensor, weights: Tensor, *room: Any
) -> tuple[Tensor, Tensor]:
    keep = _capacity(stream, outputs, chosen, weights, *room)[0]
    return keep, torch.where(keep[:, :, None], stream + weights[:, :, None] * outputs, stream)
