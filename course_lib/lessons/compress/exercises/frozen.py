"""The exercise compress.frozen, "What learns": its cases and its named mistakes.

Dimension key: V tokens of the vocabulary, T tokens of a text, P vectors of the prompt, D width, N = P + T places.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near

NAMES = ("prompt", "table", "mix")


def _agree_on_all_three(got: Any, expected: Any, case: Case) -> str | None:
    """All three up to the rounding of a gradient, which is a sum of terms that may cancel."""
    n = len(expected) if isinstance(expected, tuple) else 0
    return all_near(got, expected, {name: 1e-5 * _largest(case, at) for at, name in enumerate(NAMES[:n])})


def _largest(case: Case, which: int) -> float:
    return case.arguments[which].abs().max().item()


def _moves(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    """How far each part is from where it was."""
    from course_lib.lessons.common.answers import compare_bars

    far = [
        torch.stack(
            [(torch.as_tensor(new) - old).double().norm() for new, old in zip(answer, case.arguments, strict=False)]
        )
        for answer in (got, expected)
    ]
    return compare_bars(*far, NAMES, "length of the move")


def _states(x: Tensor, memory: float = 0.5) -> Tensor:
    """h_i = x_i + memory · h_{i−1}."""
    i = torch.arange(len(x))
    return (memory ** (i[:, None] - i).clamp(min=0)).tril().to(x) @ x


def _losses(prompt: Tensor, lookup: Tensor, head: Tensor, mix: Tensor, ids: Tensor, memory: float = 0.5) -> Tensor:
    """−log of what the model gives to each token, from all before it. The tied table is here in two pieces."""
    logits = (_states(torch.cat([prompt, lookup[ids]]), memory) @ mix.T).tanh() @ head.T
    return cross_entropy(logits[len(prompt) - 1 : -1], ids, reduction="none")


def _mean_loss(*given: Tensor) -> Tensor:
    return _losses(*given).mean()


def _frozen(prompt: Tensor, table: Tensor, mix: Tensor, ids: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    parts = [tensor.clone().requires_grad_() for tensor in (prompt, table, table, mix)]
    loss = _mean_loss(*parts, ids)
    slopes = [0.0 if slope is None else slope for slope in torch.autograd.grad(loss, parts, allow_unused=True)]
    moves = dict(zip(("prompt", "lookup", "head", "mix"), (rate * slope for slope in slopes), strict=True))
    return prompt - moves["prompt"], table, mix


def _own_token(prompt: Tensor, lookup: Tensor, head: Tensor, mix: Tensor, ids: Tensor) -> Tensor:
    """Each place says its own token."""
    logits = (_states(torch.cat([prompt, lookup[ids]])) @ mix.T).tanh() @ head.T
    return cross_entropy(logits[len(prompt) :], ids)


def _prompt_behind(prompt: Tensor, lookup: Tensor, head: Tensor, mix: Tensor, ids: Tensor) -> Tensor:
    logits = (_states(torch.cat([lookup[ids], prompt])) @ mix.T).tanh() @ head.T
    return cross_entropy(logits[: len(ids) - 1], ids[1:]) + 0 * prompt.sum()


def _with_rows_of_the_prompt(
    prompt: Tensor, lookup: Tensor, head: Tensor, mix: Tensor, ids: Tensor, rows: Tensor
) -> Tensor:
    """The head has a logit for each vector of the prompt too."""
    logits = (_states(torch.cat([prompt, lookup[ids]])) @ mix.T).tanh() @ torch.cat([head, rows]).T
    return cross_entropy(logits[len(prompt) - 1 : -1], ids)


def _frozen_cases(generator: torch.Generator) -> list[Case]:
    def drawn(vocabulary: int, n_tokens: int, n_prompt: int, width: int, rate: float = 3.0) -> tuple[Any, ...]:
        """Weights for which the states spread, so that each part has a slope that counts."""
        prompt = torch.randn(n_prompt, width, generator=generator)
        table = 1.5 * torch.randn(vocabulary, width, generator=generator)
        mix = torch.randn(width, width, generator=generator) / width**0.5
        return prompt, table, mix, torch.randint(0, vocabulary, (n_tokens,), generator=generator), rate

    by_hand = (
        torch.tensor([[0.0]]),
        torch.tensor([[1.0], [-1.0]]),
        torch.tensor([[2.0]]),
        torch.tensor([0]),
        0.5,
    )
    prompt, table, mix, ids, _ = drawn(9, 6, 4, 5)
    turned = [tensor.T.contiguous().T for tensor in (prompt, table, mix)]
    return [
        Case("one vector, one token, by hand: a slope of −2 takes the prompt from 0 to 1", by_hand),
        Case("20 tokens of vocabulary, a text of 8, 3 vectors", drawn(20, 8, 3, 6)),
        Case("30 tokens of vocabulary, a text of 12, 5 vectors", drawn(30, 12, 5, 4, 2.0)),
        Case("a text longer than the vocabulary", drawn(4, 15, 2, 7, 5.0)),
        Case("as many of everything", drawn(5, 5, 5, 5)),
        Case("not contiguous", (*turned, ids, 1.5)),
    ]


FROZEN = Exercise(
    id="compress.frozen",
    title="What learns",
    difficulty=3,
    minutes=12,
    points=4,
    reference=_frozen,
    cases=_frozen_cases,
    agree=_agree_on_all_three,
    picture=_moves,
    mistakes=read_mistakes(globals(), steps_of=_frozen),
    also_right=(
        Variant("by finite differences", lambda *given: _by_differences(*given)),
        Variant("state after state, with an optimiser", lambda *given: _by_optimiser(*given)),
        Variant("in float64", lambda p, w, m, i, r: _frozen(p.double(), w.double(), m.double(), i, r)),
    ),
    hints=(
        "What is the model's last place that says something about the text, and what the first? There are T logits, "
        "for T tokens.",
        "prompt.requires_grad_() before the loss is computed; torch.autograd.grad(loss, prompt) gives one slope and "
        "leaves table and mix alone.",
        "logits[P − 1 : -1] stand against ids, in cross_entropy. Then prompt − rate · slope, and table and mix as they "
        "came.",
    ),
)


def _by_differences(prompt: Tensor, table: Tensor, mix: Tensor, ids: Tensor, rate: float) -> tuple[Tensor, ...]:
    start, slope, far = prompt.double(), torch.zeros(prompt.shape, dtype=torch.float64), 1e-4
    weights = table.double(), table.double(), mix.double(), ids
    for place in torch.cartesian_prod(*map(torch.arange, prompt.shape)):
        moved = torch.zeros_like(start)
        moved[tuple(place)] = far
        up, down = (_mean_loss(start + sign * moved, *weights) for sign in (1, -1))
        slope[tuple(place)] = (up - down) / (2 * far)
    return start - rate * slope, table, mix


def _by_optimiser(prompt: Tensor, table: Tensor, mix: Tensor, ids: Tensor, rate: float) -> tuple[Tensor, ...]:
    learned = torch.nn.Parameter(prompt.clone())
    optimiser = torch.optim.SGD([learned], lr=rate)
    state, loss = torch.zeros_like(prompt[0]), 0.0
    for place in range(len(prompt) + len(ids) - 1):
        token = place - len(prompt)
        state = state / 2 + (learned[place] if token < 0 else table[ids[token]])
        if token >= -1:
            loss = loss - torch.log_softmax(table @ torch.tanh(mix @ state), dim=0)[ids[token + 1]] / len(ids)
    loss.backward()
    optimiser.step()
    return learned.detach(), table, mix
