"""Lesson 04: the exercises on Wanda, their cases and their named mistakes.

Dimension key: O outputs of a layer, I its inputs, N tokens, B sequences, T tokens in one.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_masks

LESSON = "04 Wanda"


def _lowest(score: Tensor, n: int) -> Tensor:
    """Keep mask that drops the n lowest of each row."""
    order = score.sort(dim=1, stable=True).indices[:, :n]
    return torch.ones_like(score, dtype=torch.bool).scatter(1, order, False)


def _agree_on_ranks(got, expected: Tensor) -> str | None:
    """Two scores agree when they drop the same weights of every row: their scale, or their square, changes nothing."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    got, expected = got.double(), expected.double()
    if not got.isfinite().all():
        return f"{int((~got.isfinite()).sum())} entries are NaN or infinite"
    # Ties, and near ties of float32, may fall either way: compare the worth of what is dropped, not the set.
    order = got.argsort(dim=1, stable=True)
    dropped, least = expected.gather(1, order).cumsum(1), expected.sort(dim=1).values.cumsum(1)
    early = (dropped > least + 1e-5 * expected.abs().amax(dim=1, keepdim=True)).nonzero().tolist()
    if not early:
        return None
    row, last = early[0]
    worth = expected[row, order[row, last]].item()
    return f"row {row}: your score drops a weight worth {worth:.4g} among its {last + 1} lowest, too early"


def _agree_on_keep(groups: Callable[[Tensor, Case], Tensor]) -> Callable[[Any, Tensor, Case], str | None]:
    """Masks agree when every group keeps as many, of the same scores: which of two equal scores stays is free.

    Args:
        groups: brings a matrix into the shape (comparison groups, entries of a group).
    """

    def agree(got: Any, expected: Tensor, case: Case) -> str | None:
        got, problem = tensor_like(got, expected)
        if problem:
            return problem
        if not ((got == 0) | (got == 1)).all():
            return "the mask holds values other than True and False: return which weights stay, not the weights"
        score, mine, right = (groups(x, case) for x in (case.arguments[0], got.bool(), expected.bool()))
        count = mine.sum(1), right.sum(1)
        kept = [score.double().masked_fill(~keep, torch.inf).sort(dim=1).values for keep in (mine, right)]
        wrong = ((count[0] != count[1]) | (kept[0] != kept[1]).any(1)).nonzero().flatten().tolist()
        if not wrong:
            return None
        first = wrong[0]
        worth = [score[first][keep[first]].sum() for keep in (mine, right)]
        return (
            f"group {first} keeps {int(count[0][first])} entries worth {worth[0]:.4g} together, expected "
            f"{int(count[1][first])} worth {worth[1]:.4g}; {len(wrong)} of {len(score)} groups differ"
        )

    return agree


_BY_ROW = _agree_on_keep(lambda x, case: x)
_BY_COLUMN = _agree_on_keep(lambda x, case: x.T)
_BY_M_INPUTS = _agree_on_keep(lambda x, case: x.reshape(-1, case.arguments[2]))


# wanda.score -----------------------------------------------------------------------------------------------------


def _score_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[4.0, -3.0, 2.0, 1.0], [-1.0, 2.0, 3.0, -4.0], [0.5, 6.0, -5.0, 0.25]])
    inputs = torch.tensor([[3.0, 0.0, 1.0, 6.0], [4.0, 1.0, 0.0, 8.0]])
    random_weight = torch.randn(37, 96, generator=generator)
    random_inputs = torch.randn(50, 96, generator=generator) * torch.rand(96, generator=generator)
    dead = random_inputs.clone()
    dead[:, 10] = 0
    return [
        Case("a 3 × 4 layer worked by hand, one loud input", (weight, inputs)),
        Case("37 outputs, 96 inputs, 50 tokens", (random_weight, random_inputs)),
        Case("an input that is always zero", (random_weight, dead)),
        Case("a transposed, non-contiguous weight", (torch.randn(12, 9, generator=generator).T, random_inputs[:, :12])),
        Case("as many tokens as inputs", (random_weight[:, :20], random_inputs[:20, :20])),
    ]


SCORE = Exercise(
    id="wanda.score",
    title="The Wanda score",
    difficulty=1,
    minutes=5,
    points=2,
    reference=lambda weight, inputs: weight.abs() * inputs.norm(dim=0),
    cases=_score_cases,
    agree=_agree_on_ranks,
    mistakes=(
        Mistake(
            "norm over the wrong axis",
            "The norm runs over the features of each token. Wanda needs one number per input feature, over tokens.",
            lambda weight, inputs: weight.abs() * inputs.norm(dim=1),
        ),
        Mistake(
            "squared norm",
            "‖X_j‖² weighs loud inputs twice. Equation 1 multiplies |W_ij| by the norm itself.",
            lambda weight, inputs: weight.abs() * inputs.square().sum(dim=0),
        ),
        Mistake(
            "weight magnitude alone",
            "This ranks like magnitude pruning: the inputs are unused, or one number for all. Take norm(dim=0).",
            lambda weight, inputs: weight.abs(),
        ),
        Mistake(
            "activation alone",
            "Every weight of a column gets the same score, so whole inputs would leave. Multiply by |W_ij|.",
            lambda weight, inputs: inputs.norm(dim=0).expand(weight.shape),
        ),
        Mistake(
            "sign kept",
            "A large negative weight scores lowest here. Take the absolute value of the weight.",
            lambda weight, inputs: weight * inputs.norm(dim=0),
        ),
        Mistake(
            "mean instead of norm",
            "Positive and negative activations cancel in the mean; the norm squares them first.",
            lambda weight, inputs: weight.abs() * inputs.mean(dim=0).abs(),
            also=(
                lambda weight, inputs: weight.abs() * inputs.mean(dim=0),
                lambda weight, inputs: weight.abs() * inputs.sum(dim=0),
            ),
        ),
        Mistake(
            "sum of absolute values",
            "This is the L1 norm of each input. Equation 1 takes the L2 norm: square, add up, take the root.",
            lambda weight, inputs: weight.abs() * inputs.abs().sum(dim=0),
        ),
    ),
    also_right=(
        Variant("root mean square", lambda w, x: w.abs() * x.square().mean(dim=0).sqrt()),
        Variant("squared throughout", lambda w, x: w.square() * x.square().sum(dim=0)),
        Variant("float64", lambda w, x: w.double().abs() * x.double().norm(dim=0)),
        Variant("in place", lambda w, x: w.abs_().mul_(x.norm(dim=0))),
    ),
    hints=(
        "Every weight W_ij meets one input feature, j. How large is that feature over all tokens?",
        "inputs has shape (N, I); you need a vector of I numbers: the norm over dim=0.",
        "The vector of norms lines up with the columns of the weight, so broadcasting does the rest.",
    ),
)


# wanda.accumulate ------------------------------------------------------------------------------------------------


def _accumulate_cases(generator: torch.Generator) -> list[Case]:
    batch = torch.tensor([[[1.0, 2.0], [3.0, 0.0]], [[0.0, -2.0], [1.0, 1.0]]])
    return [
        Case("two sequences of two tokens, starting from (10, 20)", (torch.tensor([10.0, 20.0]), batch)),
        Case("starting from zero", (torch.zeros(7), torch.randn(3, 5, 7, generator=generator))),
        Case("one token", (torch.rand(6, generator=generator), torch.randn(1, 1, 6, generator=generator))),
        Case(
            "as many tokens as features",
            (torch.rand(4, generator=generator), torch.randn(4, 4, 4, generator=generator)),
        ),
    ]


ACCUMULATE = Exercise(
    id="wanda.accumulate",
    title="Norms over many batches",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda total, batch: total + batch.square().sum(dim=(0, 1)),
    cases=_accumulate_cases,
    mistakes=(
        Mistake(
            "norms added up",
            "Norms do not add: ‖(a, b)‖ is not ‖a‖ + ‖b‖. Add squares, and take one root at the very end.",
            lambda total, batch: total + batch.flatten(0, 1).norm(dim=0),
        ),
        Mistake(
            "earlier batches forgotten",
            "The result is this batch alone. Add it to the running total.",
            lambda total, batch: batch.square().sum(dim=(0, 1)),
        ),
        Mistake(
            "mean over the batch",
            "A mean gives a short batch the weight of a long one. Sum over sequences and tokens.",
            lambda total, batch: total + batch.square().mean(dim=(0, 1)),
        ),
        Mistake(
            "last token only",
            "Only the last token of each sequence is counted. Every token passes through the layer.",
            lambda total, batch: total + batch[:, -1].square().sum(dim=0),
        ),
    ),
    also_right=(
        Variant("flattened", lambda total, batch: total + (batch.reshape(-1, batch.shape[-1]) ** 2).sum(0)),
        Variant("in place", lambda total, batch: total.add_(batch.pow(2).sum((0, 1)))),
        Variant("einsum", lambda total, batch: total + torch.einsum("bti,bti->i", batch, batch)),
    ),
    hints=(
        "‖X_j‖² is a sum over tokens, so it can be built up batch by batch. ‖X_j‖ cannot.",
        "Square the batch, then sum over its first two axes.",
    ),
)


# wanda.keep_rows -------------------------------------------------------------------------------------------------


def _mask_cases(generator: torch.Generator) -> list[Case]:
    score = torch.tensor([[20.0, 3.0, 2.0, 10.0], [5.0, 2.0, 3.0, 40.0], [2.0, 6.0, 5.0, 2.5]])
    return [
        Case("a 3 × 4 score worked by hand, half leaves", (score, 0.5)),
        Case("31 × 50, 30 % leaves", (torch.rand(31, 50, generator=generator), 0.3)),
        Case(
            "rows of very different size",
            (torch.rand(6, 8, generator=generator) * torch.logspace(-3, 3, 6)[:, None], 0.5),
        ),
        Case("all scores equal", (torch.ones(4, 10), 0.5)),
        Case("a count that does not come out even: 7 × 0.5", (torch.rand(5, 7, generator=generator), 0.5)),
    ]


def _above_threshold(score: Tensor, sparsity: float) -> Tensor:
    return score > score.sort(dim=1).values[:, [int(score.shape[1] * sparsity) - 1]]


def _at_threshold(score: Tensor, sparsity: float) -> Tensor:
    return score >= score.sort(dim=1).values[:, [int(score.shape[1] * sparsity)]]


def _keep_in_layer(score: Tensor, sparsity: float) -> Tensor:
    return _lowest(score.reshape(1, -1), int(score.numel() * sparsity)).reshape(score.shape)


def _keep_rows(score: Tensor, sparsity: float) -> Tensor:
    return _lowest(score, int(score.shape[1] * sparsity))


def _keep_columns(score: Tensor, sparsity: float) -> Tensor:
    return _lowest(score.T, int(score.shape[0] * sparsity)).T


KEEP_ROWS = Exercise(
    id="wanda.keep_rows",
    title="Compare within each output",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_keep_rows,
    cases=_mask_cases,
    agree=_BY_ROW,
    picture=lambda case, got, expected: compare_masks(got, expected),
    mistakes=(
        Mistake(
            "whole layer as one group",
            "One ranking over the whole layer empties quiet rows. Wanda ranks within each output row.",
            _keep_in_layer,
            also=(
                lambda score, sparsity: score > score.flatten().sort().values[int(score.numel() * sparsity) - 1],
                lambda score, sparsity: score >= score.flatten().sort().values[int(score.numel() * sparsity)],
                lambda score, sparsity: score > score.quantile(sparsity),
            ),
        ),
        Mistake(
            "columns instead of rows",
            "Each input column lost the same share. The comparison group is an output: a row of the weight.",
            _keep_columns,
        ),
        Mistake(
            "best ones dropped",
            "The highest scores leave here. Keep them: a high score means that the weight matters.",
            lambda score, sparsity: _keep_rows(-score, sparsity),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a weight leaves. In this course True means that it stays: negate the mask.",
            lambda score, sparsity: ~_keep_rows(score, sparsity),
        ),
        Mistake(
            "order instead of ranks",
            "argsort says which entry comes first, second, …; it does not say the rank of each entry. "
            "Apply argsort twice, or scatter at its first indices.",
            lambda score, sparsity: score.argsort(dim=1, stable=True) >= int(score.shape[1] * sparsity),
        ),
        Mistake(
            "threshold with ties",
            "A threshold treats all entries that tie with it alike: all leave, or all stay. Choose an exact count by "
            "index instead.",
            _above_threshold,
            also=(
                _at_threshold,
                lambda score, sparsity: score > score.quantile(sparsity, dim=1, keepdim=True),
                lambda score, sparsity: score > score.median(dim=1, keepdim=True).values,
            ),
        ),
        Mistake(
            "rounded up",
            "When the count does not come out even, round down: floor(I × sparsity) weights of a row leave.",
            lambda score, sparsity: _lowest(score, math.ceil(score.shape[1] * sparsity)),
        ),
    ),
    also_right=(
        Variant(
            "topk of what stays",
            lambda s, p: torch.zeros_like(s, dtype=torch.bool).scatter(
                1, s.topk(s.shape[1] - int(s.shape[1] * p), dim=1).indices, True
            ),
        ),
        Variant("rank of each entry", lambda s, p: s.argsort(1).argsort(1) >= int(s.shape[1] * p)),
        Variant("float mask of zeros and ones", lambda s, p: _keep_rows(s, p).float()),
    ),
    hints=(
        "How many weights of a row leave? The same number in every row: int(I × sparsity).",
        "score.topk(k, dim=1, largest=False).indices are the columns that leave.",
        "Start from a mask of True and scatter False: keep.scatter_(1, indices, False).",
    ),
)

COLUMN_GROUPS = Exercise(
    id="wanda.column_groups",
    title="Compare within each input",
    difficulty=2,
    minutes=5,
    points=2,
    reference=_keep_columns,
    cases=_mask_cases,
    agree=_BY_COLUMN,
    picture=lambda case, got, expected: compare_masks(got, expected),
    mistakes=(
        Mistake(
            "rows instead of columns",
            "Each output row lost the same share; here the group is an input column.",
            _keep_rows,
        ),
        Mistake(
            "whole layer as one group", "One ranking over the whole layer. Rank within each column.", _keep_in_layer
        ),
        Mistake(
            "best ones dropped",
            "The highest scores of each column leave here; they are the ones to keep.",
            lambda score, sparsity: _keep_columns(-score, sparsity),
        ),
        Mistake(
            "count taken from the row",
            "The number that leaves a column is a share of its own length, the number of outputs.",
            lambda score, sparsity: _lowest(score.T, min(score.shape[0], int(score.shape[1] * sparsity))).T,
        ),
    ),
    also_right=(
        Variant("ranks along dim 0", lambda s, p: s.argsort(0).argsort(0) >= int(s.shape[0] * p)),
        Variant("contiguous copy", lambda s, p: _keep_columns(s, p).contiguous()),
    ),
    hints=(
        "It is the last exercise with the two axes exchanged.",
        "Transpose, choose within rows, transpose back. The count is int(O × sparsity).",
    ),
)


# wanda.n_of_m ----------------------------------------------------------------------------------------------------


def _n_of_m(score: Tensor, n: int, m: int) -> Tensor:
    rows, columns = score.shape
    return _lowest(score.reshape(-1, m), m - n).reshape(rows, columns)


def _n_of_m_down(score: Tensor, n: int, m: int) -> Tensor:
    padded = torch.nn.functional.pad(score, (0, 0, 0, -score.shape[0] % m), value=-math.inf)
    return _n_of_m(padded.T.contiguous(), n, m).T[: score.shape[0]]


def _n_of_m_cases(generator: torch.Generator) -> list[Case]:
    score = torch.tensor([[20.0, 3.0, 2.0, 10.0, 1.0, 2.0, 3.0, 4.0], [5.0, 2.0, 3.0, 40.0, 9.0, 8.0, 1.0, 7.0]])
    return [
        Case("2:4 on a 2 × 8 score worked by hand", (score, 2, 4)),
        Case("2:4 on 13 × 48", (torch.rand(13, 48, generator=generator), 2, 4)),
        Case("1:4, a quarter stays", (torch.rand(8, 16, generator=generator), 1, 4)),
        Case("6:8, three quarters stay", (torch.rand(16, 32, generator=generator), 6, 8)),
        Case("all scores equal", (torch.ones(3, 16), 2, 4)),
    ]


N_OF_M = Exercise(
    id="wanda.n_of_m",
    title="N of M",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_n_of_m,
    cases=_n_of_m_cases,
    agree=_BY_M_INPUTS,
    picture=lambda case, got, expected: compare_masks(got, expected, case.arguments[2]),
    mistakes=(
        Mistake(
            "n dropped instead of kept",
            "n:m says how many of m are kept. For 2:4 both readings agree; for 1:4 they do not.",
            lambda score, n, m: _n_of_m(score, m - n, m),
        ),
        Mistake(
            "best ones dropped",
            "The n lowest of each group stay here. Keep the n highest.",
            lambda score, n, m: _n_of_m(-score, n, m),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True for the m − n that leave. In this course True means that a weight stays.",
            lambda score, n, m: ~_n_of_m(score, n, m),
        ),
        Mistake(
            "order instead of ranks",
            "argsort gives the order of the entries, not the rank of each. Apply it twice, or scatter.",
            lambda score, n, m: (score.unflatten(1, (-1, m)).argsort(dim=2, stable=True) >= m - n).flatten(1),
        ),
        Mistake(
            "groups down the outputs",
            "The groups run down a column. n:m counts along the inputs, the axis that a dot product runs over.",
            lambda score, n, m: _n_of_m_down(score, n, m),
        ),
        Mistake(
            "n of m over the whole row",
            "The row has the right count, but a group of m may hold more or fewer than n: no hardware can pack it.",
            lambda score, n, m: _lowest(score, score.shape[1] * (m - n) // m),
        ),
        Mistake(
            "interleaved groups",
            "A group is m neighbouring columns. Here it is every (I/m)-th column: check the order of the reshape.",
            lambda score, n, m: (
                _lowest(score.reshape(score.shape[0], m, -1).transpose(1, 2).reshape(-1, m), m - n)
                .reshape(score.shape[0], -1, m)
                .transpose(1, 2)
                .reshape(score.shape)
            ),
        ),
    ),
    also_right=(
        Variant("ranks in groups", lambda s, n, m: (s.unflatten(1, (-1, m)).argsort(2).argsort(2) >= m - n).flatten(1)),
        Variant(
            "a loop over groups",
            lambda s, n, m: torch.cat([_lowest(part, m - n) for part in s.split(m, dim=1)], dim=1),
        ),
    ),
    hints=(
        "Reshape the score so that every group of m neighbours is a row of its own.",
        "score.reshape(O, I // m, m) keeps neighbours together. In each group the m − n lowest leave.",
        "After choosing, reshape the mask back to (O, I).",
    ),
)


# wanda.sequential ------------------------------------------------------------------------------------------------


def _prune(weight: Tensor, inputs: Tensor, sparsity: float) -> Tensor:
    return weight * _keep_rows(weight.abs() * inputs.norm(dim=0), sparsity)


def _sequential(first: Tensor, second: Tensor, inputs: Tensor, sparsity: float) -> tuple[Tensor, Tensor]:
    first = _prune(first, inputs, sparsity)
    return first, _prune(second, torch.relu(inputs @ first.T), sparsity)


def _sequential_cases(generator: torch.Generator) -> list[Case]:
    def layers(hidden: int, width: int, out: int, tokens: int, sparsity: float) -> tuple:
        scale = torch.rand(width, generator=generator) * 3
        return (
            torch.randn(hidden, width, generator=generator),
            torch.randn(out, hidden, generator=generator),
            torch.randn(tokens, width, generator=generator) * scale,
            sparsity,
        )

    return [
        Case("10 inputs, 24 neurons, 20 outputs, half leaves", layers(24, 10, 20, 30, 0.5)),
        Case("70 % leaves", layers(40, 20, 30, 50, 0.7)),
        Case("a square layer", layers(32, 32, 32, 32, 0.6)),
    ]


SEQUENTIAL = Exercise(
    id="wanda.sequential",
    title="One layer after the other",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_sequential,
    cases=_sequential_cases,
    mistakes=(
        Mistake(
            "dense activations for the second layer",
            "The second layer was scored with what the dense first layer gives. After pruning it sees something else.",
            lambda a, b, x, s: (_prune(a, x, s), _prune(b, torch.relu(x @ a.T), s)),
        ),
        Mistake(
            "magnitude for the second layer",
            "The second layer was pruned without its inputs.",
            lambda a, b, x, s: (_prune(a, x, s), b * _keep_rows(b.abs(), s)),
        ),
        Mistake(
            "nonlinearity forgotten",
            "The second layer reads relu(X W₁ᵀ), not X W₁ᵀ.",
            lambda a, b, x, s: (_prune(a, x, s), _prune(b, x @ _prune(a, x, s).T, s)),
        ),
        Mistake(
            "second layer left dense",
            "Both layers are to be pruned.",
            lambda a, b, x, s: (_prune(a, x, s), b),
        ),
    ),
    also_right=(
        Variant(
            "masked in place",
            lambda a, b, x, s: (
                a.masked_fill_(~_keep_rows(a.abs() * x.norm(dim=0), s), 0),
                _prune(b, torch.nn.functional.linear(x, a).clamp(min=0), s),
            ),
        ),
    ),
    hints=(
        "Prune the first layer. What does it give now, for the same inputs?",
        "hidden = relu(inputs @ first_pruned.T), and the second layer's score uses the norms of hidden.",
    ),
)


# wanda.obs_score -------------------------------------------------------------------------------------------------


def _obs(weight: Tensor, gram: Tensor, damping: float) -> Tensor:
    return weight.square() / torch.linalg.inv(gram + damping * torch.eye(len(gram))).diagonal()


def _obs_cases(generator: torch.Generator) -> list[Case]:
    gram = torch.tensor([[2.0, 1.0], [1.0, 2.0]])  # inverse [[2/3, -1/3], [-1/3, 2/3]]
    x = torch.randn(40, 12, generator=generator) * torch.rand(12, generator=generator)
    x[:, 3] = x[:, 2] + 0.1 * x[:, 3]  # two inputs that say nearly the same
    diagonal = torch.diag(torch.tensor([4.0, 1.0, 9.0]))
    return [
        Case("2 × 2 by hand, no damping", (torch.tensor([[1.0, 2.0], [3.0, -1.0]]), gram, 0.0)),
        Case("correlated inputs", (torch.randn(9, 12, generator=generator), x.T @ x, 0.01)),
        Case("uncorrelated inputs: the limit that is Wanda", (torch.randn(5, 3, generator=generator), diagonal, 0.0)),
        Case("a singular Gram matrix, damped", (torch.randn(4, 6, generator=generator), torch.ones(6, 6), 0.5)),
    ]


OBS_SCORE = Exercise(
    id="wanda.obs_score",
    title="SparseGPT's score, and its limit",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_obs,
    cases=_obs_cases,
    mistakes=(
        Mistake(
            "diagonal inverted instead of the matrix",
            "1 / H_jj is the diagonal of the inverse only when H is diagonal; that limit is Wanda. Invert first, then "
            "take the diagonal.",
            lambda w, g, d: w.square() * (g + d * torch.eye(len(g))).diagonal(),
        ),
        Mistake(
            "damping forgotten",
            "Without λI a singular Gram matrix has no inverse.",
            lambda w, g, d: w.square() / torch.linalg.inv(g).diagonal(),
            also=(
                lambda w, g, d: w.square() / torch.linalg.pinv(g).diagonal(),
                lambda w, g, d: w.numpy() ** 2 / numpy.linalg.inv(g.numpy()).diagonal(),
            ),
        ),
        Mistake(
            "multiplied instead of divided",
            "A large [H⁻¹]_jj means that the others can make up for weight j, so its score must fall with it.",
            lambda w, g, d: w.square() * torch.linalg.inv(g + d * torch.eye(len(g))).diagonal(),
        ),
        Mistake(
            "weight not squared",
            "The loss is quadratic in the weight that leaves: W_ij².",
            lambda w, g, d: w.abs() / torch.linalg.inv(g + d * torch.eye(len(g))).diagonal(),
        ),
    ),
    also_right=(
        Variant(
            "by Cholesky",
            lambda w, g, d: w**2 / torch.cholesky_inverse(torch.linalg.cholesky(g + d * torch.eye(len(g)))).diagonal(),
        ),
        Variant(
            "float64",
            lambda w, g, d: w.double() ** 2 / torch.linalg.inv(g.double() + d * torch.eye(len(g)).double()).diagonal(),
        ),
    ),
    hints=(
        "Three steps: damp the Gram matrix, invert it, take the diagonal.",
        "torch.linalg.inv(gram + damping * torch.eye(I)).diagonal() is a vector over inputs.",
    ),
)


# wanda.interval --------------------------------------------------------------------------------------------------


def _interval(n_right: int, n: int) -> tuple[float, float, float]:
    accuracy = n_right / n
    error = math.sqrt(accuracy * (1 - accuracy) / n)
    return accuracy, accuracy - 1.96 * error, accuracy + 1.96 * error


INTERVAL = Exercise(
    id="wanda.interval",
    title="How sure is an accuracy?",
    difficulty=2,
    minutes=6,
    points=2,
    reference=_interval,
    cases=lambda generator: [
        Case("60 of 100", (60, 100)),
        Case("150 of 200", (150, 200)),
        Case("5 of 1000", (5, 1000)),
        Case("a drawn count", (int(torch.randint(1, 399, (), generator=generator)), 400)),
    ],
    mistakes=(
        Mistake(
            "standard deviation of one answer",
            "sqrt(p(1 − p)) is the spread of a single answer. The mean of n answers spreads sqrt(n) times less.",
            lambda k, n: (k / n, *(k / n + z * math.sqrt(k / n * (1 - k / n)) for z in (-1.96, 1.96))),
        ),
        Mistake(
            "one standard error",
            "One standard error covers 68 %. For 95 % take 1.96 of them to either side.",
            lambda k, n: (k / n, *(k / n + z * math.sqrt(k / n * (1 - k / n) / n) for z in (-1, 1))),
        ),
        Mistake(
            "n not under the root",
            "The variance of the mean is p(1 − p) / n; the root is taken of all of it.",
            lambda k, n: (k / n, *(k / n + z * math.sqrt(k / n * (1 - k / n)) / n for z in (-1.96, 1.96))),
        ),
        Mistake(
            "in per cent",
            "Return fractions, such as 0.6, not 60.",
            lambda k, n: tuple(100 * x for x in _interval(k, n)),
        ),
    ),
    also_right=(
        Variant("as a list", lambda k, n: list(_interval(k, n))),
        Variant("in torch", lambda k, n: torch.tensor(_interval(k, n), dtype=torch.float64)),
    ),
    hints=(
        "Each question is right with probability p: its variance is p(1 − p).",
        "The mean of n such questions has variance p(1 − p) / n; its root is the standard error.",
    ),
)

EXERCISES = (SCORE, ACCUMULATE, KEEP_ROWS, COLUMN_GROUPS, N_OF_M, SEQUENTIAL, OBS_SCORE, INTERVAL)
