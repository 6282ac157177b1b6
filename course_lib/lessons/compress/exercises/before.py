"""The exercise compress.before, "The prompt before the text": its cases and its named mistakes.

Dimension key: B texts, T tokens, P vectors of the prompt, D width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, short, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

NAMES = ("vectors", "mask", "positions")


def _agree_on_all_three(got: Any, expected: Any, case: Case) -> str | None:
    """Each result by its name. Padding may have any position, because it is not attended to."""
    if not isinstance(expected, tuple):
        return close(got, expected)
    if not isinstance(got, tuple) or len(got) != len(expected):
        return f"got {short(got)}, expected {len(expected)} values: {', '.join(NAMES)}"
    for name, mine, right in zip(NAMES, got, expected, strict=False):
        mine, problem = tensor_like(mine, right)
        if not problem and name == "positions" and right.shape == expected[1].shape:
            mine = torch.where(expected[1].bool(), mine, right)
        problem = problem or close(mine, right)
        if problem:
            return f"{name}: {problem}"
    return None


def _positions(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    mine = torch.as_tensor(got[2])
    same = mine.shape == expected[2].shape
    mine = torch.where(expected[1], mine, expected[2]) if same else mine
    return compare_matrices(mine, expected[2], "text", "vector; light: a late position")


def _before(prompt: Tensor, text: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    vectors = torch.cat([prompt.expand(len(text), -1, -1), text], dim=1)
    seen = torch.cat([real.new_ones(len(real), len(prompt)), real], dim=1)
    positions = seen.cumsum(dim=1) - 1
    return vectors, seen, positions


def _in_text(real: Tensor) -> Tensor:
    """Positions in the text alone."""
    return (real.cumsum(dim=1) - 1).clamp(min=0)


def _two(of_prompt: Tensor, of_text: Tensor) -> Tensor:
    """Positions of the prompt, (P,), and of the text, (B, T)."""
    return torch.cat([of_prompt.expand(len(of_text), -1), of_text], dim=1)


def _places(prompt: Tensor, text: Tensor, real: Tensor) -> Tensor:
    """Every vector counts, padding too."""
    return torch.arange(len(prompt) + real.shape[1]).expand(len(real), -1)


def _put(start: Callable[[Tensor], int], prompt: Tensor, text: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The prompt inserted elsewhere in each text: (real of one text) -> index."""
    vectors, seen = [], []
    for row, is_real in zip(text, real, strict=True):
        at = start(is_real)
        vectors.append(torch.cat([row[:at], prompt, row[at:]]))
        seen.append(torch.cat([is_real[:at], is_real.new_ones(len(prompt)), is_real[at:]]))
    together = torch.stack(seen)
    return torch.stack(vectors), together, together.cumsum(dim=1) - 1


def _first_real(real: Tensor) -> int:
    return int(real.long().argmax())


def _after_last(real: Tensor) -> int:
    return int(real.nonzero().max()) + 1


def _over_the_first(prompt: Tensor, text: Tensor, add: bool) -> Tensor:
    """The first P tokens overwritten by the prompt, or with it added; nothing becomes longer."""
    n, changed = min(len(prompt), text.shape[1]), text.clone()
    changed[:, :n] = text[:, :n] + prompt[:n] if add else prompt[:n]
    return changed


def _before_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_texts: int, n_tokens: int, n_prompt: int, width: int, pad: str = "") -> tuple[Tensor, Tensor, Tensor]:
        """Texts of different lengths, padded on the right or on the left."""
        prompt = torch.randn(n_prompt, width, generator=generator)
        text = torch.randn(n_texts, n_tokens, width, generator=generator)
        length = torch.randint(1, n_tokens, (n_texts, 1), generator=generator)
        length = torch.where(torch.arange(n_texts)[:, None] == 1, n_tokens, length)
        real = torch.arange(n_tokens) < length if pad else torch.ones(n_texts, n_tokens, dtype=torch.bool)
        return prompt, text, real.flip(1) if pad == "left" else real

    by_hand = (
        torch.tensor([[10.0], [20.0]]),
        torch.tensor([[[1.0], [2.0], [3.0]], [[9.0], [4.0], [5.0]]]),
        torch.tensor([[True, True, True], [False, True, True]]),
    )
    turned = [tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in drawn(4, 7, 5, 3, "left")]
    return [
        Case("2 vectors before 2 texts by hand; the second has 2 tokens, at positions 2 and 3", by_hand),
        Case("3 texts of 8 tokens, 5 vectors, no padding", drawn(3, 8, 5, 6)),
        Case("4 texts, padded on the left", drawn(4, 9, 3, 5, "left")),
        Case("5 texts, padded on the right", drawn(5, 6, 4, 7, "right")),
        Case("as many texts as tokens as vectors as channels, padded on the left", drawn(6, 6, 6, 6, "left")),
        Case("more vectors than tokens", drawn(3, 4, 11, 5, "left")),
        Case("not contiguous", tuple(turned)),
    ]


def _library(prompt: Tensor, text: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from course_lib.lessons.compress.steps import with_prompt

    return with_prompt(prompt, text, real)


BEFORE = Exercise(
    id="compress.before",
    title="The prompt before the text",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_before,
    cases=_before_cases,
    agree=_agree_on_all_three,
    picture=_positions,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_before),
    also_right=(
        Variant("text by text", lambda *given: _put(lambda real: 0, *given)),
        Variant("-1 at padding", lambda *given: _but_positions(lambda x, seen: x.masked_fill(~seen, -1), *given)),
        Variant(
            "P more than in the text",
            lambda p, x, r: (*_before(p, x, r)[:2], _two(torch.arange(len(p)), len(p) + r.cumsum(dim=1) - r.long())),
        ),
        Variant("a mask of zeros and ones", lambda *given: _with_numbers(*_before(*given))),
    ),
    hints=(
        "expand gives every text the same prompt: (P, D) becomes (B, P, D). Along which axis do you concatenate prompt "
        "and text?",
        "The mask becomes as long as the vectors. Which value does it have at the prompt?",
        "The position of an attended vector is the number of attended vectors before it: a cumulative sum of the mask, "
        "minus one.",
    ),
)


def _but_positions(change: Callable[[Tensor, Tensor], Tensor], *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    vectors, seen, positions = _before(*given)
    return vectors, seen, change(positions, seen)


def _with_numbers(vectors: Tensor, seen: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return vectors, seen.long(), positions
