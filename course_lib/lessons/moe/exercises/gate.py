"""The exercise moe.gate, "The weights of the gate": its cases and its named mistakes.

Dimension key: T tokens, E experts, k of them for each token.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Gate = Callable[[Tensor, int], Tensor]


def _agree_on_weights(got: Any, expected: Tensor, case: Case) -> str | None:
    """The same weights, or those of experts with equal logits: every weight is the probability of its expert."""
    difference = close(got, expected)
    got, problem = tensor_like(got, expected)
    if not difference or problem:
        return difference
    got, expected = got.double(), expected.double()
    own = _near(got, case.arguments[0].double().softmax(dim=1)) | (got == 0)
    alike = _near(got.sort(dim=1).values, expected.sort(dim=1).values)
    return None if bool(own.all()) and bool(alike.all()) else difference


def _near(one: Tensor, other: Tensor) -> Tensor:
    return torch.isclose(one, other, rtol=1e-4, atol=1e-6)


def _first_tokens(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.masks import compare_numbers

    got = torch.as_tensor(got).double()
    fig = compare_numbers(got[:12], expected[:12])
    for panel in fig.axes:
        panel.set_xlabel("expert")
        panel.set_yticks(range(0, min(12, len(expected)), 1 if len(expected) < 6 else 2))
    fig.axes[0].set_ylabel("token")
    return fig


def _probs(logits: Tensor) -> Tensor:
    return logits.softmax(dim=-1)


def _only(places: Tensor, values: Tensor) -> Tensor:
    """The values at these places of each row, and zero elsewhere."""
    keep = torch.zeros(values.shape, dtype=torch.bool).scatter(1, places, True)
    return values * keep


def _best(score: Tensor, k: int) -> Tensor:
    return score.topk(k, dim=1).indices


def _weighing(weigh: Callable[[Tensor], Tensor]) -> Gate:
    """The answer with other numbers for the experts that are chosen."""
    return lambda logits, k: _only(_best(logits, k), weigh(logits))


def _choosing(choose: Callable[[Tensor, int], Tensor]) -> Gate:
    """The answer with other experts, (logits, k) -> places (T, any number)."""
    return lambda logits, k: _only(choose(logits, k), _probs(logits))


def _renormalised(logits: Tensor, k: int) -> Tensor:
    best = logits.topk(k, dim=1)
    return torch.zeros_like(logits).scatter(1, best.indices, _probs(best.values))


def _by_expert(logits: Tensor, k: int, n: int) -> Tensor:
    """Each expert chooses n tokens by its probabilities."""
    probs = _probs(logits)
    return probs * torch.zeros(probs.shape, dtype=torch.bool).scatter(0, probs.topk(n, dim=0).indices, True)


def _columns(logits: Tensor, n: int) -> Tensor:
    """Choice and softmax along the tokens."""
    keep = torch.zeros(logits.shape, dtype=torch.bool).scatter(0, logits.topk(n, dim=0).indices, True)
    return logits.softmax(dim=0) * keep


def _over_the_edge(logits: Tensor, k: int) -> Tensor:
    """All that reach the k-th best: more than k where logits are equal."""
    edge = logits.sort(dim=1, descending=True).values[:, k - 1 : k]
    return torch.where(logits >= edge, _probs(logits), 0)


def _exp_over_sum(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum(dim=1, keepdim=True)


def _put(values: Tensor, places: Tensor) -> Tensor:
    """As `_only`, without a product: elsewhere is zero even where a value is not a number."""
    return torch.zeros_like(values).scatter(1, places, values.gather(1, places))


def _cut_off(choose_by: Callable[[Tensor], Tensor], most: float) -> Gate:
    """Probabilities of logits that are kept within some bounds, for experts that are chosen by something."""
    return lambda logits, k: _only(_best(choose_by(logits), k), _probs(logits.clamp(-most, most)))


def _moved(logits: Tensor, k: int, places: Callable[[Tensor], Tensor]) -> Tensor:
    """The right values, best first, at other places of the row."""
    best = _probs(logits).topk(k, dim=1)
    return torch.zeros_like(logits).scatter(1, places(best.indices), best.values)


def _gate_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_experts: int, shift: float = 0.0) -> Tensor:
        """Tokens of which some are sure and some are not, with experts that most of them like."""
        size = 0.5 + 2 * torch.rand(n_tokens, 1, generator=generator)
        liked = 0.7 * torch.randn(n_experts, generator=generator)
        return size * (torch.randn(n_tokens, n_experts, generator=generator) + liked) + shift

    by_hand = torch.tensor([[8.0, 4.0, 3.0, 1.0], [2.0, 3.0, 1.0, 10.0]]).log()
    ties = torch.randint(-1, 2, (15, 9), generator=generator).float()
    return [
        Case("2 tokens, 4 experts, by hand: 1/2 and 1/4; 3/16 and 5/8", (by_hand, 2)),
        Case("17 tokens, 3 of 11 experts", (drawn(17, 11), 3)),
        Case("as many tokens as experts, 2 of 9", (drawn(9, 9), 2)),
        Case("one expert per token", (drawn(13, 6), 1)),
        Case("equal logits", (ties, 4)),
        Case("large logits", (drawn(10, 8, shift=300.0), 3)),
        Case("not contiguous", (drawn(7, 12).T, 2)),
    ]


def _library(logits: Tensor, k: int) -> Tensor:
    from course_lib.moe.routers.olmoe import OLMoE

    return OLMoE(k).route(logits.detach()).weights


GATE = Exercise(
    id="moe.gate",
    title="The weights of the gate",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_weighing(_probs),
    cases=_gate_cases,
    agree=_agree_on_weights,
    picture=_first_tokens,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("by sorting", lambda logits, k: _only(logits.argsort(dim=1, descending=True)[:, :k], _probs(logits))),
        Variant("by ranks", lambda logits, k: _probs(logits) * (logits.argsort(1).argsort(1) >= logits.shape[1] - k)),
        Variant("the last of equal ones", lambda logits, k: _weighing(_probs)(logits.flip(1), k).flip(1)),
        Variant(
            "a loop",
            lambda logits, k: [
                [p if e in row.topk(k).indices else 0.0 for e, p in enumerate(_probs(row).tolist())] for row in logits
            ],
        ),
        Variant("in float64", lambda logits, k: _weighing(_probs)(logits.double(), k)),
    ),
    hints=(
        "Which comes first, the choice of k or the softmax? The sum over j in p_i runs over all experts.",
        "probs = logits.softmax(dim=1) is (T, E). topk(k, dim=1) gives values and indices, (T, k) each.",
        "torch.zeros_like(probs).scatter(1, indices, values) puts values into the columns of their experts. Logits may "
        "be large: exp of them overflows, softmax does not.",
    ),
)
