# %% [markdown]
# # 03 · SparseGPT: pruning in one shot, with repairs
#
# Optimal brain surgeon (lesson 02) removes a weight and lets all others make up for it. It needs the inverse Hessian
# of the whole model: for 135 million weights, tens of petabytes. SparseGPT does it for 175 billion weights on one
# GPU. This lesson takes the four steps that lie between the two, each as an exercise and a picture:
#
# 1. one layer at a time, with its own objective;
# 2. a Hessian in closed form, the same for all outputs of the layer;
# 3. one order of deletion for all outputs, so that they share their inverses;
# 4. updates in blocks, as fast as matrix products.
#
# What follows an exercise uses your function once it is right, on a layer of the real model, and the course's until
# then.
#
# **Afterwards you can** write SparseGPT, from its objective to its blocks, and say of each of the four steps what it
# gives up and what it gains; and you can judge its results beside Wanda's, with their errors. **You need** lesson 02,
# for the surgeon's update, and the Cholesky factorisation. **Time**: two and a half hours, an hour and a half of them
# for exercises.

# %%
import math

import torch

from course_lib.data import corpora
from course_lib.measure.perplexity import window_losses
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.lessons.sparsegpt import figures as plots
from course_lib.lessons.sparsegpt import measured as results
from course_lib.lessons.sparsegpt import tables as printed
from course_lib.lessons.common.dots import perplexities
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
# Why can other weights make up for one that leaves? Because their inputs go together. Take the inputs of one attention
# layer over the calibration text. Any two of them have little in common. All of them together say much of what any one
# says; and what they say, they can take over.

# %%
name = "self_attn.q_proj"
weight = weight_of(linears(blocks(model)[15])[name])
grams = input_grams(model, calibration, 15)  # by layer
gram = grams[name]
factor = gram.factor(damping=0.01)
plots.what_others_explain(gram.matrix, factor.upper, gram.n_tokens, "Block 15, input of attention")

# %% [markdown]
# Some of this is chance: with few tokens even unrelated inputs seem to explain each other. The dotted line says how
# much. The rest is what an update can use. Wanda (lesson 04) leaves it lying.
#
# ## 2. Step one: a layer and its error
#
# Forget the loss of the model. Ask that each layer still gives what it gave, on the calibration inputs $X$ (Frantar and
# Alistarh 2023, equation 1; here $X$ has a row for each token, and $W$ a row for each output):
#
# $$ \min_{\hat W} \; \lVert X W^\top - X \hat W^\top \rVert_2^2 $$
#
# over all $\hat W$ with the zeros asked for.

# %% [markdown]
# ### The error of a layer
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# The inputs are gone, only their Gram matrix $G = X^\top X$ is left, and it may be singular. Compute the error from it.


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
# On the real layer, as a share of the squared output, with half of the weights out:

# %%
error_of = mine("sparsegpt.layer_error", layer_error)
size = error_of(weight, torch.zeros_like(weight), gram.matrix)
for title, pruner in {"magnitude": Magnitude(), "Wanda": Wanda(), "SparseGPT": SparseGPT()}.items():
    changed = error_of(weight, pruner.prune(weight, gram), gram.matrix) / size
    print(f"{title:<10} changes {100 * changed:5.2f} % of the output")

# %% [markdown]
# ## 3. Step two: the Hessian, in closed form
#
# The objective is quadratic in the weights of one output, so its Hessian is exact, needs no gradient, and does not
# depend on the weights: $H = 2 X^\top X$. It is the *same for every output*, since all outputs read the same input.
# A factor changes neither the order of the scores nor the updates, so we drop the 2.
#
# It must have an inverse. Some inputs may always be zero, and short calibration texts leave directions that no token
# points to. The usual repair: add a share $\lambda$ of the mean diagonal to the diagonal.

# %% [markdown]
# ### A Hessian that can be inverted
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return $X^\top X$ with $\lambda$ times the mean of its diagonal added to the diagonal, and 1 more for every input that
# is silent, that is, zero at every token.


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
# Optimal brain surgeon deletes the cheapest weight $q$ of a row, at a cost of $w_q^2 / 2[H^{-1}]_{qq}$, updates the
# others by $-\frac{w_q}{[H^{-1}]_{qq}} [H^{-1}]_{:,q}$, and goes on with those that are left. For them it needs the
# inverse of $H$ *without* row and column $q$. Inverting anew would cost $I^3$ each time. One step of Gaussian
# elimination gives it for $I^2$.

# %% [markdown]
# ### The inverse of what is left
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# From $H^{-1}$ compute the inverse of $H$ without row and column $q$.


# %% exercise="sparsegpt.eliminate"
def eliminate(inverse, q):
    """The inverse of what is left when input q is settled.

    inverse: (I, I), of H. q: which input.
    Returns (I - 1, I - 1), the inverse of H without row and column q.
    """
    ### BEGIN SOLUTION
    smaller = inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q]
    rest = [i for i in range(len(inverse)) if i != q]
    return smaller[rest][:, rest]
    ### END SOLUTION


# %%
check("sparsegpt.eliminate", eliminate)

# %% [markdown]
# But each row deletes in an order of its own, so each row needs its own inverses: $O \cdot I^3$ in all. SparseGPT's
# step is to give that up. **Every row settles its columns from left to right**, whether it deletes there or not. Then
# after column $j$ all rows need the same inverse, that of $H$ without the first $j$ columns, and there are only $I$ of
# them.
#
# All $I$ of them are in one triangular matrix. If $H^{-1} = U^\top U$ with $U$ upper triangular, then row $j$ of $U$,
# divided by $U_{jj}$, is the first row of the $j$-th inverse divided by its first entry: exactly the update.

# %% [markdown]
# ### One factor for all inverses
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Compute $U$. A Cholesky factorisation writes a matrix as a triangular one times its transpose. Which matrix do you
# factorise, and which of the two factors is $U$?


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
# Is it true? Eliminate the first 40 inputs of the real layer one after the other, and compare the first row of what is
# left with row 40 of $U$:

# %%
hessian = gram.matrix.double() + 0.01 * gram.diagonal.mean() * torch.eye(len(gram.matrix), dtype=torch.float64)
upper, left = mine("sparsegpt.factor", inverse_factor)(hessian), torch.linalg.inv(hessian)
for _ in range(40):
    left = left[1:, 1:] - torch.outer(left[1:, 0], left[0, 1:]) / left[0, 0]
by_elimination, by_factor = left[0] / left[0, 0], upper[40, 40:] / upper[40, 40]
print(f"largest difference: {(by_elimination - by_factor).abs().max():.1e} of a largest entry of 1")
print(f"1/[inverse]_00 = {1 / left[0, 0]:.4f}, 1/U_jj squared = {1 / upper[40, 40] ** 2:.4f}")

# %% [markdown]
# Now a column can be settled for all rows at once. With $e = w_j$ where the weight leaves and $0$ where it stays:
#
# $$ W_{:,k} \leftarrow W_{:,k} - \frac{e}{U_{jj}} \, U_{jk} \qquad \text{for } k > j $$

# %% [markdown]
# ### Settle one column
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Settle column $j$: the weights that leave become zero, those to the right make up for them.


# %% exercise="sparsegpt.settle"
def settle(weight, keep, upper, j):
    """One step of the sweep.

    weight: (O, I). keep: (O,), bool, who stays in column j. upper: (I, I), U.
    Returns the new weight, (O, I).
    """
    ### BEGIN SOLUTION
    settled = weight.clone()
    error = weight[:, j] * ~keep
    settled[:, j] = weight[:, j] * keep
    settled[:, j + 1 :] -= torch.outer(error / upper[j, j], upper[j, j + 1 :])
    return settled
    ### END SOLUTION


# %%
check("sparsegpt.settle", settle)

# %% [markdown]
# The sweep on a small piece of the real layer, 32 outputs and 96 inputs. Grey has not moved, white is zero, red and
# blue have moved up or down:

# %%
corner = first_inputs_of(gram, 96)
piece = weight[:32, :96]
solution = SparseGPT(block_size=32).solve(piece, corner)
plots.sweep(piece, {column: settled_until(piece, solution, column) for column in (32, 64, 96)})

# %% [markdown]
# The last columns have made up for everything and have nobody left to make up for them.
#
# ## 5. Who leaves
#
# The cost of deleting a weight when its column comes is $w^2 / U_{jj}^2$, after all updates so far. If masks were
# chosen column by column, each column would have to lose the same share, whether it matters or not. If they were chosen
# before the start, they would not know of the updates. SparseGPT compromises: at the start of each block of 128
# columns, it ranks the weights of the block, over all rows together.

# %% [markdown]
# ### Who leaves a block
# **Exercise** · difficulty 3 of 5 · 8 minutes · 2 points
#
# Drop the $\lfloor O \cdot B \cdot s \rfloor$ weights of a block that cost least, exactly that many, whatever the ties,
# and also where weights are zero already.


# %% exercise="sparsegpt.mask"
def block_mask(weight, diagonal, sparsity):
    """Who stays in a block.

    weight: (O, B), as updated. diagonal: (B,), U_jj of its columns. sparsity: the share that leaves.
    Returns (O, B), bool, True = stays.
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
print(f"half of the block leaves; of single columns {leaves.min():.0f} to {leaves.max():.0f} %")

# %% [markdown]
# For 2:4 the choice is made for every four columns, when the sweep reaches them, in each row for itself.
#
# ## 6. Step four: lazy updates
#
# As it stands, each column updates everything to its right: $I$ passes over the whole matrix, each with little
# arithmetic. That is bound by memory (lesson 01). But column $j + 1$ needs only its own update now. So within a block
# of columns the updates stay inside the block, the scaled errors $E$ are kept, and all columns behind the block get
# theirs at its end in one matrix product (algorithm 1 of the paper):
#
# $$ W_{:,\text{behind}} \leftarrow W_{:,\text{behind}} - E \, U_{\text{block},\,\text{behind}} $$

# %% [markdown]
# ### SparseGPT
# **Exercise** · difficulty 5 of 5 · 25 minutes · 5 points
#
# Put it together. For each block: choose its mask, settle its columns, then update what lies behind. The last block
# may be narrower; the count of each is rounded down, as in the last exercise.


# %% exercise="sparsegpt.prune"
def sparsegpt(weight, upper, sparsity, block_size):
    """Prune a layer, updating the weights that stay.

    weight: (O, I). upper: (I, I), U. sparsity: of every block. Returns (O, I).
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
# Your SparseGPT on the real layer, and its error beside those above:

# %%
pruned = mine("sparsegpt.prune", sparsegpt)(weight, factor.upper, 0.5, 128)
changed = mine("sparsegpt.layer_error", layer_error)(weight, pruned, gram.matrix) / size
print(f"{100 * (pruned == 0).float().mean():.1f} % are zero; {100 * changed:.2f} % of the output changes")

# %% [markdown]
# The size of the block decides two things, time and choice. Here for a larger layer:

# %%
gate, gate_gram = weight_of(linears(blocks(model)[15])["mlp.gate_proj"]), grams["mlp.gate_proj"]
sizes = (1, 8, 32, 128, 576)
seconds, errors = race_of_block_sizes(gate, gate_gram, sizes)
plots.block_sizes(seconds, errors)

# %% [markdown]
# The paper's algorithm has two block sizes, one for masks and one for updates that are put off; here one serves both.
# Blocks of one column give every column the same share of zeros; one block of all columns chooses before any update.
# Both ends lose, and between them it matters little. The library's solver adds an inner level: within a block it works
# in strips of 16 columns, small enough for the cache, and sends what is owed between strips as matrix products.
#
# ## 7. A block, then a model
#
# The first 64 outputs of all seven layers of one block, half of the weights out. Two lines have SparseGPT's own mask
# with other weights: as they were, and the best there are. The latter are exact least squares on the same damped $H$,
# one system of equations for every row (`Refit`); SparseGPT, which updates only to the right, lies between.

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
# And the whole model, block after block, each calibrated on what the pruned blocks before it give. Both methods are
# evaluated on the same windows. How hard a window is then drops out of their difference, window by window:

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
print(f"Claim: SparseGPT is better than Wanda at 50 %: {verdict(gain)}")
ratio = values["SparseGPT 50 %"][0] / values["Wanda 50 %"][0]
perplexities(values, f"At 50 % SparseGPT has {ratio:.2f} times the perplexity of Wanda")

# %% [markdown]
# ## 8. Fewer weights and fewer bits
#
# Rounding a weight to a grid is an error like any other. The sweep does not care where the error comes from, so one
# pass can prune and quantize (section 3.5), and with nothing pruned the same sweep is GPTQ (Frantar and others, 2022).
# What does it buy? Count the bits.

# %% [markdown]
# ### Bits a weight
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Weights come in groups of `group_size`; each group has a scale and a zero point, `grid_bits` in all. A share
# `sparsity` of them is left out, however small, and a bitmap says which; a dense layer needs none. How many bits does a
# weight take, counting all weights of the layer?


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
# Half of the weights at 4 bits take as much room as all of them at 3. The paper finds the first better for OPT models
# of 2.7 billion parameters and more. Here, on one layer of a small one, whose weights come from a file of 4 bits, so
# that rounding them to 4 again costs less than the paper's 16-bit weights would pay:

# %%
dense, half = Unstructured(0.0, per="layer"), Unstructured(0.5, per="layer")
contestants = {
    "50 % out, 4 bits": SparseGPT(half, quantization=Quantization(4, group=64)),
    "dense, 3 bits": SparseGPT(dense, quantization=Quantization(3, group=64)),
    "50 % out": SparseGPT(half),
    "dense, 4 bits": SparseGPT(dense, quantization=Quantization(4, group=64)),
}
changed = {name: relative_error(gate, p.prune(gate, gate_gram), gate_gram) for name, p in contestants.items()}
for title, share in changed.items():
    print(f"{title:<17} changes {100 * share:5.2f} % of the output")
gain = Effect(value=math.log(changed["dense, 3 bits"] / changed["50 % out, 4 bits"]), error=0.0)  # one layer, all of it
print(f"Claim: at equal size, half the weights at 4 bits beat all of them at 3: {verdict(gain, larger_models=True)}")

# %% [markdown]
# These weights have been rounded once before: their file holds 4 bits for each (lesson 00). If the grid of that file
# were the grid used here, rounding again would cost nothing, and the comparison would mean nothing. We cannot undo the
# first rounding, but we can move every weight at random by up to half a step of the old grid, which is about what the
# first rounding took away, and see whether such weights lose more when they are rounded.

# %%
moved = before_rounding(gate, group=32, bits=4, generator=torch.Generator().manual_seed(0))
for bits in (4, 3):
    for group in (32, 64, None):
        grids = [Quantization(bits, group).grid(each) for each in (gate, moved)]
        lost, lost_moved = ((grid.round(w) - w).norm() / w.norm() for grid, w in zip(grids, (gate, moved), strict=True))
        where = f"groups of {group}" if group else "whole rows"
        print(f"{bits} bits, {where:<12}: {100 * lost:5.2f} % as they are, {100 * lost_moved:5.2f} % moved")

# %% [markdown]
# Both lose the same, even in groups of 32. The old grid started at each group's smallest weight; the grids here always
# contain zero, so that a pruned weight stays zero, and the two hardly ever meet. So comparisons between methods on
# these weights mean what they say. What cannot be compared with the papers is the level: our *dense* model has paid
# for 4 bits already, theirs have 16.

# %% [markdown]
# Those numbers come from few windows, so that they fit into a lesson; what follows comes from more.
#
# ## 9. The claims, measured
#
# `course reproduce sparsegpt` measured what follows, on the windows that lesson 04 has for Wanda, whose rows stand
# beside it. SparseGPT ranks within blocks of 128 columns, as in its paper and in section 5; Wanda within each output.

# %%
measured = results.committed()
print(printed.provenance())
results.sweep(measured)

# %%
results.by_pattern(measured)

# %%
print(printed.pattern_verdict(measured))

# %% [markdown]
# **How much text?** Updates are fitted to the calibration text, so they need more of it than a score.

# %%
results.calibration_curves(measured)

# %% [markdown]
# **Is 128 a good block?** Each point is a whole model, pruned with masks chosen for so many columns at once.

# %%
results.block_sizes(measured)

# %% [markdown]
# **Which layers are sensitive?** The paper leaves one third dense at 2:4, prunes the other two, and finds that later
# layers matter more. Here it is the other way round: one third of the blocks is pruned and the others stay dense. The
# title says what 12 windows tell apart.

# %%
results.thirds(measured)

# %% [markdown]
# **How far from the best?** In every layer of the model, on the same inputs. The paper finds about 20 % (appendix A.1):

# %%
results.errors_over_depth(measured)

# %% [markdown]
# **And after SparseGPT?** Refitting keeps its mask and takes the best weights. SparseSwaps (Zimmer and others, 2025)
# looks for a better mask, swapping one weight for another while that lowers the layer's error, and is refitted too.

# %%
print(printed.successors_table(measured))

# %% [markdown]
# **Pruned and rounded at once**, at equal size:

# %%
print(printed.rounded_table(measured))

# %% [markdown]
# **Benchmarks**, those on which the dense model stands clear of chance (lesson 04 has the others and says why):

# %%
print(printed.accuracy_verdict(measured))

# %% [markdown]
# The authors' numbers for larger models. They are quoted, not measured here; OPT's are from the paper of SparseGPT,
# LLaMA's from the authors of Wanda.

# %%
print(printed.published_table())

# %% [markdown]
# ## 10. What it costs, and when it does not pay

# %%
print(printed.seconds_table(measured))

# %% [markdown]
# The paper of Wanda reports 203 s for SparseGPT's metric on LLaMA-7B and 0.54 s for its own, forward passes not
# counted. The table says what remains of that ratio here, where the forward passes take most of the time.
#
# - **Time.** One factorisation of an $I \times I$ matrix for each input, and $O \cdot I^2$ for each layer: as much as
#   running $I / 2$ tokens through it. On a small model the forward passes dominate; on a large one the cubes do.
# - **Memory.** One block with its activations, and one $I \times I$ matrix at a time.
# - **It does not pay** where Wanda is as good, as on the larger models of its paper, and time is short; where zeros are
#   of no use to what runs the model (lesson 01); and where training is affordable, since it changes all layers
#   together.
# - **It needs calibration text like the text to come.** The updates fit the weights to it.
#
# ## To take home
#
# 1. The error of one layer is quadratic, so that its Hessian is exact and needs no gradient: it is the Gram matrix of
#    the inputs.
# 2. Giving up the best order of deletion buys inverses that all rows share.
# 3. An algorithm is fast when it is made of matrix products; lazy updates turn the sweep into such.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Why may the sweep update only the columns to the right?</summary>
#
# The columns to the left are settled: their zeros are chosen, and a zero that moves is no zero. And only because
# nothing to the left moves any more do all rows work with the same remaining inputs, and share one inverse.
#
# </details>
#
# <details><summary>What becomes of SparseGPT when the damping $\lambda$ grows without bound?</summary>
#
# $H$ becomes a multiple of the identity, and so do its inverse and $U$. The cost of a deletion is then $w^2$ times a
# constant, and no update is left: magnitude pruning, ranked in blocks of columns.
#
# </details>
#
# <details><summary>You calibrate with fewer tokens than a layer has inputs. What does the error on these tokens tell
# you?</summary>
#
# Little. The Gram matrix has directions that no token points to, along which weights change for nothing. The updates
# fit these tokens, the error on them looks small, and on other text it is not. Measure on text that was held out.
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
# - Hassibi, Stork: *Second order derivatives for network pruning: Optimal Brain Surgeon*, NeurIPS 1992.
