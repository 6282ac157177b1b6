"""The exercise compress.labels, "What is scored": its cases and its named mistakes.

Dimension key: B texts, T tokens, P vectors of the prompt.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor, int], Tensor]
NOT = -100  # scored


def _side_by_side(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    mine = torch.as_tensor(got)
    return compare_matrices(mine.clamp(min=-1), expected.clamp(min=-1), "text", "position; grey: not scored")


def _nothing(ids: Tensor, n: int) -> Tensor:
    return torch.full((len(ids), max(n, 0)), NOT)


def _known(ids: Tensor, real: Tensor) -> Tensor:
    """The tokens, and nothing in place of padding."""
    return ids.where(real, NOT)


def _shifted(known: Tensor, n: int) -> Tensor:
    """The labels of P + T positions, where `known` follows P vectors."""
    return torch.cat([_nothing(known, n), known, _nothing(known, 1)], dim=1)[:, 1:]


def _labels(ids: Tensor, real: Tensor, n: int) -> Tensor:
    return _shifted(_known(ids, real), n)


def _then(change: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> Answer:
    """The answer, changed by (labels, ids, real, n)."""
    return lambda ids, real, n: change(_labels(ids, real, n), ids, real, n)


def _in_prompt(fill: Callable[[Tensor, int], Tensor], shift: bool = True) -> Answer:
    """Labels for the vectors of the prompt too: (ids, P) -> (B, P)."""

    def answer(ids: Tensor, real: Tensor, n: int) -> Tensor:
        whole = torch.cat([fill(ids, n), _known(ids, real)], dim=1)
        return torch.cat([whole[:, 1:], _nothing(ids, 1)], dim=1) if shift else whole

    return answer


def _filled(value: int) -> Callable[[Tensor, int], Tensor]:
    return lambda ids, n: torch.full((len(ids), n), value)


def _not_shifted(ids: Tensor, real: Tensor, n: int) -> Tensor:
    return torch.cat([_nothing(ids, n), _known(ids, real)], dim=1)


def _first_left_out(ids: Tensor, real: Tensor, n: int) -> Tensor:
    behind = torch.cat([_known(ids, real)[:, 1:], _nothing(ids, 1)], dim=1)
    return torch.cat([_nothing(ids, n), behind], dim=1)


def _one_padding(ids: Tensor, real: Tensor, n: int) -> Tensor:
    """The positions of real tokens are scored, and the last of them should predict padding."""
    asks = torch.cat([real.new_ones(len(real), n), real], dim=1)
    asks[:, : max(n - 1, 0)] = False
    return _shifted(ids, n).where(asks, NOT)


def _other(value: int) -> Answer:
    """Another number at positions without a label."""
    return _then(lambda y, ids, real, n: y.where(y != NOT, value))


def _labels_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_texts: int, n_tokens: int, n: int, vocabulary: int = 50, pad: int | None = None) -> tuple[Any, ...]:
        """Texts of several lengths, the first of one token and the second of all; in the padding any tokens, or pad."""
        ids = torch.randint(0, vocabulary, (n_texts, n_tokens), generator=generator)
        length = torch.randint(2, n_tokens, (n_texts, 1), generator=generator)
        length[0], length[1:2] = 1, n_tokens
        real = torch.arange(n_tokens) < length
        return ids if pad is None else ids.where(real, pad), real, n

    by_hand = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]), torch.tensor([[True] * 4, [True, True, False, False]]), 2
    ids = torch.randint(0, 40, (3, 7), generator=generator)
    return [
        Case("2 vectors, texts of 4 and 2 tokens, by hand: position 1 predicts 5, and 9", by_hand),
        Case("4 texts of at most 9 tokens, 5 vectors", drawn(4, 9, 5)),
        Case("no padding, 3 vectors", (ids, torch.ones_like(ids, dtype=torch.bool), 3)),
        Case("token 0 in the texts and in the padding, 4 vectors", drawn(6, 8, 4, vocabulary=3, pad=0)),
        Case("a single vector", drawn(5, 6, 1)),
        Case("no prompt: the first token has nothing before it", drawn(4, 7, 0)),
        Case("as many vectors as tokens as texts", drawn(6, 6, 6)),
    ]


def _library(ids: Tensor, real: Tensor, n_prompt: int) -> Tensor:
    from course_lib.lessons.compress.steps import targets

    return targets(ids, real, n_prompt)


LABELS = Exercise(
    id="compress.labels",
    title="What is scored",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_labels,
    cases=_labels_cases,
    picture=_side_by_side,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("position by position", lambda ids, real, n: _in_loops(ids, real, n)),
        Variant("written with −100 before and after, then shifted", lambda ids, real, n: _by_writing(ids, real, n)),
        Variant("a list of rows", _then(lambda y, ids, real, n: y.tolist())),
    ),
    hints=(
        "Write down the P + T inputs of the model. Which of them are followed by a token of the text?",
        "The last vector of the prompt is at position P − 1, and the first token follows it.",
        "Put P times −100 before the tokens, −100 at the padding, and then shift everything one position to the left.",
    ),
)


def _in_loops(ids: Tensor, real: Tensor, n: int) -> list[list[int]]:
    labels = [[NOT] * (n + ids.shape[1]) for _ in ids]
    for b, row in enumerate(ids.tolist()):
        for t, token in enumerate(row):
            if real[b, t] and n + t > 0:
                labels[b][n + t - 1] = token
    return labels


def _by_writing(ids: Tensor, real: Tensor, n: int) -> Tensor:
    labels = torch.full((len(ids), 1 + n + ids.shape[1]), NOT)
    labels[:, n : n + ids.shape[1]] = ids
    labels[:, n : n + ids.shape[1]][~real] = NOT
    return labels[:, 1:]
