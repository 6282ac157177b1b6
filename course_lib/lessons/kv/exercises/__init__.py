"""Lesson 07: the exercises on evicting keys and values, their cases and their named mistakes.

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries, W queries of a history, N slots,
D size of a head, P tokens of a prompt, K tokens held back, V words.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_masks

LESSON = "07 KV eviction"


def _shuffled(generator: torch.Generator, values: Tensor, *shape: int) -> Tensor:
    """The values in another order for each of `shape` heads."""
    rows = [values[torch.randperm(len(values), generator=generator)] for _ in range(math.prod(shape))]
    return torch.stack(rows).reshape(*shape, len(values))


def _newest(position: Tensor, n: int) -> Tensor:
    """True for the n highest of the last axis."""
    return torch.zeros_like(position, dtype=torch.bool).scatter(-1, position.topk(n, dim=-1).indices, True)


def _softmax_rows(generator: torch.Generator, *shape: int, spread: float = 1.5) -> Tensor:
    return (spread * torch.randn(*shape, generator=generator)).softmax(dim=-1)


def _is_mask(got: Any, expected: Tensor) -> tuple[Any, str | None]:
    """The answer as a mask, or why it cannot be one."""
    got, problem = tensor_like(got, expected)
    if problem:
        return got, problem
    if not ((got == 0) | (got == 1)).all():
        return got, "the mask holds values other than True and False: return which slots stay"
    return got.bool(), None


def _mask_picture(case: Case, got: Any, expected: Tensor):
    """A mask of slots: one row for each head."""
    got, expected = (torch.as_tensor(x).reshape(-1, x.shape[-1]) for x in (got, expected))
    drawn = compare_masks(got, expected)
    drawn.axes[0].set_ylabel("head")
    for axes in drawn.axes:
        axes.set_xlabel("slot")
    return drawn


# kv.slots --------------------------------------------------------------------------------------------------------


def _slots(n_bytes, n_blocks, n_query, n_key_value, head_size, batch, value_bytes):
    return n_bytes // (2 * n_blocks * n_key_value * head_size * value_bytes * batch)


def _slots_cases(generator: torch.Generator) -> list[Case]:
    drawn = torch.randint(2, 9, (3, 5), generator=generator).tolist()
    return [
        Case("1050 bytes, a model small enough for fingers: 10 slots of 96", (1050, 2, 6, 3, 4, 1, 2)),
        Case("SmolLM2-135M, 8 sequences, 100 MB, float32", (100_000_000, 30, 9, 3, 64, 8, 4)),
        Case("Llama-2-70B, 64 sequences, 400 GB, float16", (400 * 10**9, 80, 64, 8, 128, 64, 2)),
        Case("it fits exactly", (5 * 96, 2, 6, 3, 4, 1, 2)),
        *(
            Case(f"random sizes, {i + 1}", (10**6 * g + 12_345, n, (g + 1) * h, h, 16 * d, b, 2 + 2 * (i % 2)))
            for i, (n, h, d, b, g) in enumerate(drawn)
        ),
    ]


SLOTS = Exercise(
    id="kv.slots",
    title="How many tokens fit",
    difficulty=2,
    minutes=6,
    points=2,
    reference=_slots,
    cases=_slots_cases,
    mistakes=(
        Mistake(
            "query heads counted",
            "Only key-value heads are cached. Query heads of a group read the same keys and values.",
            lambda m, n, q, h, d, b, v: m // (2 * n * q * d * v * b),
        ),
        Mistake(
            "keys or values, not both",
            "A token leaves a key and a value in every head: twice as many numbers.",
            lambda m, n, q, h, d, b, v: m // (n * h * d * v * b),
        ),
        Mistake(
            "one block",
            "Every block has a cache of its own: multiply by the number of blocks.",
            lambda m, n, q, h, d, b, v: m // (2 * h * d * v * b),
        ),
        Mistake(
            "one sequence",
            "Sequences of a batch share weights, not keys: each needs its own slots.",
            lambda m, n, q, h, d, b, v: m // (2 * n * h * d * v),
            also=(lambda m, n, q, h, d, b, v: m * b // (2 * n * h * d * v),),
        ),
        Mistake(
            "numbers instead of bytes",
            "A number takes value_bytes bytes.",
            lambda m, n, q, h, d, b, v: m // (2 * n * h * d * b),
        ),
        Mistake(
            "all heads together",
            "This counts the slots of all heads. The budget is that of each head; a token takes a slot in every one.",
            lambda m, n, q, h, d, b, v: m // (2 * n * d * v * b),
        ),
        Mistake(
            "rounded up",
            "The last slot would not fit: round down.",
            lambda m, n, q, h, d, b, v: -(-m // (2 * n * h * d * v * b)),
            also=(
                lambda m, n, q, h, d, b, v: m // (2 * n * h * d * v * b) + 1,
                lambda m, n, q, h, d, b, v: round(m / (2 * n * h * d * v * b)),
            ),
        ),
        Mistake(
            "not rounded",
            "Slots are whole: round down.",
            lambda m, n, q, h, d, b, v: m / (2 * n * h * d * v * b),
        ),
    ),
    also_right=(
        Variant("floor of a quotient", lambda m, n, q, h, d, b, v: math.floor(m / (2 * n * h * d * v * b))),
        Variant("step by step", lambda m, n, q, h, d, b, v: m // v // d // h // n // b // 2),
    ),
    hints=(
        "How many bytes does one token take: in one head, in all heads of a block, in all blocks?",
        "2 · blocks · key-value heads · head size · bytes of a number, for each sequence. Then divide, and round down.",
    ),
)


# kv.window -------------------------------------------------------------------------------------------------------


def _window_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[[5, 1, 2, 3, 4], [0, 9, 2, 7, 4]]])
    gaps = _shuffled(generator, torch.arange(14) ** 2, 2, 3) + 150 * torch.arange(3)[:, None]  # heads keep their own
    long_and_short = torch.stack([_shuffled(generator, torch.arange(20) + first, 2) for first in (0, 13)])
    return [
        Case("two heads of five slots, by hand, 3 stay", (by_hand, 3)),
        Case("positions with gaps, 2 sequences, 3 heads", (gaps, 6)),
        Case("a long and a short sequence", (long_and_short, 7)),
        Case("one slot stays", (_shuffled(generator, 3 * torch.arange(9), 1, 2), 1)),
    ]


WINDOW = Exercise(
    id="kv.window",
    title="A window in two lines",
    difficulty=1,
    minutes=5,
    points=2,
    reference=_newest,
    cases=_window_cases,
    picture=_mask_picture,
    mistakes=(
        Mistake(
            "the oldest kept",
            "The lowest positions stay here. A window keeps the newest tokens: the highest positions.",
            lambda p, n: _newest(-p, n),
        ),
        Mistake(
            "the last slots",
            "The order of slots says nothing: a new token takes the place of one that left. Look at the positions.",
            lambda p, n: torch.arange(p.shape[-1]).expand(p.shape) >= p.shape[-1] - n,
        ),
        Mistake(
            "a threshold on the position",
            "Positions may have gaps, so that fewer than `budget` of them lie above last − budget. Choose by count.",
            lambda p, n: p > p.amax(dim=-1, keepdim=True) - n,
        ),
        Mistake(
            "one threshold for all",
            "Every sequence and head has tokens of its own: rank along the last axis.",
            lambda p, n: p > p.max() - n,
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a token leaves. In this course True means that it stays.",
            lambda p, n: ~_newest(p, n),
        ),
        Mistake(
            "order instead of ranks",
            "argsort says which slot comes first, second, …; it does not say the rank of each slot.",
            lambda p, n: p.argsort(dim=-1) >= p.shape[-1] - n,
        ),
        Mistake(
            "one too many",
            "budget + 1 slots stay: sorted[-budget] stays, those below it leave.",
            lambda p, n: _newest(p, n + 1),
        ),
    ),
    also_right=(
        Variant("ranks", lambda p, n: p.argsort(dim=-1).argsort(dim=-1) >= p.shape[-1] - n),
        Variant("the last one that stays", lambda p, n: p >= p.sort(dim=-1).values[..., -n, None]),
        Variant("zeros and ones", lambda p, n: _newest(p, n).float()),
    ),
    hints=(
        "position.topk(budget, dim=-1).indices are the slots that stay.",
        "Start from a mask of False and scatter True: mask.scatter(-1, indices, True).",
    ),
)


# kv.group_mass ---------------------------------------------------------------------------------------------------


def _group_mass(weights: Tensor, valid: Tensor, n_key_value: int) -> Tensor:
    return (weights * valid[:, None, :, None]).unflatten(1, (n_key_value, -1)).sum(dim=(2, 3))


def _agree_on_mass(got: Any, expected: Tensor, case: Case) -> str | None:
    """The sum over a group or its mean: they differ by the same factor everywhere and at all times."""
    difference = close(got, expected)
    n_group = case.arguments[0].shape[1] // case.arguments[2]
    return difference if difference and close(got, expected / n_group) else None


def _causal_rows(generator: torch.Generator, batch: int, n_heads: int, n: int) -> Tensor:
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    logits = 1.5 * torch.randn(batch, n_heads, n, n, generator=generator)
    return logits.masked_fill(future, float("-inf")).softmax(dim=-1)


def _group_mass_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[0.5, 0.5, 0.0], [0.75, 0.0, 0.25], [0.0, 0.25, 0.75], [0.0, 1.0, 0.0]])[None, :, None]

    def padded(batch: int, n_queries: int) -> Tensor:
        first = torch.arange(1, batch + 1)[:, None]
        return torch.arange(n_queries) >= first

    return [
        Case("one query, 4 heads on 2, by hand", (by_hand, torch.ones(1, 1, dtype=torch.bool), 2)),
        Case("2 sequences with padding, 6 heads on 2", (_softmax_rows(generator, 2, 6, 5, 8), padded(2, 5), 2)),
        Case("a prompt: queries and slots are the same tokens", (_causal_rows(generator, 2, 6, 7), padded(2, 7), 3)),
        Case("9 heads on 3, as in SmolLM2, 40 slots", (_softmax_rows(generator, 3, 9, 11, 40), padded(3, 11), 3)),
    ]


GROUP_MASS = Exercise(
    id="kv.group_mass",
    title="What a key receives",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_group_mass,
    cases=_group_mass_cases,
    agree=_agree_on_mass,
    mistakes=(
        Mistake(
            "wrong heads grouped",
            "Neighbouring query heads share a key-value head: 0, 1, 2 the first. Here heads a whole stride apart were "
            "added up.",
            lambda w, v, h: (w * v[:, None, :, None]).unflatten(1, (-1, h)).sum(dim=(1, 3)),
        ),
        Mistake(
            "summed over keys",
            "A row of attention sums to 1 over the keys, whoever asks. What a key receives is a sum over queries.",
            lambda w, v, h: (w * v[:, None, :, None]).unflatten(1, (h, -1)).sum(dim=(2, 4)),
        ),
        Mistake(
            "padding asked too",
            "Rows of padding mean nothing. Leave out the queries that are not valid.",
            lambda w, v, h: w.unflatten(1, (h, -1)).sum(dim=(2, 3)),
        ),
        Mistake(
            "all heads together",
            "Each key-value head has a cache of its own, and its group alone reads it.",
            lambda w, v, h: (w * v[:, None, :, None]).sum(dim=(1, 2))[:, None].expand(-1, h, -1),
            also=(lambda w, v, h: (w * v[:, None, :, None]).mean(dim=1).sum(dim=1)[:, None].expand(-1, h, -1),),
        ),
        Mistake(
            "groups not added up",
            "This has a row for each query head. A group shares one cache: add up its heads.",
            lambda w, v, h: (w * v[:, None, :, None]).sum(dim=2),
        ),
        Mistake(
            "mean over the queries",
            "A mean gives a prompt of 500 tokens the weight of one generated token when the next step is added. "
            "Sum over queries.",
            lambda w, v, h: _group_mass(w, v, h) / v.sum(dim=1)[:, None, None],
            also=(
                lambda w, v, h: (w * v[:, None, :, None]).unflatten(1, (h, -1)).mean(dim=(2, 3)),
                lambda w, v, h: (w * v[:, None, :, None]).unflatten(1, (h, -1)).mean(dim=3).sum(dim=2),
                lambda w, v, h: _group_mass(w, v, h) / v.sum(dim=1)[:, None, None] / (w.shape[1] // h),
            ),
        ),
        Mistake(
            "last query only",
            "This is what the newest token looks at. Add up over all queries.",
            lambda w, v, h: w[:, :, -1].unflatten(1, (h, -1)).sum(dim=2),
        ),
        Mistake(
            "largest head of the group",
            "The largest weight of a group was taken. The text asks for their sum.",
            lambda w, v, h: (w * v[:, None, :, None]).unflatten(1, (h, -1)).amax(dim=2).sum(dim=2),
        ),
        Mistake(
            "sequences added up",
            "Scores of all sequences were added. Each sequence keeps tokens of its own.",
            lambda w, v, h: _group_mass(w, v, h).sum(dim=0, keepdim=True).expand(len(w), -1, -1),
        ),
    ),
    also_right=(
        Variant(
            "reshape and einsum",
            lambda w, v, h: torch.einsum("bhgqn,bq->bhn", w.reshape(w.shape[0], h, -1, *w.shape[2:]), v.to(w.dtype)),
        ),
        Variant(
            "mean over the group",
            lambda w, v, h: (w * v[:, None, :, None]).sum(dim=2).unflatten(1, (h, -1)).mean(dim=2),
        ),
        Variant(
            "head by head",
            lambda w, v, h: torch.stack(
                [(each * v[:, None, :, None]).sum(dim=(1, 2)) for each in w.chunk(h, dim=1)], dim=1
            ),
        ),
        Variant("float64", lambda w, v, h: _group_mass(w.double(), v, h)),
    ),
    hints=(
        "Three sums: over the queries that are valid, over the heads of a group; and none over keys.",
        "weights.unflatten(1, (n_key_value, -1)) has shape (B, H, G, Q, N).",
        "Multiply by valid[:, None, :, None] first, then sum over axes 2 and 3 of the unflattened tensor.",
    ),
)


# kv.h2o_step -----------------------------------------------------------------------------------------------------


def _best(total: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    return _newest(total.masked_fill(_newest(position, recent), float("inf")), budget)


def _h2o_step(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[Tensor, Tensor]:
    total = score + new
    return _best(total, position, budget, recent), total


def _h2o_cases(generator: torch.Generator) -> list[Case]:
    by_hand = (
        torch.tensor([[3.0, 0.5, 1.0, 0.2, 0.0]]),
        torch.tensor([[0.1, 0.9, 0.2, 0.3, 0.1]]),
        torch.tensor([[0, 7, 2, 3, 8]]),
    )

    def drawn(n_heads: int, n: int, recent: int, n_seen: int) -> tuple[Tensor, Tensor, Tensor]:
        old = torch.randperm(n_seen - recent - 1, generator=generator)[: n - recent - 1]
        position = _shuffled(generator, torch.cat([old, torch.arange(n_seen - recent - 1, n_seen)]), n_heads)
        score = 4 * torch.rand(n_heads, n, generator=generator) ** 3 * (position < n_seen - 1)
        return score, 3 * _softmax_rows(generator, n_heads, n, spread=2.5), position

    return [
        Case("one head, five slots, by hand, 4 stay", (*by_hand, 4, 1)),
        Case("3 heads, 20 slots, one leaves", (*drawn(3, 20, 4, 60), 19, 4)),
        Case("4 heads, 30 slots, half of them leave", (*drawn(4, 30, 5, 90), 15, 5)),
        Case("2 heads, the recent ones take half of the budget", (*drawn(2, 24, 6, 40), 12, 6)),
    ]


def _recent_ones(position: Tensor, recent: int) -> Tensor:
    """True for as many newest tokens of each head."""
    return position.argsort(dim=-1).argsort(dim=-1) >= position.shape[-1] - recent


def _agree_on_step(got: Any, expected: tuple, case: Case) -> str | None:
    """As many stay, of the same worth, as many recent ones among them, with their scores; ties may fall either way."""
    if not isinstance(got, tuple) or len(got) != 2:
        return "expected two values: which slots stay, and the new score of each"
    keep, problem = _is_mask(got[0], expected[0])
    score, other = tensor_like(got[1], expected[1])
    if problem or other:
        return f"which slots stay: {problem}" if problem else f"the score: {other}"
    old, new, position, _, recent = case.arguments
    difference = _other_slots((old + new).double(), _recent_ones(position, recent), keep, expected[0].bool())
    if difference:
        return difference
    difference = close(score.double().masked_fill(~keep, 0), expected[1].double().masked_fill(~keep, 0))
    return f"the new score: {difference}" if difference else None


def _other_slots(total: Tensor, newest: Tensor, keep: Tensor, right: Tensor) -> str | None:
    """In words how the slots that stay differ in number, newest tokens or scores, for the first head that does."""
    for head, (mine, theirs) in enumerate(zip(keep, right, strict=True)):
        if mine.sum() != theirs.sum():
            return f"head {head} keeps {int(mine.sum())} slots, expected {int(theirs.sum())}"
        if (mine & newest[head]).sum() != (theirs & newest[head]).sum():
            n, of = int((mine & newest[head]).sum()), int((theirs & newest[head]).sum())
            return f"head {head} keeps {n} of the {int(newest[head].sum())} newest tokens, expected {of}"
        if not torch.allclose(total[head][mine].sort().values, total[head][theirs].sort().values, rtol=1e-5, atol=1e-7):
            worth = [float(total[head][each].sum()) for each in (mine, theirs)]
            return f"head {head} keeps scores of {worth[0]:.4g} together, expected {worth[1]:.4g}"
    return None


H2O_STEP = Exercise(
    id="kv.h2o_step",
    title="Accumulate and evict",
    difficulty=3,
    minutes=10,
    points=4,
    reference=_h2o_step,
    cases=_h2o_cases,
    agree=_agree_on_step,
    picture=lambda case, got, expected: _mask_picture(case, got[0], expected[0]),
    mistakes=(
        Mistake(
            "this step forgotten",
            "The attention of this step was not added to the score.",
            lambda s, n, p, b, r: (_best(s, p, b, r), s),
        ),
        Mistake(
            "this step alone",
            "This score has no memory: one query decides. H2O adds up over all steps.",
            lambda s, n, p, b, r: (_best(n, p, b, r), n),
        ),
        Mistake(
            "chosen before adding",
            "Who stays was decided on the old scores. Add this step first, then decide.",
            lambda s, n, p, b, r: (_best(s, p, b, r), s + n),
        ),
        Mistake(
            "recent tokens not protected",
            "A token that has just come has had no time to collect anything. The newest `recent` stay in any case.",
            lambda s, n, p, b, r: (_newest(s + n, b), s + n),
        ),
        Mistake(
            "last slots protected",
            "The newest tokens are those with the highest positions, wherever their slots are.",
            lambda s, n, p, b, r: (_best(s + n, torch.arange(p.shape[1]).expand(p.shape), b, r), s + n),
        ),
        Mistake(
            "recent tokens on top",
            "The recent tokens count towards the budget: budget − recent others stay.",
            lambda s, n, p, b, r: (_best(s + n, p, min(b + r, p.shape[1]), r), s + n),
        ),
        Mistake(
            "best ones dropped",
            "The heaviest hitters left. Drop the lowest scores.",
            lambda s, n, p, b, r: (_best(-s - n, p, b, r), s + n),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a token leaves. In this course True means that it stays.",
            lambda s, n, p, b, r: (~_best(s + n, p, b, r), s + n),
        ),
        Mistake(
            "heads decide together",
            "The scores of all heads were added. Each key-value head keeps tokens of its own.",
            lambda s, n, p, b, r: (_best((s + n).sum(dim=0).expand(s.shape), p, b, r), s + n),
            also=(lambda s, n, p, b, r: (_best((s + n).mean(dim=0).expand(s.shape), p, b, r), s + n),),
        ),
        Mistake(
            "the mean of old and new",
            "A mean halves the past with every step, so that the score forgets. H2O's score is a sum.",
            lambda s, n, p, b, r: (_best(s + n, p, b, r), (s + n) / 2),
        ),
        Mistake(
            "protection left in the score",
            "The infinity that protects recent tokens was returned: they would stay for ever. Put it into a copy.",
            lambda s, n, p, b, r: (_best(s + n, p, b, r), (s + n).masked_fill(_newest(p, r), float("inf"))),
        ),
    ),
    also_right=(
        Variant("in place, with a threshold for the recent", lambda s, n, p, b, r: _h2o_in_place(s, n, p, b, r)),
        Variant("head by head, sorting", lambda s, n, p, b, r: _h2o_by_head(s, n, p, b, r)),
        Variant("scores of those that left set to zero", lambda s, n, p, b, r: _h2o_zeroed(s, n, p, b, r)),
    ),
    hints=(
        "First the new score of every slot: old plus new. Then choose among the slots that are not recent.",
        "Set a copy of the scores to infinity where the token is recent, and take the `budget` highest.",
        "Recent are the slots in position.topk(recent, dim=1).indices.",
    ),
)


def _h2o_in_place(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[Tensor, Tensor]:
    score += new
    protected = position > position.amax(dim=1, keepdim=True) - recent
    leaving = torch.where(protected, score.max() + 1, score).topk(score.shape[1] - budget, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(1, leaving, False), score


def _h2o_by_head(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[list, Tensor]:
    rows = []
    for total, places in zip((score + new).tolist(), position.tolist(), strict=True):
        by_age = sorted(range(len(places)), key=places.__getitem__)
        rest = sorted(by_age[: len(by_age) - recent], key=total.__getitem__, reverse=True)
        stay = set(by_age[len(by_age) - recent :]) | set(rest[: budget - recent])
        rows.append([slot in stay for slot in range(len(places))])
    return rows, score + new


def _h2o_zeroed(score: Tensor, new: Tensor, position: Tensor, budget: int, recent: int) -> tuple[Tensor, Tensor]:
    keep, total = _h2o_step(score, new, position, budget, recent)
    return keep, total * keep


# kv.deferred -----------------------------------------------------------------------------------------------------


def _leading(right: Tensor) -> int:
    return int(right.long().cumprod(dim=0).sum())


def _deferred(before: Tensor, after: Tensor, held_back: Tensor, n_prefix: int) -> int:
    return _leading(after[n_prefix - 1 : -1].argmax(dim=-1) == held_back[n_prefix:])


def _retrieval(generator: torch.Generator, n_prefix: int, right: list[int], known: bool, prefix_right: bool) -> tuple:
    """Logits that are right about the answer's tokens where `right` says so, and the prompt's about its first if known.

    The prompt's last prediction is right about the token that comes next, the first one held back.
    """
    n_words, n_prompt, n_held_back = 40, 6, n_prefix + len(right)
    held_back = torch.randperm(n_words, generator=generator)[:n_held_back]
    before, after = (
        torch.randn(n_prompt, n_words, generator=generator),
        torch.randn(n_held_back, n_words, generator=generator),
    )
    right_at = [*([int(prefix_right)] * (n_prefix - 1)), *right]
    for place, says in enumerate(right_at):
        after[place, held_back[place + 1]] = 9.0 if says else -9.0
    before[-1, held_back[n_prefix]] = 9.0 if known else -9.0
    return before, after, held_back, n_prefix


def _deferred_cases(generator: torch.Generator) -> list[Case]:
    return [
        Case(
            "a prefix of two, an answer of five: three, then a slip",
            _retrieval(generator, 2, [1, 1, 1, 0, 1], True, True),
        ),
        Case("the prompt knew the first token, the cache lost it", _retrieval(generator, 3, [0, 1, 1], True, True)),
        Case(
            "all six right, though the prompt did not know", _retrieval(generator, 1, [1, 1, 1, 1, 1, 1], False, True)
        ),
        Case("four right, the prefix surprised the model", _retrieval(generator, 4, [1, 1, 1, 1, 0, 1], True, False)),
        Case("one right", _retrieval(generator, 2, [1, 0, 0, 1], False, True)),
    ]


DEFERRED = Exercise(
    id="kv.deferred",
    title="Ask after the eviction",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_deferred,
    cases=_deferred_cases,
    mistakes=(
        Mistake(
            "the leak",
            "The answer's first token was taken from the prompt's last prediction, made while nothing had left. "
            "The last token of the prefix predicts it, after the eviction.",
            lambda b, a, h, n: _leading(torch.cat([b[-1:], a[n:-1]]).argmax(dim=-1) == h[n:]),
        ),
        Mistake(
            "shifted by one",
            "Row i predicts the token after token i. Compare the row before the answer's first token with that token.",
            lambda b, a, h, n: _leading(a[n:].argmax(dim=-1) == h[n:]),
        ),
        Mistake(
            "all matches counted",
            "Tokens that are right after a wrong one were counted. Stop at the first that is wrong.",
            lambda b, a, h, n: int((a[n - 1 : -1].argmax(dim=-1) == h[n:]).sum()),
        ),
        Mistake(
            "prefix counted too",
            "The prefix was given to the model; only the tokens of the answer count.",
            lambda b, a, h, n: _leading(a[:-1].argmax(dim=-1) == h[1:]),
        ),
        Mistake(
            "all or nothing",
            "This says whether the whole answer is right. Return how many of its first tokens are.",
            lambda b, a, h, n: int((a[n - 1 : -1].argmax(dim=-1) == h[n:]).all()),
        ),
        Mistake(
            "a share",
            "This is the share of the answer. Return the number of tokens.",
            lambda b, a, h, n: _deferred(b, a, h, n) / (len(h) - n),
        ),
    ),
    also_right=(
        Variant("a loop that stops", lambda b, a, h, n: _deferred_by_loop(a, h, n)),
        Variant("first wrong one", lambda b, a, h, n: _deferred_by_first_wrong(a, h, n)),
        Variant("a tensor", lambda b, a, h, n: (a[n - 1 : -1].argmax(-1) == h[n:]).int().cumprod(0).sum()),
    ),
    hints=(
        "Which row of which logits predicts the first token of the answer, held_back[n_prefix]?",
        "after[n_prefix − 1 : −1] predict held_back[n_prefix:]. The prompt's logits are not needed at all.",
        "A running product of zeros and ones stays 1 up to the first zero: cumprod.",
    ),
)


def _deferred_by_loop(after: Tensor, held_back: Tensor, n_prefix: int) -> int:
    n = 0
    while n_prefix + n < len(held_back) and after[n_prefix + n - 1].argmax() == held_back[n_prefix + n]:
        n += 1
    return n


def _deferred_by_first_wrong(after: Tensor, held_back: Tensor, n_prefix: int) -> int:
    wrong = (after.argmax(-1).roll(1)[n_prefix:] != held_back[n_prefix:]).nonzero()
    return wrong[0].item() if len(wrong) else len(held_back) - n_prefix


# kv.scissorhands -------------------------------------------------------------------------------------------------


def _low_counts(weights: Tensor, asked_at: Tensor, position: Tensor) -> Tensor:
    """(N,): of how many queries that could see the token its weight, averaged over the group, was below 1/t."""
    low = weights.mean(dim=0) < 1 / (asked_at[:, None] + 1)
    return (low & (position <= asked_at[:, None])).sum(dim=0)


def _fewest(count: Tensor, position: Tensor, recent: int, n_drop: int) -> Tensor:
    """All stay but those with the highest counts that are not recent; ties leave from the front."""
    count = count.double().masked_fill(_newest(position, recent), float("-inf"))
    leaving = count.sort(descending=True, stable=True).indices[:n_drop]
    return torch.ones_like(position, dtype=torch.bool).index_fill(0, leaving, False)


def _n_drop(position: Tensor, budget: int) -> int:
    """Nothing within the budget; beyond it, all but the half that stays."""
    return len(position) - (budget - budget // 2) if len(position) > budget else 0


def _scissorhands(weights: Tensor, asked_at: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    return _fewest(_low_counts(weights, asked_at, position), position, recent, _n_drop(position, budget))


def _history(
    generator: torch.Generator, n_group: int, n_queries: int, n: int, n_seen: int, n_close: int = 0
) -> tuple[Tensor, ...]:
    """Attention of the last queries of a text of which n tokens are left: three in five of the old ones are important.

    The newest half of the tokens that came meanwhile are not, and few queries could see them. `n_close` old tokens get
    a little more than an even share from every query, less than if it had seen one token fewer.
    """
    old = torch.randperm(n_seen - n_queries, generator=generator)[: n - n_queries]
    position = _shuffled(generator, torch.cat([old, torch.arange(n_seen - n_queries, n_seen)]), 1)[0]
    asked_at = torch.arange(n_seen - n_queries, n_seen)
    future = position > asked_at[:, None]
    important = (torch.rand(n, generator=generator) < 0.6) & (position < n_seen - n_queries // 2)
    important = important * (2.5 + 2 * torch.rand(n, generator=generator))
    logits = important + 1.5 * torch.randn(n_group, n_queries, n, generator=generator)
    weights, close = logits.masked_fill(future, float("-inf")).softmax(dim=-1), torch.isin(position, old[:n_close])
    share = (0.5 / asked_at + 0.5 / (asked_at + 1))[:, None]
    rest = weights.masked_fill(close, 0)
    rest = rest / rest.sum(dim=-1, keepdim=True) * (1 - n_close * share)
    return torch.where(close, share, rest), asked_at, position


def _scissorhands_cases(generator: torch.Generator) -> list[Case]:
    # Two heads, three queries at 3, 4 and 5 of slots that hold tokens 0, 2, 3, 4 and 5. Means below 1/4, 1/5 and 1/6:
    # never, 3 times, once, once and (token 5, asked once) never. Token 5 is recent, and one more of five may stay.
    by_hand = torch.tensor(
        [
            [[0.60, 0.10, 0.30, 0.00, 0.00], [0.50, 0.05, 0.15, 0.30, 0.00], [0.30, 0.10, 0.20, 0.10, 0.30]],
            [[0.40, 0.20, 0.40, 0.00, 0.00], [0.40, 0.15, 0.15, 0.30, 0.00], [0.30, 0.10, 0.20, 0.10, 0.30]],
        ]
    )
    positions = torch.tensor([0, 2, 3, 4, 5])
    # Token 0 gets between 1/5 and 1/4, then between 1/6 and 1/5: never low. Token 1 is low once, and leaves.
    close = torch.tensor([[[0.22, 0.58, 0.10, 0.10, 0.00], [0.18, 0.05, 0.10, 0.07, 0.60]]])
    few = torch.tensor([0, 1, 2, 4, 5])
    return [
        Case("two heads, three queries, five slots, by hand", (by_hand, torch.tensor([3, 4, 5]), positions, 4, 1)),
        Case("one head whose weights lie close to 1/t", (close, torch.tensor([4, 5]), few, 4, 1)),
        Case("31 slots of 100 tokens, a budget of 30", (*_history(generator, 3, 12, 31, 100, 7), 30, 4)),
        Case("40 slots of 60 tokens, a budget of 36", (*_history(generator, 3, 16, 40, 60, 7), 36, 5)),
        Case("one head, an odd budget of 25", (*_history(generator, 1, 10, 26, 80), 25, 3)),
        Case("five heads, 50 slots of 400 tokens", (*_history(generator, 5, 20, 50, 400), 44, 6)),
    ]


def _times_overlooked(weights: Tensor, asked_at: Tensor, position: Tensor) -> Tensor:
    """(N,): of the queries after a token, those that are left when the ones that gave it its share are taken away."""
    n_after = (position <= asked_at[:, None]).sum(dim=0)
    shared = weights.mean(dim=0) >= 1 / (asked_at[:, None] + 1)
    return n_after - (shared & (position <= asked_at[:, None])).sum(dim=0)


def _agree_on_counts(got: Any, expected: Tensor, case: Case) -> str | None:
    """As many stay, the same recent ones among them, with the same counts: which of two equal counts leaves is free."""
    got, problem = _is_mask(got, expected)
    if problem:
        return problem
    expected = expected.bool()
    if got.sum() != expected.sum():
        return f"{int(got.sum())} of {len(got)} slots stay, expected {int(expected.sum())}"
    weights, asked_at, position, _, recent = case.arguments
    newest = _recent_ones(position, recent)
    if (got & newest).sum() != (expected & newest).sum():
        return (
            f"{int((got & newest).sum())} of the {recent} newest tokens stay, expected {int((expected & newest).sum())}"
        )
    count = _times_overlooked(weights.double(), asked_at, position)
    mine, right = (count[keep].sort().values for keep in (got, expected))
    if torch.equal(mine, right):
        return None
    return f"what stays was low {int(mine.sum())} times together, expected {int(right.sum())}"


SCISSORHANDS = Exercise(
    id="kv.scissorhands",
    title="Count how often nobody looks",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_scissorhands,
    cases=_scissorhands_cases,
    agree=_agree_on_counts,
    picture=_mask_picture,
    mistakes=(
        Mistake(
            "not asked yet, counted as low",
            "A query gives no weight to tokens that come after it. That says nothing about them: count how often it "
            "was low, not how often it was high, and only for queries at or behind its position.",
            lambda w, q, p, b, r: _fewest((w.mean(dim=0) < 1 / (q[:, None] + 1)).sum(dim=0), p, r, _n_drop(p, b)),
            also=(
                lambda w, q, p, b, r: _fewest(
                    -((w.mean(dim=0) >= 1 / (q[:, None] + 1)) & (p <= q[:, None])).sum(dim=0), p, r, _n_drop(p, b)
                ),
            ),
        ),
        Mistake(
            "recent tokens not protected",
            "The newest `recent` tokens stay in any case: their count is of few queries.",
            lambda w, q, p, b, r: _fewest(_low_counts(w, q, p), p, 0, _n_drop(p, b)),
        ),
        Mistake(
            "last slots protected",
            "The newest tokens are those with the highest positions, wherever their slots are.",
            lambda w, q, p, b, r: _fewest(_low_counts(w, q, p), torch.arange(len(p)), r, _n_drop(p, b)),
        ),
        Mistake(
            "important ones dropped",
            "The tokens that were low most rarely left. A high count of low weights means: drop.",
            lambda w, q, p, b, r: _fewest(-_low_counts(w, q, p), p, r, _n_drop(p, b)),
        ),
        Mistake(
            "sum over the group",
            "The sum of a group's heads was compared with 1/t, which is what one head spreads evenly. Take their mean.",
            lambda w, q, p, b, r: _scissorhands(w.sum(dim=0, keepdim=True), q, p, b, r),
        ),
        Mistake(
            "heads counted one by one",
            "Each head was compared with 1/t by itself. Average the weights over the group first.",
            lambda w, q, p, b, r: _fewest(sum(_low_counts(each[None], q, p) for each in w), p, r, _n_drop(p, b)),
        ),
        Mistake(
            "slots instead of tokens seen",
            "1/t is the even share of the t tokens that the query has seen, also of those that have left: t is its "
            "position + 1, not the number of slots.",
            lambda w, q, p, b, r: _fewest(
                ((w.mean(dim=0) < 1 / len(p)) & (p <= q[:, None])).sum(dim=0), p, r, _n_drop(p, b)
            ),
        ),
        Mistake(
            "t one too small",
            "Positions count from 0: a query at position p has seen p + 1 tokens, itself among them.",
            lambda w, q, p, b, r: _fewest(
                ((w.mean(dim=0) < 1 / q[:, None]) & (p <= q[:, None])).sum(dim=0), p, r, _n_drop(p, b)
            ),
        ),
        Mistake(
            "only down to the budget",
            "Then the next token would bring the next eviction. Half of the budget leaves at once, so that it is rare.",
            lambda w, q, p, b, r: _fewest(_low_counts(w, q, p), p, r, max(0, len(p) - b)),
        ),
        Mistake(
            "mass instead of counts",
            "This is H2O: the lowest sums of attention leave. Scissorhands counts how often a weight is low.",
            lambda w, q, p, b, r: _fewest(-w.mean(dim=0).sum(dim=0), p, r, _n_drop(p, b)),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a token leaves. In this course True means that it stays.",
            lambda w, q, p, b, r: ~_scissorhands(w, q, p, b, r),
        ),
    ),
    also_right=(
        Variant("query by query", lambda w, q, p, b, r: _scissorhands_by_query(w, q, p, b, r)),
        Variant("ties from behind", lambda w, q, p, b, r: _scissorhands(w.flip(2), q, p.flip(0), b, r).flip(0)),
        Variant("zeros and ones", lambda w, q, p, b, r: _scissorhands(w, q, p, b, r).float()),
    ),
    hints=(
        "A table of queries and slots: is the group's mean below 1/t, and could the query see the token?",
        "t = query_position + 1, one threshold for each query: compare with 1 / (query_position[:, None] + 1).",
        "Count the True entries of each column, set the recent ones to −1, and keep the lowest budget − budget // 2.",
    ),
)


def _scissorhands_by_query(weights: Tensor, asked_at: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    keep, n = torch.ones(len(position)), len(position)
    if n <= budget:
        return keep
    count = [0] * n
    for row, at in zip(weights.mean(0).tolist(), asked_at.tolist(), strict=True):
        for slot in range(n):
            count[slot] += position[slot] <= at and row[slot] * (at + 1) < 1
    old = sorted(range(n), key=position.tolist().__getitem__)[: n - recent]
    for slot in sorted(old, key=count.__getitem__)[budget - budget // 2 - recent :]:
        keep[slot] = 0
    return keep


# kv.merge --------------------------------------------------------------------------------------------------------


def _merge(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float, by: str = "softmax", near: Any = None
) -> tuple[Tensor, Tensor]:
    similarity = cosine_similarity(key[None], keys) if near is None else near(key, value, keys, values)
    nearest = int(similarity.argmax())
    share = float(cosine_similarity(key, keys[nearest], dim=0))
    if share < threshold:
        return keys, values
    own, its = math.e / (math.e + math.exp(share)), math.exp(share) / (math.e + math.exp(share))
    old, new = {
        "softmax": (own, its),
        "half": (0.5, 0.5),
        "public": (0.5, share / 2),
        "swapped": (its, own),
        "added": (math.e, math.exp(share)),
        "cosines": (1 / (1 + share), share / (1 + share)),
        "replaced": (0.0, 1.0),
    }[by]
    keys, values = keys.clone(), values.clone()
    keys[nearest] = old * keys[nearest] + new * key
    values[nearest] = old * values[nearest] + new * value
    return keys, values


def _at_cosine(generator: torch.Generator, vector: Tensor, cosine: float, length: float) -> Tensor:
    """A vector of that length, at that cosine to another."""
    along, across = vector / vector.norm(), torch.randn(len(vector), generator=generator)
    across = across - (across @ along) * along
    return length * (cosine * along + (1 - cosine**2) ** 0.5 * across / across.norm())


def _merge_cases(generator: torch.Generator) -> list[Case]:
    # Cosines 0.8 with (1, 0) and 0.6 with (0, 5): merged with weights e and e^0.8 over their sum, 0.55 and 0.45
    by_hand = (torch.tensor([0.8, 0.6]), torch.tensor([0.0, 9.0]))
    held = (torch.tensor([[1.0, 0.0], [0.0, 5.0]]), torch.tensor([[1.8, 0.0], [3.0, 4.0]]))

    def drawn(n: int, size: int, cosine: float, threshold: float) -> tuple:
        """The nearest key in direction is short: another has the larger product and the smaller distance."""
        keys, values = torch.randn(n, size, generator=generator), torch.randn(n, size, generator=generator)
        slot, length = int(torch.randint(n, (), generator=generator)), 1 + torch.rand(n, 1, generator=generator)
        length[slot] = 0.2
        keys = length * keys / keys.norm(dim=1, keepdim=True)
        key = _at_cosine(generator, keys[slot], cosine, length=2.5)
        keys[(slot + 2) % n] = _at_cosine(generator, key, 0.62, length=2.5)
        keys[(slot + 3) % n] = _at_cosine(generator, key, -0.99, length=1.0)  # as far away as can be
        value = values[(slot + 1) % n] + 0.3 * torch.randn(size, generator=generator)
        return key, value, keys, values, threshold

    return [
        Case("two slots, by hand: the shorter key is nearer in direction", (*by_hand, *held, 0.5)),
        Case("12 slots, much alike", drawn(12, 16, 0.97, 0.6)),
        Case("9 slots, alike enough", drawn(9, 24, 0.75, 0.7)),
        Case("nothing is near: the token is dropped", drawn(10, 32, 0.7, 0.9)),
        Case("15 slots, a low threshold", drawn(15, 20, 0.85, 0.1)),
        Case("not quite near enough", drawn(8, 28, 0.78, 0.8)),
    ]


MERGE = Exercise(
    id="kv.merge",
    title="Merge instead of drop",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_merge,
    cases=_merge_cases,
    mistakes=(
        Mistake(
            "weights that do not add up to 1",
            "Then keys and values shrink or grow with every merge; in the authors' code, with s/2 and 1/2, they "
            "shrink. Divide by e + e^s.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, "public"),
            also=(lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, "added"),),
        ),
        Mistake(
            "half and half",
            "Both got the same weight. The evicted token counts e^s, the kept one e.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, "half"),
        ),
        Mistake(
            "weights swapped",
            "The kept token has the smaller weight here. It counts e, the evicted one e^s, which is less.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, "swapped"),
        ),
        Mistake(
            "cosines as weights",
            "The cosines themselves were taken, s and 1. Take e to their power: a softmax over the two.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, "cosines"),
        ),
        Mistake(
            "the kept token overwritten",
            "The evicted token took the slot. Both should be in it.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, "replaced"),
        ),
        Mistake(
            "product instead of cosine",
            "The dot product favours long keys. Divide by both lengths.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, near=lambda k, v, ks, vs: ks @ k),
        ),
        Mistake(
            "values compared",
            "The nearest slot is found by keys; values follow.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, near=lambda k, v, ks, vs: cosine_similarity(v[None], vs)),
        ),
        Mistake(
            "nearest by distance",
            "Distance compares lengths too. Attention reads directions: take the cosine.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, t, near=lambda k, v, ks, vs: -(ks - k).norm(dim=1)),
        ),
        Mistake(
            "merged whatever the similarity",
            "Below the threshold the token is dropped, and nothing changes.",
            lambda k, v, ks, vs, t: _merge(k, v, ks, vs, -1.0),
        ),
        Mistake(
            "always dropped",
            "Nothing changed. A key that is as near as the threshold is merged.",
            lambda k, v, ks, vs, t: (ks, vs),
        ),
        Mistake(
            "values left out",
            "Only the key was merged. What the token had to say is in its value.",
            lambda k, v, ks, vs, t: (_merge(k, v, ks, vs, t)[0], vs),
        ),
        Mistake(
            "merged into all",
            "Every slot took something. Only the nearest one does.",
            lambda k, v, ks, vs, t: _merge_into_all(k, v, ks, vs, t),
        ),
    ),
    also_right=(
        Variant("in place, float64 weights", lambda k, v, ks, vs, t: _merge_in_place(k, v, ks, vs, t)),
        Variant("towards the evicted one", lambda k, v, ks, vs, t: _merge_by_lerp(k, v, ks, vs, t)),
        Variant("float64", lambda k, v, ks, vs, t: _merge(k.double(), v.double(), ks.double(), vs.double(), t)),
    ),
    hints=(
        "The cosine is the dot product over both lengths; torch.nn.functional.cosine_similarity(key[None], keys).",
        "Let s be the highest cosine, at slot j. Below the threshold return keys and values as they are.",
        "Otherwise keys[j] becomes (e · keys[j] + e^s · key) / (e + e^s), and values[j] likewise.",
    ),
)


def _merge_into_all(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float) -> tuple:
    similarity = cosine_similarity(key[None], keys)
    if similarity.max() < threshold:
        return keys, values
    share = (similarity - 1).sigmoid()[:, None]
    return torch.lerp(keys, key.expand_as(keys), share), torch.lerp(values, value.expand_as(values), share)


def _merge_in_place(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float) -> tuple:
    cosine = (keys.double() @ key.double()) / keys.double().norm(dim=1) / key.double().norm()
    best, nearest = cosine.max(dim=0)
    if best >= threshold:
        share = torch.softmax(torch.stack([torch.ones_like(best), best]), dim=0)
        for held, new in ((keys, key), (values, value)):
            held[nearest] *= share[0]
            held[nearest] += share[1] * new
    return keys, values


def _merge_by_lerp(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, threshold: float) -> tuple:
    cosine = keys / keys.norm(dim=1, keepdim=True) @ (key / key.norm())
    weight = torch.zeros(len(keys), 1)
    if cosine.max() >= threshold:
        weight[cosine.argmax()] = (cosine.max() - 1).sigmoid()
    return torch.lerp(keys, key.expand_as(keys), weight), torch.lerp(values, value.expand_as(values), weight)


# kv.quantize -----------------------------------------------------------------------------------------------------


def _quantize(row: Tensor, n_bits: int, group_size: int, n_steps: int | None = None, rounded: Any = torch.round):
    groups = row.reshape(-1, group_size)
    low = groups.amin(dim=1, keepdim=True)
    step = (groups.amax(dim=1, keepdim=True) - low) / (n_steps or 2**n_bits - 1)
    return (low + rounded((groups - low) / step.clamp(min=1e-30)) * step).reshape(row.shape)


def _quantize_cases(generator: torch.Generator) -> list[Case]:
    # Groups 0 … 3 and −6 … 6 in two bits: steps 1 and 4; 0.4 falls to 0, and −1 to −2
    by_hand = torch.tensor([0.0, 0.4, 2.2, 3.0, -6.0, -1.0, 3.5, 6.0])
    loud = torch.randn(64, generator=generator)
    loud[17] *= 40
    same = torch.randn(24, generator=generator)
    same[8:16] = 0.7
    return [
        Case("two groups of four, two bits, by hand", (by_hand, 2, 4)),
        Case("64 numbers, one of them loud, 4 bits", (loud, 4, 16)),
        Case("a group whose numbers are all the same", (same, 4, 8)),
        Case("far from zero, 3 bits", (9 + torch.randn(40, generator=generator), 3, 10)),
    ]


QUANTIZE = Exercise(
    id="kv.quantize",
    title="Four bits on top",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_quantize,
    cases=_quantize_cases,
    mistakes=(
        Mistake(
            "one grid for the row",
            "Lowest and highest were taken over the whole row, so that one loud number makes all others coarse. Each "
            "group has its own.",
            lambda x, b, g: _quantize(x, b, len(x)),
        ),
        Mistake(
            "one step too many",
            "2^b levels have 2^b − 1 steps between them; here the highest number would need a level more.",
            lambda x, b, g: _quantize(x, b, g, 2**b),
        ),
        Mistake(
            "rounded down",
            "floor makes every number smaller, by half a step on average. Round to the nearest.",
            lambda x, b, g: _quantize(x, b, g, rounded=lambda code: (code + 1e-4).floor()),
            also=(lambda x, b, g: _quantize(x, b, g, rounded=torch.floor),),
        ),
        Mistake(
            "centred at zero",
            "The grid runs from −max to max, and half of it is empty where numbers have one sign. Start at the lowest.",
            lambda x, b, g: _quantize_symmetric(x, b, g),
        ),
        Mistake(
            "lowest not added back",
            "The grid starts at the group's lowest number: add it when the codes are turned back.",
            lambda x, b, g: _quantize(x, b, g) - x.reshape(-1, g).amin(dim=1).repeat_interleave(g),
        ),
        Mistake(
            "codes returned",
            "These are the codes. Turn them back: lowest + code · step.",
            lambda x, b, g: _codes(x, b, g),
        ),
        Mistake(
            "groups a stride apart",
            "A group is group_size neighbours: reshape(-1, group_size).",
            lambda x, b, g: _quantize(x.reshape(g, -1).T.reshape(-1), b, g).reshape(-1, g).T.reshape(-1),
        ),
        Mistake(
            "nothing to divide by",
            "Where all numbers of a group are the same the step is 0, and 0 / 0 is no number. Keep the step above 0.",
            lambda x, b, g: _quantize_dividing_by_zero(x, b, g),
        ),
    ),
    also_right=(
        Variant("number by number", lambda x, b, g: _quantize_by_number(x, b, g)),
        Variant("ties upwards", lambda x, b, g: _quantize(x, b, g, rounded=lambda code: (code + 0.5).floor())),
        Variant("float64", lambda x, b, g: _quantize(x.double(), b, g)),
    ),
    hints=(
        "For each group: lowest, highest, and a step of (highest − lowest) / (2^bits − 1).",
        "The code is round((x − lowest) / step), the value lowest + code · step.",
        "Where the step is 0, use any other: the codes are 0 anyway.",
    ),
)


def _quantize_symmetric(row: Tensor, n_bits: int, group_size: int) -> Tensor:
    groups = row.reshape(-1, group_size)
    step = groups.abs().amax(dim=1, keepdim=True) / (2 ** (n_bits - 1) - 1)
    return ((groups / step).round() * step).reshape(row.shape)


def _codes(row: Tensor, n_bits: int, group_size: int) -> Tensor:
    groups = row.reshape(-1, group_size)
    low = groups.amin(dim=1, keepdim=True)
    step = (groups.amax(dim=1, keepdim=True) - low) / (2**n_bits - 1)
    return ((groups - low) / step.clamp(min=1e-30)).round().reshape(row.shape)


def _quantize_dividing_by_zero(row: Tensor, n_bits: int, group_size: int) -> Tensor:
    groups = row.reshape(-1, group_size)
    low = groups.amin(dim=1, keepdim=True)
    step = (groups.amax(dim=1, keepdim=True) - low) / (2**n_bits - 1)
    return (low + ((groups - low) / step).round() * step).reshape(row.shape)


def _quantize_by_number(row: Tensor, n_bits: int, group_size: int) -> list[float]:
    found = []
    for group in row.split(group_size):
        low, high = float(group.min()), float(group.max())
        grid = [low + (high - low) * level / (2**n_bits - 1) for level in range(2**n_bits)]
        found += [min(grid, key=lambda level, x=float(x): abs(level - x)) for x in group]
    return found


EXERCISES = (SLOTS, WINDOW, GROUP_MASS, H2O_STEP, DEFERRED, SCISSORHANDS, MERGE, QUANTIZE)
