# %% [markdown]
# # 03 · SparseGPT: pruning in one shot, with repairs
#
# Optimal brain surgeon (lesson 02) prunes a weight and moves all the others so that they make up for it. For that it
# needs the inverse Hessian of the whole model, which for the 106 million weights in the blocks of our model is a matrix
# of 45 petabytes. SparseGPT prunes 175 billion weights on one GPU in about four hours. This lesson takes the four steps
# that lie between the two methods. Each step has a picture and at least one exercise:
#
# 1. prune one layer at a time, each with an objective of its own;
# 2. use the Hessian of that objective, which has a closed form and is the same for all outputs of the layer;
# 3. process the columns of all outputs in one order, so that all outputs share their inverses;
# 4. apply the updates in blocks, so that most of the work becomes matrix products.
#
# Once your function is right, the experiment after its exercise uses it on a layer of the real model; until then it
# uses the course's own.
#
# **Afterwards you can** write SparseGPT from its objective to its blocks, say what each of the four steps gives up and
# what it gains, and judge its results beside Wanda's with their errors. **You need** lesson 02 for the surgeon's
# update, and the Cholesky factorisation. **Time**: two and a half hours, an hour and a half of them for exercises.

# %%
import math

import torch

from course_lib.data import corpora
from course_lib.measure.perplexity import window_losses
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.lessons.sparsegpt import beside, recipes
from course_lib.lessons.sparsegpt import figures as plots
from course_lib.lessons.sparsegpt import measured as results
from course_lib.lessons.sparsegpt import tables as printed
from course_lib.lessons.common.dots import perplexities
from course_lib.lessons.common import gpu
from course_lib.lessons.common.table import Table, number
from course_lib.lessons.common.tables import load_measured, say
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.input_statistics import input_grams
from course_lib.pruning.sequential import prune_model
from course_lib.lessons.sparsegpt.measure import (
    WithoutUpdates,
    errors_in_block,
    first_inputs_of,
    race_of_block_sizes,
    relative_error,
    settled_until,
)
from course_lib.quantization.grid import Quantization, before_rounding
from course_lib.sparsity.patterns import Unstructured
from course_lib.workbook import check, mine

# %%
model, tokenizer = load_model()
calibration = corpora.windows("wikipedia", 16, 256, tokenizer, split="calibration", seed=0)
held_out = corpora.windows("wikipedia", 8, 256, tokenizer, split="evaluation", seed=0)
print(f"{calibration.numel()} tokens to calibrate on, {held_out.numel()} held out, no article in both")

# %% [markdown]
# ## 1. The idea in one picture
#
# Why can other weights make up for one that is pruned? Because the inputs of a layer are correlated. Consider the
# inputs of one attention layer over the calibration text. Any two of them are only weakly correlated. But the others
# together predict each of them well, so the weights on those others can take over much of what the pruned weight
# contributed.

# %%
name = "self_attn.q_proj"
weight = weight_of(linears(blocks(model)[15])[name])
grams = input_grams(model, calibration, 15)  # by layer
gram = grams[name]
factor = gram.factor(damping=0.01)
plots.what_others_explain(gram.matrix, factor.upper, gram.n_tokens, "Block 15, input of attention")

# %% [markdown]
# Part of this is chance, because with few tokens even unrelated inputs seem to predict each other; the dotted line
# shows how much. The rest is what an update can use. Wanda (lesson 04) makes no use of it.
#
# ## 2. Step one: a layer and its error
#
# SparseGPT ignores the loss of the model. It asks instead that each layer still returns what it returned before, on the
# calibration inputs $X$ (Frantar and Alistarh 2023, equation 1; here $X$ has a row for each token, and $W$ a row for
# each output):
#
# $$ \min_{\hat W} \; \lVert X W^\top - X \hat W^\top \rVert_2^2 $$
#
# The minimum is taken over all $\hat W$ that have the required number of zeros. For one output the error is quadratic
# in the change of its weights. The picture shows it for two weights of one output whose inputs are of about the same
# size and correlated. Deleting the first weight alone is a step along the horizontal axis. On the dotted line, where
# the first weight is zero, the error is least at another place: the second weight has moved as well.

# %%
plots.objective(weight, gram.matrix)

# %% [markdown]
# ### The error of a layer
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Calibration does not store the inputs $X$, because there are too many of them. It keeps only their Gram matrix
# $G = X^\top X$, which may be singular. Compute the error from $G$.


# %% exercise="sparsegpt.layer_error"
def layer_error(weight, pruned, gram):
    """The squared change of a layer's output over all calibration tokens.

    weight, pruned: (O, I). gram: (I, I), X^T X. Returns a number.
    """
    ### BEGIN SOLUTION
    change = weight - pruned
    return (change @ gram * change).sum()
    ### END SOLUTION


# %%
check("sparsegpt.layer_error", layer_error)

# %% [markdown]
# On the real layer, with half of the weights pruned, as a share of the squared output:

# %%
error_of = mine("sparsegpt.layer_error", layer_error)
size = error_of(weight, torch.zeros_like(weight), gram.matrix)
pruners = {"magnitude": Magnitude(), "Wanda": Wanda(), "SparseGPT": SparseGPT()}
Table(
    [
        {"method": name, "output changed": float(error_of(weight, pruner.prune(weight, gram), gram.matrix) / size)}
        for name, pruner in pruners.items()
    ],
    caption="Half of the weights of a layer pruned: the fraction of the squared output that changes",
    formats={"output changed": number(2, "%", 100)},
)

# %% [markdown]
# ## 3. Step two: the Hessian, in closed form
#
# The objective is quadratic in the weights of one output. Its Hessian is therefore exact, needs no gradient and does
# not depend on the weights: $H = 2 X^\top X$. It is also the *same for every output*, since all outputs read the same
# input. The factor 2 changes neither the order of the scores nor the updates, so we drop it.
#
# $H$ must have an inverse. But some inputs may always be zero, and a short calibration text leaves directions that no
# token points to:

# %%
short = input_grams(model, calibration[:1], 15)[name]  # one window instead of 16
plots.spectrum({short.n_tokens: short.matrix, gram.n_tokens: gram.matrix}, damping=0.01)

# %% [markdown]
# The usual repair is *damping*: a share $\lambda$ of the mean diagonal is added to every entry of the diagonal, which
# lifts all eigenvalues by the same amount (the dotted line).

# %% [markdown]
# ### A Hessian that can be inverted
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return $X^\top X$ with $\lambda$ times the mean of its diagonal added to the diagonal, and 1 more for every *silent*
# input, that is, an input that is zero at every token. How do you recognise those in $X^\top X$ alone?


# %% exercise="sparsegpt.hessian"
def damped_hessian(inputs, damping):
    """The Hessian of one output's error, made invertible.

    inputs: (N, I), one row per token. damping: λ. Returns (I, I).
    """
    ### BEGIN SOLUTION
    gram = inputs.T @ inputs
    diagonal = gram.diagonal()
    return gram + torch.diag(damping * diagonal.mean() + (diagonal == 0).to(gram.dtype))
    ### END SOLUTION


# %%
check("sparsegpt.hessian", damped_hessian)

# %%
eigenvalues = torch.linalg.eigvalsh(gram.matrix.double())
mean = gram.diagonal.mean().item()
high, low = eigenvalues[-1].item() / mean, eigenvalues[0].item() / mean
print(f"Largest direction of the input: {high:.0f} times the mean, smallest: {low:.1e}")
print(f"Largest over smallest, damped with 0.01: {(high + 0.01) / (low + 0.01):.0f}")
n_weights = sum(weight_of(x).numel() for block in blocks(model) for x in linears(block).values())
print(f"Inverse Hessian of all {n_weights / 1e6:.0f} million weights of the blocks: {4 * n_weights**2 / 1e15:.0f} PB")
print(f"Hessian of this layer, for all of its outputs: {gram.matrix.nbytes / 1e6:.1f} MB")

# %% [markdown]
# ## 4. Step three: one order for all
#
# Optimal brain surgeon deletes the cheapest weight $q$ of a row, at a cost of $w_q^2 / [H^{-1}]_{qq}$, updates the
# others by $-\frac{w_q}{[H^{-1}]_{qq}} [H^{-1}]_{:,q}$, and goes on with those that are left (equation 3). For them it
# needs the inverse of $H$ *without* row and column $q$. Inverting anew would cost $I^3$ operations for every weight.
# One step of block elimination computes it from the present inverse in $I^2$. Let $q$ be the first input, and write the
# first row and column apart from the rest:
#
# $$ H = \begin{pmatrix} a & b^\top \\ b & C \end{pmatrix} \qquad
#    B = H^{-1} = \begin{pmatrix} \beta & c^\top \\ c & D \end{pmatrix} $$
#
# The lower half of $H B = 1$ says $b \beta + C c = 0$ and $b c^\top + C D = 1$. The first gives
# $b = -C c / \beta$. Put into the second, it gives $C \left( D - c c^\top / \beta \right) = 1$, so that
#
# $$ C^{-1} = D - \frac{c\, c^\top}{\beta} $$
#
# which is equation 5 of the paper: take from $B$ the outer product of its first column and row, divided by the pivot
# $\beta = B_{11}$, then strike out the first row and column.

# %% [markdown]
# ### The inverse of what is left
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Equation 5 takes out one input, the first. Several inputs have been processed now, at any places and in any order.
# From $H^{-1}$ compute the inverse of $H$ without all of their rows and columns.


# %% exercise="sparsegpt.eliminate"
def eliminate(inverse, settled):
    """The inverse of what is left when several inputs have been processed.

    inverse: (I, I), of H. settled: (K,), int64, the places of these inputs in H; perhaps none.
    Returns a square matrix: the inverse of H without those rows and columns.
    """
    ### BEGIN SOLUTION
    rest = [i for i in range(len(inverse)) if i not in settled]
    shared = inverse[rest][:, settled]
    explained = shared @ torch.linalg.inv(inverse[settled][:, settled]) @ shared.T
    return inverse[rest][:, rest] - explained
    ### END SOLUTION


# %%
check("sparsegpt.eliminate", eliminate)

# %% [markdown]
# There remains a difficulty. Each row deletes in an order of its own, so each row needs inverses of its own, which
# costs $O \cdot I^3$ in all. SparseGPT therefore does without the best order. **Every row settles its columns from left
# to right**: column $j$ takes its final values (the paper says that they are *frozen*), zero in some rows and unchanged
# in others, and only columns to the right are updated. After column $j$ all rows need the same inverse, that of $H$
# without the first $j$ columns, because none of these columns may move any more in any row. So there are only $I$
# inverses.
#
# All $I$ of them are in one triangular matrix. Factorise $H^{-1} = U^\top U$ with $U$ upper triangular, and write its
# first row apart:
#
# $$ U = \begin{pmatrix} u & r^\top \\ 0 & V \end{pmatrix} \qquad
#    U^\top U = \begin{pmatrix} u^2 & u\, r^\top \\ u\, r & r r^\top + V^\top V \end{pmatrix}
#    = \begin{pmatrix} \beta & c^\top \\ c & D \end{pmatrix} $$
#
# Compare entry by entry. From $\beta = u^2$ and $c = u\, r$ follows $c / \beta = r / u$: the first row of the inverse,
# divided by its first entry, is the first row of $U$, divided by its diagonal entry. And $V^\top V = D - r r^\top = D -
# c c^\top / \beta$, which by equation 5 is the inverse without the first input. So $V$ is to that inverse what $U$ is
# to $H^{-1}$, and the same holds for every further row: **row $j$ of $U$, divided by $U_{jj}$, is the first row of the
# $j$-th inverse, divided by its first entry**, and that entry is $U_{jj}^2$.

# %% [markdown]
# ### One factor for all inverses
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Compute $U$. A Cholesky factorisation writes a positive definite matrix as a lower triangular one times its transpose.
# Which matrix do you factorise, and which of the two factors is $U$?


# %% exercise="sparsegpt.factor"
def inverse_factor(hessian):
    """U, upper triangular, with U^T U = H^-1.

    hessian: (I, I), positive definite. Returns (I, I).
    """
    ### BEGIN SOLUTION
    return torch.linalg.cholesky(torch.linalg.inv(hessian)).T
    ### END SOLUTION


# %%
check("sparsegpt.factor", inverse_factor)

# %% [markdown]
# The derivation can be tested. Take the first 40 inputs of the real layer out, and compare the first row of the inverse
# that is left with row 40 of $U$:

# %%
hessian = gram.matrix.double() + 0.01 * gram.diagonal.mean() * torch.eye(len(gram.matrix), dtype=torch.float64)
upper, left = mine("sparsegpt.factor", inverse_factor)(hessian), torch.linalg.inv(hessian)
for _ in range(40):
    left = left[1:, 1:] - torch.outer(left[1:, 0], left[0, 1:]) / left[0, 0]  # equation 5
by_elimination, by_factor = left[0] / left[0, 0], upper[40, 40:] / upper[40, 40]
print(f"largest difference of the rows: {(by_elimination - by_factor).abs().max():.1e}; their largest entry is 1")
print(f"first entry of the inverse: {left[0, 0]:.6g}, U_jj squared: {upper[40, 40] ** 2:.6g}")

# %% [markdown]
# Now a column can be settled for all rows at once. Lesson 02 derived the update for a weight that becomes zero. But a
# settled weight does not have to be zero: in some rows it keeps its value, and in section 8 it is rounded to a few
# bits.

# %% [markdown]
# ### Settle one column
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# The weights of column $j$ take the values $v$, one for each output. You know the direction in which the columns to the
# right must move: it is row $j$ of $U$. By which multiple of it does each output move, so that the change of column $j$
# itself is exactly $v_i - W_{ij}$? What follows for an output whose weight keeps its value?


# %% exercise="sparsegpt.settle"
def settle(weight, values, upper, j):
    """One step of the sweep.

    weight: (O, I). values: (O,), what column j becomes. upper: (I, I), U. j: which column.
    Returns the new weight, (O, I): the columns left of j as they were, those right of it updated.
    """
    ### BEGIN SOLUTION
    settled = weight.clone()
    settled[:, j] = values
    lost = (weight[:, j] - values) / upper[j, j]
    settled[:, j + 1 :] -= torch.outer(lost, upper[j, j + 1 :])
    return settled
    ### END SOLUTION


# %%
check("sparsegpt.settle", settle)

# %% [markdown]
# <details><summary>What a column sends to the right</summary>
#
# A weight that keeps its value sends no error to the right, and a pruned one ($v = 0$) sends $w_j / U_{jj}$ times row
# $j$ of $U$, which is equation 3 with the inverse of what is left.
#
# </details>
#
# Here is the whole sweep on a small piece of the real layer, 32 outputs and 96 inputs. White weights are zero, light
# ones are as they were, and the darker a weight, the further it has moved. The line shows which columns are settled.

# %%
corner = first_inputs_of(gram, 96)
piece = weight[:32, :96]
solution = SparseGPT(block_size=32).solve(piece, corner)
plots.sweep(piece, {column: settled_until(piece, solution, column) for column in (32, 64, 96)})

# %% [markdown]
# The last columns have been updated for all the others, and when they are pruned themselves nothing to their right can
# make up for it. That is the price of using one order for all rows.
#
# ## 5. Which weights are pruned
#
# When column $j$ comes, pruning a weight of it costs $w^2 / U_{jj}^2$, where $w$ holds all updates so far. When should
# the mask be chosen? If it were chosen column by column, each column would have to lose the same share, whether it
# matters or not. If it were chosen before the start, it could not take the updates into account. SparseGPT compromises:
# at the start of each block of 128 columns it ranks the weights of that block, over all rows together.

# %% [markdown]
# ### The mask of a block
# **Exercise** · difficulty 3 of 5 · 8 minutes · 2 points
#
# Prune the $\lfloor O \cdot B \cdot s \rfloor$ weights of a block that cost least. It must be exactly that many, also
# where costs are equal and where weights are zero already.


# %% exercise="sparsegpt.mask"
def block_mask(weight, diagonal, sparsity):
    """The mask of a block.

    weight: (O, B), as updated so far. diagonal: (B,), U_jj of its columns. sparsity: the share that
    is pruned.
    Returns (O, B), bool, True where a weight stays.
    """
    ### BEGIN SOLUTION
    score = (weight / diagonal).square()
    leaving = score.flatten().topk(int(score.numel() * sparsity + 1e-6), largest=False).indices
    return torch.ones(score.numel(), dtype=torch.bool).index_fill_(0, leaving, False).reshape(score.shape)
    ### END SOLUTION


# %%
check("sparsegpt.mask", block_mask)

# %% [markdown]
# The mask of the first block of the real layer: does every column lose the same share?

# %%
keep = mine("sparsegpt.mask", block_mask)(weight[:, :128], factor.diagonal[:128], 0.5)
leaves = 100 - 100 * keep.float().mean(dim=0)
print(f"half of the block is pruned; of single columns {leaves.min():.0f} to {leaves.max():.0f} %")

# %% [markdown]
# For 2:4 the choice is made for every four columns, when the sweep reaches them, in each row for itself.
#
# ## 6. Step four: lazy updates
#
# So far each column updates everything to its right. That means $I$ passes over the whole matrix with little arithmetic
# in each, so memory is the limit (lesson 01). But column $j + 1$ needs only its own update now; the columns far to the
# right can wait. So within a block of columns the updates stay inside the block, and their scaled errors
# $E_{:,j} = (w_j - v) / U_{jj}$ are kept. At the end of the block, all columns behind it are updated in one matrix
# product (algorithm 1 of the paper):
#
# $$ W_{:,\text{behind}} \leftarrow W_{:,\text{behind}} - E \, U_{\text{block},\,\text{behind}} $$
#
# **Deviation.** Algorithm 1 has two block sizes: $B_s$ columns have their mask chosen together, and $B$ columns put
# their updates off together. Both are 128 in the paper's experiments, and here one number serves for both.

# %% [markdown]
# ### SparseGPT
# **Exercise** · difficulty 5 of 5 · 25 minutes · 5 points
#
# Put it together. For each block choose its mask, settle its columns, then update what lies behind. The last block may
# be narrower than the others. The number of weights to prune is rounded down in each block, as in the last exercise.


# %% exercise="sparsegpt.prune"
def sparsegpt(weight, upper, sparsity, block_size):
    """Prune a layer, updating the weights that stay.

    weight: (O, I). upper: (I, I), U. sparsity: of every block. block_size: columns in a block.
    Returns (O, I).
    """
    ### BEGIN SOLUTION
    weight = weight.clone()
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        score = (weight[:, start:end] / upper.diagonal()[start:end]).square()
        leaving = score.flatten().topk(int(score.numel() * sparsity + 1e-6), largest=False).indices
        leave = torch.zeros(score.numel(), dtype=torch.bool).index_fill_(0, leaving, True).reshape(score.shape)
        errors = torch.zeros_like(score)
        for j in range(start, end):
            errors[:, j - start] = weight[:, j] * leave[:, j - start] / upper[j, j]
            weight[:, j].masked_fill_(leave[:, j - start], 0)
            weight[:, j + 1 : end] -= torch.outer(errors[:, j - start], upper[j, j + 1 : end])
        weight[:, end:] -= errors @ upper[start:end, end:]
    return weight
    ### END SOLUTION


# %%
check("sparsegpt.prune", sparsegpt)

# %% [markdown]
# On the real layer, to be compared with the errors of section 2:

# %%
pruned = mine("sparsegpt.prune", sparsegpt)(weight, factor.upper, 0.5, 128)
changed = mine("sparsegpt.layer_error", layer_error)(weight, pruned, gram.matrix) / size
print(f"{100 * (pruned == 0).float().mean():.1f} % are zero; {100 * changed:.2f} % of the output changes")

# %% [markdown]
# The size of the block decides two things: how long the sweep takes, and how freely the mask is chosen. Here both are
# measured for a larger layer:

# %%
gate, gate_gram = weight_of(linears(blocks(model)[15])["mlp.gate_proj"]), grams["mlp.gate_proj"]
sizes = (1, 8, 32, 128, 576)
seconds, errors = race_of_block_sizes(gate, gate_gram, sizes)
plots.block_sizes(seconds, errors)

# %% [markdown]
# Blocks of one column give every column the same share of zeros, and one block of all columns chooses every weight
# before any update. Between these two ends the error depends little on the size. For speed the library's solver has an
# inner level too: within a block it works in strips of 16 columns, few enough to stay in the cache, and passes the
# errors from strip to strip in matrix products.

# %%
print(printed.solver_speed())

# %% [markdown]
# On a GPU a block can be one kernel (`kernels/weights/sparsegpt_columns.py`): it keeps its columns on the chip
# until the last one is settled. Beside it, loops in torch:

# %%
print(gpu.provenance())
gpu.table("sparsegpt_columns")

# %% [markdown]
# The loops start several kernels for every column, and the one kernel is faster than any of them. It, too, is far from
# its bound: bytes and products are few, and what takes the time is that each column waits for the one before.
#
# ## 7. A block, then a model
#
# The next figure compares methods on the first 64 outputs of all seven layers of one block, with half of the weights
# pruned. Two of the methods have SparseGPT's own mask with other weights: *no updates* leaves the weights as they were,
# and *best weights* solves a least-squares problem on the same damped $H$ exactly, one system of equations for every
# row (`Refit`). SparseGPT updates only to the right, so it lies between them.

# %%
half = Unstructured(0.5, per="layer")
methods = {
    "magnitude": Magnitude(),
    "Wanda": Wanda(),
    "its mask, no updates": WithoutUpdates(half),
    "SparseGPT": SparseGPT(half),
    "its mask, best weights": Refit(half, chooser=SparseGPT),
}
plots.layer_errors(errors_in_block(blocks(model)[15], grams, methods, n_outputs=64))

# %% [markdown]
# Now the whole model is pruned, block after block, each calibrated on what the pruned blocks before it give. Both
# methods are evaluated on the same windows, and we take their difference window by window, because then it does not
# matter how hard a window is to predict:

# %%
logs = {"dense": window_losses(model, held_out)}
for title, pruner in {"Wanda 50 %": Wanda(Unstructured(0.5)), "SparseGPT 50 %": SparseGPT()}.items():
    model, tokenizer = load_model()
    report = prune_model(model, pruner, calibration)
    logs[title] = window_losses(model, held_out)  # log-perplexity of each window, (8,)
    print(f"{title}: " + ", ".join(f"{phase} {spent:.1f} s" for phase, spent in report.seconds.items()))

# %%
values = {name: (x.mean().exp().item(), (x.mean().exp() * x.std() / len(x) ** 0.5).item()) for name, x in logs.items()}
lower = logs["Wanda 50 %"] - logs["SparseGPT 50 %"]
gain = of_samples(lower)
print(f"log-perplexity lower by {gain.value:.3f} ± {gain.error:.3f} over {gain.n} windows")
say(f"Claim: SparseGPT is better than Wanda at 50 %: {verdict(gain)}")
ratio = values["SparseGPT 50 %"][0] / values["Wanda 50 %"][0]
perplexities(values, f"At 50 % SparseGPT has {ratio:.2f} times the perplexity of Wanda", n=len(held_out))

# %% [markdown]
# ## 8. Fewer weights and fewer bits
#
# Rounding a weight to a grid of few values is an error like any other, and the sweep makes up for an error wherever it
# comes from. Therefore one pass can prune and quantize (section 3.5 of the paper), and with nothing pruned the same
# sweep is GPTQ (Frantar and others, 2022). You have written it already: settle each column at its rounded values. Here
# it rounds 64 outputs of a layer to 3 bits.

# %%
settle_column, upper = mine("sparsegpt.settle", settle), gate_gram.factor(damping=0.01).upper
some = gate[:64]
grid = Quantization(3, group=64).grid(some)
rounded = some.clone()
for j in range(some.shape[1]):
    rounded = settle_column(rounded, grid.round_column(rounded[:, j], j), upper, j)
ways = {"each weight to the nearest": grid.round(some), "column by column, settled": rounded}
Table(
    [{"rounding": name, "output changed": float(relative_error(some, w, gate_gram))} for name, w in ways.items()],
    caption="Rounded to 3 bits: the fraction of the squared output that changes",
    formats={"output changed": number(2, "%", 100)},
)

# %% [markdown]
# Is pruning worth it beside rounding? To compare the two we must count the bits.

# %% [markdown]
# ### Bits a weight
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Weights come in groups of `group_size`, and each group has a scale and a zero point, `grid_bits` in all. A share
# `sparsity` of the weights is pruned and not stored. However small that share is, a bitmap says which weights these
# are; a dense layer needs no bitmap. How many bits does a weight take on average, counting all weights of the layer?


# %% exercise="sparsegpt.bits"
def bits_per_weight(sparsity, value_bits, group_size, grid_bits):
    """Bits of storage for each weight of the layer, pruned ones included. Returns a number."""
    ### BEGIN SOLUTION
    bitmap = 1 if sparsity > 0 else 0
    return bitmap + (1 - sparsity) * value_bits + grid_bits / group_size
    ### END SOLUTION


# %%
check("sparsegpt.bits", bits_per_weight)

# %% [markdown]
# Half of the weights at 4 bits take as much room as all of them at 3 bits. The paper finds the first better for OPT
# models of 2.7 billion parameters and more. We compare them here on one layer of a small model. Remember that the
# weights of this model come from a file of 4 bits: what is called *dense* here has lost something to rounding already,
# whereas the paper's models have 16 bits.

# %%
dense, half = Unstructured(0.0, per="layer"), Unstructured(0.5, per="layer")
contestants = {
    "50 % zero, 4 bits": SparseGPT(half, quantization=Quantization(4, group=64)),
    "dense, 3 bits": SparseGPT(dense, quantization=Quantization(3, group=64)),
    "50 % zero": SparseGPT(half),
    "dense, 4 bits": SparseGPT(dense, quantization=Quantization(4, group=64)),
}
changed = {name: relative_error(gate, p.prune(gate, gate_gram), gate_gram) for name, p in contestants.items()}
display(
    Table(
        [{"weights": name, "output changed": float(fraction)} for name, fraction in changed.items()],
        caption="Pruned, rounded, or both: the fraction of the squared output that changes",
        formats={"output changed": number(2, "%", 100)},
    )
)
# One layer, all of it, so there is no sampling error.
gain = Effect(value=math.log(changed["dense, 3 bits"] / changed["50 % zero, 4 bits"]), error=0.0)
say(f"Claim: at equal size, half the weights at 4 bits beat all of them at 3: {verdict(gain, larger_models=True)}")

# %% [markdown]
# Do such weights make the comparison unfair? Their file holds 4 bits for each (lesson 00). If the grid of that file
# were the grid used here, rounding again would cost nothing, and the comparison would be void. We cannot undo the first
# rounding. But we can move every weight at random by up to half a step of the old grid, which is about what the first
# rounding took away, and see whether weights moved in this way lose more when they are rounded.

# %%
moved = before_rounding(gate, group=32, bits=4, generator=torch.Generator().manual_seed(0))
losses = []
for bits in (4, 3):
    for group in (32, 64, None):
        grids = [Quantization(bits, group).grid(each) for each in (gate, moved)]
        lost, lost_moved = ((grid.round(w) - w).norm() / w.norm() for grid, w in zip(grids, (gate, moved), strict=True))
        where = f"groups of {group}" if group else "whole rows"
        row = {"grid": f"{bits} bits, {where}", "weights as they are": lost.item(), "weights moved": lost_moved.item()}
        losses.append(row)
Table(
    losses,
    caption="The relative error of rounding a layer",
    formats=dict.fromkeys(("weights as they are", "weights moved"), number(2, "%", 100)),
)

# %% [markdown]
# Both lose about the same, even in groups of 32. The reason is that the old grid started at each group's smallest
# weight, while the grids here always contain zero so that a pruned weight stays zero; the two hardly ever coincide. So
# comparisons between methods on these weights are fair. The perplexities themselves cannot be compared with the
# papers', whose dense models have 16 bits.
#
# ## 9. The claims, measured
#
# The live experiments above use few windows, because a lesson has little time. The results below were measured
# beforehand, with more text, by `course reproduce sparsegpt` and by the experiments that the last line below names.
# Their windows are those that lesson 04 has for Wanda, so that Wanda's rows can stand beside them. SparseGPT ranks
# within blocks of 128 columns, as in its paper and in section 5; Wanda ranks within each output. Every perplexity has
# an error of its own, but all methods read the same windows, so a difference between two of them is known better than
# their errors suggest: the verdicts take the difference window by window, as in section 7. The errors do not cover the
# machine. On another processor, which rounds sums in another order, the same steps gave perplexities within four per
# cent of these, most of them within one.

# %%
measured = results.committed()
print(printed.provenance())
results.sweep(measured)

# %%
results.by_pattern(measured)

# %%
print(printed.pattern_verdict(measured))

# %% [markdown]
# **How much calibration text?** Wanda's score needs one number for each input. SparseGPT's updates are fitted to a
# whole matrix of them, so we expect them to need more text.

# %%
results.calibration_curves(measured)

# %% [markdown]
# **Is 128 a good block size?** Each point is a whole model whose masks were chosen for so many columns at once. A bar
# is the error of one perplexity alone; the title compares with 128 columns window by window.

# %%
results.block_sizes(measured)

# %% [markdown]
# **Which layers are sensitive?** The paper leaves one third of the layers dense at 2:4, prunes the other two thirds,
# and finds that later layers matter more (figure 7). Our experiment is the other way round: one third of the blocks is
# pruned and the others stay dense. The title says what 12 windows tell apart, compared in pairs as before.

# %%
results.thirds(measured)

# %%
print(printed.thirds_verdict(measured))

# %% [markdown]
# **How far from the best weights?** SparseGPT and the exact least-squares solution on its mask, in every layer of the
# model and on the same inputs. The paper finds that SparseGPT's error is about 20 % larger on average, more in the
# output projections of attention and about 10 % in later layers of many inputs (appendix A.1, OPT-2.7B):

# %%
results.errors_over_depth(measured)

# %%
printed.gap_by_layer(measured)

# %% [markdown]
# **What came after SparseGPT?** *Refitting* keeps its mask and takes the best weights on it. *SparseSwaps* (Zimmer and
# others, 2025) looks for a better mask: it swaps a pruned weight for a kept one while that lowers the layer's error,
# and is refitted too. Two other directions are not in the table. OWL (Yin and others, 2024) prunes layers by different
# shares, which is the open task of lesson 04. And LLM-Pruner (Ma and others, 2023) stays with the loss of the whole
# model, as optimal brain damage did, and replaces the diagonal of its Hessian by the mean squared gradients, the Fisher
# information (`course_lib/pruning/methods/fisher.py`).

# %%
printed.successors_table(measured)

# %% [markdown]
# **Is it better to prune and round, or to round more?** Several pairs of about equal size. Rounding is the least stable
# of these measurements: for a weight half way between two levels a tiny difference decides to which of them it goes,
# and all weights behind it are updated accordingly. With 3 bits in groups of 64, the other processor had a
# perplexity of 58.

# %%
display(printed.rounded_table(measured))
print(printed.rounded_verdict(measured))

# %% [markdown]
# **Do benchmarks agree?** We use only those on which the dense model is clearly better than chance (lesson 04 has the
# others and says why):

# %%
display(printed.accuracy_table(measured))
print(printed.accuracy_verdict(measured))

# %%
printed.accuracy_by_pattern(measured)

# %% [markdown]
# **And larger models?** These are the authors' numbers, quoted and not measured here; OPT's are from the paper of
# SparseGPT, LLaMA's from the authors of Wanda. AdaPrune, the best method before, updates weights by gradient descent.
# It took 4.3 hours for 1.3 billion parameters, about as long as SparseGPT for 175 billion (section 4.1).

# %%
display(printed.published_table("opt"))
display(printed.published_table("llama"))

# %% [markdown]
# Larger models lose less. Ours is small, its dense weights have been rounded to 4 bits before, and the text is another.
# So these numbers do not tell why it loses more than OPT-125M.

# %%
beside.by_size(measured)

# %% [markdown]
# ## 10. What it costs, and when it does not pay

# %%
print(printed.seconds_provenance())
printed.seconds_table(measured)

# %% [markdown]
# The paper's ratio is that of the metric alone, without forward passes and on a GPU. On our small model the forward
# passes take most of the time, and the lines under the table say what remains of that ratio.
#
# - **Time.** SparseGPT factorises one $I \times I$ matrix for each input of a block, and its sweep costs $O \cdot I^2$
#   for each layer, as much as running $I / 2$ tokens through it. The factorisations grow with the cube of the width, so
#   the larger the model, the more they count beside the forward passes.
# - **Memory.** It holds the activations of one block, and the matrices of that block's inputs with their factors. Wanda
#   holds one number for each input instead.
# - **It does not pay** where Wanda is as good, as on the larger models of its paper, and time is short; where zeros are
#   of no use to what runs the model (lesson 01); and where training is affordable, since it changes all layers
#   together.
# - **It needs calibration text like the text to come**, because the updates fit the weights to it.
#
# ## 11. An open task
#
# SparseGPT as the paper has it makes four choices that nothing proves best: the order of the columns, the size of the
# block, the damping, and one sweep. Choose better ones. Four layers of block 15, one for each input of the block, are
# to lose half of their weights each, and their outputs **on held-out text** are to change as little as possible. There
# is no formula, nothing is graded, and everything is allowed that returns a weight with half of its entries zero: your
# own functions of this lesson, another mask, several passes, or a `recipe` that looks at the layer before it decides.
#
# Before you try: which column has the most others to make up for it, and which has none? Which of the choices above
# changes the error on the calibration text one way, and on held-out text perhaps the other?


# %%
def recipe(weight, gram):
    """A pruned layer.

    weight: (O, I). gram: (I, I), X^T X over the calibration text. Returns (O, I), half of it zero.
    """
    order = torch.arange(len(gram))  # the place of the column that is settled first, second, ...
    return recipes.swept(weight, gram, order, block_size=128, damping=0.01)


# %%
ideas = load_measured("sparsegpt", "experiments/recipes")["tables"]["ideas"]
recipes.table(recipes.stored(ideas), recipes.attempt(recipe))

# %% [markdown]
# The rows above yours are simple ideas, measured once on the same text (`course reproduce recipes`). The first two
# columns are geometric means over the four layers. The last compares each row with the first, window by window over 16
# held-out windows, in the logarithm of the error: 0.10 is about 10 % less. A row says something where that number is
# larger than twice its error. Does the order on calibration text agree with that on held-out text? What would you
# need to measure before you recommend your recipe for a whole model?
#
# ## To take home
#
# 1. The error of one layer is quadratic, so that its Hessian is exact and needs no gradient: it is the Gram matrix of
#    the inputs.
# 2. When every row deletes in the same order, which is not the best one for any of them, all rows share their
#    inverses, and one Cholesky factor holds them all.
# 3. An algorithm is fast when most of its work is matrix products; lazy updates bring the sweep into this form.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Why may the sweep update only the columns to the right?</summary>
#
# The columns to the left are settled: their zeros are chosen, and a zero that is updated is no longer zero. And only
# because nothing to the left moves any more do all rows work with the same remaining inputs, and share one inverse.
#
# </details>
#
# <details><summary>What becomes of SparseGPT when the damping $\lambda$ grows without bound?</summary>
#
# $H$ becomes a multiple of the identity, and so do its inverse and $U$. The cost of a deletion is then $w^2$ times a
# constant, and all updates vanish. What remains is magnitude pruning, ranked in blocks of columns.
#
# </details>
#
# <details><summary>You calibrate with fewer tokens than a layer has inputs. What does the error on these tokens tell
# you?</summary>
#
# Little. The Gram matrix has directions that no token points to, and along these the weights can change at no cost. The
# updates fit the few tokens there are, so the error on them looks small while it is large on other text. Measure on
# text that was held out.
#
# </details>
#
# ## Reading
#
# - Frantar, Alistarh: *SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot*, ICML 2023,
#   [arXiv:2301.00774](https://arxiv.org/abs/2301.00774). Algorithm 1 and section 3.
# - Frantar, Singh, Alistarh: *Optimal Brain Compression*, NeurIPS 2022,
#   [arXiv:2208.11580](https://arxiv.org/abs/2208.11580). Exact elimination, row by row.
# - Frantar, Ashkboos, Hoefler, Alistarh: *GPTQ*, ICLR 2023, [arXiv:2210.17323](https://arxiv.org/abs/2210.17323).
# - Hassibi, Stork: *Second order derivatives for network pruning: Optimal Brain Surgeon*, NIPS 1992.
