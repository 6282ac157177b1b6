# %% [markdown]
# # 03 · SparseGPT: pruning in one shot, with weight updates
#
# Optimal brain surgeon (lesson 02) removes one weight and updates all the others, so that they compensate for it as
# well as possible. For a whole model, its inverse Hessian would take petabytes. For a single row of a layer the inverse
# is small, but after the first deletion every row needs an inverse of its own. **SparseGPT** (Frantar and Alistarh,
# 2023) lets all rows of a layer share their inverses, and it prunes a model of 175 billion weights on one GPU in about
# four hours. Four steps lead from one method to the other:
#
# 1. Prune one layer at a time, each with its own objective.
# 2. Use the Hessian of this objective, which has a closed form and is the same for all outputs of the layer.
# 3. Process the columns of all outputs in the same order, so that all outputs share their inverses.
# 4. Apply the updates in blocks of columns, so that most of the work becomes matrix products.
#
# You will write all four. Then one function of 13 lines joins the first three and prunes a layer of the real model, and
# we compare the result with your lazy version, with the library and with Wanda.
#
# **Afterwards you can** write SparseGPT from its objective to its blocks, read a forward hook that collects a Hessian,
# explain why a single Cholesky factor replaces hundreds of matrix inverses, and say what each of the four steps gives
# up and what it gains.
#
# **You need** lesson 02, where the update of optimal brain surgeon is derived, and the Cholesky factorisation. Lesson
# 04 is not required.
#
# **Time**: the core path, sections 1 to 7 except for the parts marked as optional, takes about two and a half hours, 73
# minutes of it for exercises. The optional parts are one exercise of section 4 (12 minutes), the end of section 7 (a
# quarter of an hour) and sections 8 to 10 (more than an hour). Later lessons do not need them.

# %%
import time

import torch

from course_lib.data import corpora
from course_lib.lessons.common import gpu, table
from course_lib.lessons.sparsegpt import claims, drawings, plots, tables
from course_lib.lessons.sparsegpt.experiments import recipes
from course_lib.models import load_model
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods import sparsegpt as library, wanda
from course_lib.pruning.sequential import prune_model
from course_lib.quantization.grid import Quantization, before_rounding
from course_lib.workbook import check, mine

# %% [markdown]
# The **calibration set** is a small amount of text, cut into **windows** of 256 tokens, on which we observe the inputs
# of the layers. With the evaluation set we measure what pruning costs. No article is in both. By a *layer* we mean one
# weight matrix $W$ with a row for each output and a column for each input.

# %%
model, tokenizer = load_model()
calibration = corpora.windows("wikipedia", 16, 256, tokenizer, split="calibration", seed=0)  # 16 windows of 256 tokens
evaluation = corpora.windows("wikipedia", 8, 128, tokenizer, split="evaluation", seed=0)

# %% [markdown]
# ## 1. Why other weights can compensate
#
# If we remove one weight, how could other weights of the same output replace it? They can if their inputs contain
# similar information. For example, if two inputs were always equal, we could remove the weight of one and add it to
# the weight of the other, and the output would not change at all.
#
# So we need to look at the inputs of a layer. We write $X$ for them, a matrix with one row per token and one column
# per input. We collect it with **forward pre-hooks**: functions that PyTorch calls with the arguments of a layer just
# before the layer runs. The next cell does this for two layers of transformer block 15: the query projection of
# attention (`q_proj`, 576 inputs and 576 outputs) and the gate projection of the MLP (`gate_proj`, 1,536 outputs).
#
# All that we will need of $X$ is the **Gram matrix** $G = X^\top X$. Its entry $G_{jk}$ is the inner product of
# inputs $j$ and $k$ over all tokens. It has a fixed size, however long the text is, and it can be added up batch by
# batch.

# %%
block = model.model.layers[15]  # transformer blocks are numbered from 0
layers = {"q_proj": block.self_attn.q_proj, "gate_proj": block.mlp.gate_proj}
inputs, grams = {}, {}


def record_inputs(name):
    def hook(layer, arguments):
        inputs[name] = arguments[0].flatten(0, 1)  # (windows, tokens, inputs) -> (all tokens, inputs)
        grams[name] = inputs[name].T @ inputs[name]

    return hook


hooks = [layer.register_forward_pre_hook(record_inputs(name)) for name, layer in layers.items()]
with torch.no_grad():
    model.model(calibration, use_cache=False)  # the transformer without its LM head
for hook in hooks:
    hook.remove()

weight, gram, n_tokens = layers["q_proj"].weight.detach(), grams["q_proj"], len(inputs["q_proj"])
print(f"X: {tuple(inputs['q_proj'].shape)}, G: {tuple(gram.shape)}, W: {tuple(weight.shape)}")
plots.explained_inputs(gram, n_tokens)

# %% [markdown]
# The left panel shows the cosine between any two of the first 96 inputs of `q_proj`, without its sign. Apart from the
# diagonal the panel is mostly light: two inputs alone are usually only weakly correlated (median |cosine| 0.04). The
# right panel asks a different question: which fraction of the sum of squares of an input can a linear combination of
# *all* others explain? It is a histogram of this fraction over the 576 inputs. The fraction is large: 53 % for the
# median input (dashed line).
#
# Part of this is chance. With few tokens even unrelated inputs seem to predict each other; the dotted line shows how
# much chance alone would explain here, 14 %. In other words, few inputs can be replaced by a single other one, but all
# others together can replace a good part of most inputs. An update makes use of this, because it changes the weights of
# the other inputs. Wanda (lesson 04) does not.
#
# ## 2. Step one: one layer and its error
#
# SparseGPT does not look at the loss of the model. It asks that each layer should return nearly the same output as
# before, on the calibration inputs $X$ (equation 1 of the paper):
#
# $$ \min_{\hat W} \; \lVert X W^\top - X \hat W^\top \rVert_2^2 $$
#
# For a matrix this norm is the sum of the squares of its entries (the Frobenius norm, written as in the paper). The
# minimum is over all $\hat W$ with the required number of zeros. We lose something here: an error that later layers
# would ignore counts as much as one that makes their outputs useless. In return we get a small problem that we can
# solve, because the objective is quadratic. The figure shows it for two weights of one output whose inputs are
# correlated.

# %%
plots.objective(weight, gram)

# %% [markdown]
# As in the first figure of lesson 02, the ellipses are lines of equal error, and the round mark is the trained layer.
# On the dotted line the first weight is zero. If we remove it and change nothing else, we arrive at the square. The
# triangle is the point of the dotted line with the lowest error: there the second weight has changed as well. If the
# two inputs were not correlated, the square would already be the best point.

# %% [markdown]
# ### The error of a layer
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# The inputs $X$ of all layers do not fit into memory, so we have only the Gram matrix $G = X^\top X$. It may be
# singular, so do not use a factorisation of it. Compute the squared error of the layer from the weights and $G$.


# %% exercise="sparsegpt.layer_error"
def layer_error(weight, pruned, gram):
    """Compute the squared change of a layer's output over all calibration tokens.

    weight, pruned: (O, I). gram: (I, I), X^T X. Returns a number.
    """
    ### BEGIN SOLUTION
    change = weight - pruned
    return (change @ gram * change).sum()
    ### END SOLUTION


# %%
check("sparsegpt.layer_error", layer_error)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Let $\Delta = W - \hat W$, with rows $d_i$, one per output. The error of output $i$ is $\lVert X d_i \rVert^2 =
# d_i^\top X^\top X d_i$, which needs only $G$. Adding up all outputs gives the trace of $\Delta G \Delta^\top$, or, if
# you compute only the diagonal, `(change @ gram * change).sum()`.
#
# </details>
#
# How large is the error on the real layer? We remove half of each row in two simple ways: the weights with the
# smallest magnitude, and those with the smallest product of magnitude and input norm, which is the score of Wanda.
# The squared norms of the inputs are the diagonal of $G$. We divide by the squared output of the dense layer, and
# call the result the **relative error**.

# %%
error_of = mine("sparsegpt.layer_error", layer_error)
output_size = error_of(weight, torch.zeros_like(weight), gram)
scores = {"magnitude": weight.abs(), "Wanda": weight.abs() * gram.diagonal().sqrt()}
errors = {}
for name, score in scores.items():
    ranks = score.argsort(dim=1).argsort(dim=1)
    keep = ranks >= score.shape[1] // 2  # half of each row
    errors[name] = float(error_of(weight, weight * keep, gram) / output_size)
    print(f"{name}: relative error {100 * errors[name]:.2f} %")

# %% [markdown]
# Neither of the two updates the kept weights. Keep the second number in mind (0.93 %); we return to it in section 7.
#
# **Cost**: one product with $G$, or $O \cdot I^2$ multiplications.
#
# ## 3. Step two: the Hessian in closed form
#
# In lesson 02 the Hessian of a network had to be computed from gradients. For a layer we need no gradient, as you saw
# there for a single row: the objective is quadratic in the weights of one output, and its Hessian is $2 X^\top X$. It
# does not depend on the weights, and it is the *same for every output*, because all outputs of a layer have the same
# inputs. A constant factor (2 here, $1/N$ in lesson 02) changes neither the ranking of the weights nor the updates. So
# we drop it and write $H = X^\top X$, which is the Gram matrix. The cost of a deletion is then $w_q^2 / [H^{-1}]_{qq}$,
# without the ½ of lesson 02.
#
# | | size |
# |:--|--:|
# | inverse Hessian of all 106 million weights, in float32 | 45 PB |
# | Hessian of `q_proj`, for all of its outputs | 1.3 MB |
#
# The update needs the inverse of $H$, and the inverse may not exist. For example, an input may be zero on every
# token, or there may be fewer tokens than inputs. The figure shows the eigenvalues of $G$ for one calibration window
# and for all 16.

# %%
first_window = inputs["q_proj"][: calibration.shape[1]]
plots.spectrum({len(first_window): first_window.T @ first_window, n_tokens: gram}, damping=0.01)

# %% [markdown]
# Each curve shows the 576 eigenvalues from the largest to the smallest, divided by their mean. With one window of 256
# tokens (dark) at most 256 of them can be above zero, and the curve drops there. In the remaining directions the inputs
# of all 256 tokens are zero, so the error on this text does not change if the weights move along them. With 4,096
# tokens (red, dashed) all eigenvalues are positive.
#
# The usual remedy is **damping**: we add the same number to all entries of the diagonal, and thereby to all
# eigenvalues. SparseGPT adds a fraction $\lambda = 0.01$ of the mean of the diagonal. This mean is also the mean of the
# eigenvalues, so in the figure the damping is the dotted line at 0.01.

# %% [markdown]
# ### A Hessian that can be inverted
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Return $X^\top X$ with $\lambda$ times the mean of its diagonal added to every entry of the diagonal. An input that is
# zero on all tokens would make the matrix singular with $\lambda = 0$, however many tokens there are, so add 1 to its
# entry of the diagonal as well. Take the mean before you add any 1. How do you recognise such an input in $X^\top X$
# alone?


# %% exercise="sparsegpt.hessian"
def damped_hessian(inputs, damping):
    """Compute the Hessian of one output's error, with damping.

    inputs: (N, I), one row per token. damping: λ. Returns (I, I).
    """
    ### BEGIN SOLUTION
    gram = inputs.T @ inputs
    diagonal = gram.diagonal()
    return gram + torch.diag(damping * diagonal.mean() + (diagonal == 0).to(gram.dtype))
    ### END SOLUTION


# %%
check("sparsegpt.hessian", damped_hessian)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The diagonal of $X^\top X$ contains the sums of squares of the inputs. Such a sum is zero only if the input is zero
# on all tokens, and then the whole row and column are zero too. So `diagonal == 0` finds these inputs. A 1 on the
# diagonal does not change the other inputs, because this input is not connected to any of them.
#
# </details>
#
# From here on $H$ is the damped matrix. What does damping do to the real layer? The **condition number**, that is, the
# largest eigenvalue divided by the smallest, tells us how much an inversion can amplify rounding errors.

# %%
hessian = mine("sparsegpt.hessian", damped_hessian)(inputs["q_proj"], 0.01)
for name, matrix in {"X^T X": gram, "damped": hessian}.items():
    eigenvalues = torch.linalg.eigvalsh(matrix.double())
    print(f"{name}: condition number {eigenvalues[-1] / eigenvalues[0]:,.0f}")

# %% [markdown]
# With 16 windows the two numbers are of the same order. Damping would matter much more with a single window, where the
# smallest eigenvalue is zero up to rounding.
#
# **Cost**: $I^2$ multiplications per token for $X^\top X$, as much as running the token through a layer with $I$
# outputs.
#
# ## 4. Step three: one order for all rows
#
# Optimal brain surgeon removes the cheapest weight $q$ of a row, at a cost of $w_q^2 / [H^{-1}]_{qq}$, and updates the
# other weights by $-\frac{w_q}{[H^{-1}]_{qq}} [H^{-1}]_{:,q}$ (equation 3 of the SparseGPT paper). Then it goes on with
# the remaining weights. A removed weight must not change any more, so the next step needs the inverse of $H$ *without*
# row and column $q$. Each row of $W$ removes its weights in an order of its own. With 576 rows, we would need 576
# different sequences of inverses.
#
# SparseGPT gives up the best order. **All rows process their columns from left to right.** When a column has been
# processed, it is **frozen** (the paper's word): some rows have set their weight in it to zero, the others have kept
# it, and none of these weights changes any more. Only columns to the right are updated.

# %%
drawings.own_orders()

# %% [markdown]
# Compare the two panels. White weights are pruned. On the left, each row has pruned different columns, so each row
# needs an inverse of its own (the small matrices without the white rows and columns). On the right, four columns are
# frozen (grey where a weight is kept), and all rows need the same inverse: that of $H$ without its first four rows and
# columns. For $I$ columns there are only $I$ inverses, whatever the number of rows.
#
# ### From one inverse to the next
#
# To invert each of these matrices from scratch would cost $I^3$ operations per column. A step of block elimination
# computes the next inverse from the current one in $I^2$. We write the first row and column apart from the rest:
#
# $$ H = \begin{pmatrix} a & b^\top \\ b & C \end{pmatrix} \qquad
#    P = H^{-1} = \begin{pmatrix} \beta & c^\top \\ c & D \end{pmatrix} $$
#
# We want $C^{-1}$, and we have $\beta$, $c$ and $D$. The lower half of $H P = 1$ (the identity matrix) reads $b \beta +
# C c = 0$ and $b c^\top + C D = 1$. The first equation gives $b = -C c / \beta$. Inserting this into the second one
# gives $C \left( D - c c^\top / \beta \right) = 1$, and therefore
#
# $$ C^{-1} = D - \frac{c\, c^\top}{\beta} $$
#
# This is equation 5 of the paper. In words: subtract from $P$ the outer product of its first column and its first row,
# divided by the **pivot** $\beta = P_{11}$, then delete the first row and column.
#
# Let's do it by hand for three inputs:
#
# $$ H = \begin{pmatrix} 2 & 1 & 0 \\ 1 & 2 & 1 \\ 0 & 1 & 3 \end{pmatrix} \qquad
#    H^{-1} = \frac{1}{7} \begin{pmatrix} 5 & -3 & 1 \\ -3 & 6 & -2 \\ 1 & -2 & 3 \end{pmatrix} $$
#
# We freeze input 1. The pivot is $\frac{5}{7}$, and $c = \left(-\frac{3}{7}, \frac{1}{7}\right)$. For the upper left
# entry we get $\frac{6}{7} - \frac{3}{7} \cdot \frac{3}{7} \cdot \frac{7}{5} = \frac{21}{35} = \frac{3}{5}$, and the
# same for the other entries gives
#
# $$ \frac{1}{5} \begin{pmatrix} 3 & -1 \\ -1 & 2 \end{pmatrix} $$
#
# Is this the inverse of $H$ without its first row and column, that is, of the matrix with rows $(2, 1)$ and $(1, 3)$?
# Multiply the two to see that it is. Then we freeze input 2, and
# $\frac{2}{5} - \frac{1}{5} \cdot \frac{1}{5} \cdot \frac{5}{3} = \frac{1}{3}$ is left, which is one over the
# last entry of $H$. The same in PyTorch:

# %%
example = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 3.0]])
smaller = torch.linalg.inv(example)
for n_frozen in (1, 2):
    smaller = smaller[1:, 1:] - torch.outer(smaller[1:, 0], smaller[0, 1:]) / smaller[0, 0]  # equation 5
    from_scratch = torch.linalg.inv(example[n_frozen:, n_frozen:])
    print(f"{n_frozen} frozen: {smaller.tolist()}, equal to the inverse from scratch: {smaller.allclose(from_scratch)}")

# %% [markdown]
# ### The inverse without some inputs
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# *Optional: nothing below uses this exercise.* Equation 5 eliminates one input, the first. Now several inputs are
# frozen, at any positions and in any order. From $H^{-1}$ compute the inverse of $H$ without all of their rows and
# columns.


# %% exercise="sparsegpt.eliminate"
def eliminate(inverse, frozen):
    """Compute the inverse of H without the frozen inputs.

    inverse: (I, I), of H. frozen: (K,), int64, the positions of these inputs in H; K may be 0.
    Returns a square matrix: the inverse of H without those rows and columns.
    """
    ### BEGIN SOLUTION
    rest = [i for i in range(len(inverse)) if i not in frozen]
    shared = inverse[rest][:, frozen]
    explained = shared @ torch.linalg.inv(inverse[frozen][:, frozen]) @ shared.T
    return inverse[rest][:, rest] - explained
    ### END SOLUTION


# %%
check("sparsegpt.eliminate", eliminate)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# You can apply equation 5 once per frozen input, with row $q$, column $q$ and the pivot $P_{qq}$ in place of the first
# ones, and delete all frozen rows and columns at the end. Or you do it in one step: with $F$ for the frozen inputs and
# $R$ for the others, block elimination gives $P_{RR} - P_{RF} P_{FF}^{-1} P_{FR}$. With a single frozen input, $P_{FF}$
# is the pivot, and this is equation 5 again.
#
# </details>
#
# ### All inverses in one matrix
#
# So the sweep from left to right needs $I$ inverses, each of which follows from the one before. SparseGPT does not
# compute them one by one. There is an upper triangular matrix $U$ with $H^{-1} = U^\top U$, and **all of them are in
# it**: row $j$ of $U$, divided by its diagonal entry, is the first row of the inverse that is needed at column $j$,
# divided by its pivot. The pivot itself is the square of the diagonal entry. (In formulas we count from 1, in code from
# 0.) In our example:
#
# | frozen inputs | first row of the inverse / its pivot | row of $U$ / $U_{jj}$ | pivot | $U_{jj}^2$ |
# |:--|:--|:--|:--|:--|
# | none | (1, −3/5, 1/5) | row 1: (1, −3/5, 1/5) | 5/7 | 5/7 |
# | 1 | (1, −1/3) | row 2: (0, 1, −1/3) | 3/5 | 3/5 |
# | 1 and 2 | (1) | row 3: (0, 0, 1) | 1/3 | 1/3 |
#
# So the rows of $U$ are √(5/7) · (1, −3/5, 1/5), √(3/5) · (0, 1, −1/3) and √(1/3) · (0, 0, 1).
#
# The update of a column needs exactly this: a row of the inverse, divided by its pivot. Therefore one factorisation
# replaces all $I$ inverses.

# %% [markdown]
# ### One factor for all inverses
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# Compute $U$. A Cholesky factorisation writes a positive definite matrix as a lower triangular matrix times its
# transpose. Which matrix do you factorise, and which of the two factors is $U$? (If you like proofs, prove the
# statement above before you unfold the derivation: write the first row of $U$ apart from the rest, and compare
# $U^\top U$ with $H^{-1}$ entry by entry.)


# %% exercise="sparsegpt.factor"
def inverse_factor(hessian):
    """Compute U, upper triangular, with U^T U = H^-1.

    hessian: (I, I), positive definite. Returns (I, I).
    """
    ### BEGIN SOLUTION
    return torch.linalg.cholesky(torch.linalg.inv(hessian)).T
    ### END SOLUTION


# %%
check("sparsegpt.factor", inverse_factor)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Cholesky gives $H^{-1} = L L^\top$ with $L$ lower triangular, so $U = L^\top$. For the proof we write the first row
# of $U$ apart:
#
# $$ U = \begin{pmatrix} u & r^\top \\ 0 & V \end{pmatrix} \qquad
#    U^\top U = \begin{pmatrix} u^2 & u\, r^\top \\ u\, r & r r^\top + V^\top V \end{pmatrix}
#    = \begin{pmatrix} \beta & c^\top \\ c & D \end{pmatrix} $$
#
# Compare entry by entry. From $\beta = u^2$ and $c = u\, r$ it follows that $c / \beta = r / u$. In other words, the
# first row of the inverse, divided by its pivot, is the first row of $U$, divided by its diagonal entry. And $V^\top V
# = D - r r^\top = D - c c^\top / \beta$, which by equation 5 is the inverse without the first input. So $V$ is the
# factor of the smaller inverse, as $U$ is the factor of $H^{-1}$, and we can repeat the argument for the second row,
# and so on.
#
# </details>
#
# Does this hold for 576 real inputs? We eliminate the first 40 of them, one after the other, and compare the first
# row of the result with row 40 of $U$ (counted from 0). From here on we compute $U$ in float64, because
# inverting a matrix with a large condition number amplifies rounding errors.

# %%
upper, inverse = mine("sparsegpt.factor", inverse_factor)(hessian.double()), torch.linalg.inv(hessian.double())
for _ in range(40):
    inverse = inverse[1:, 1:] - torch.outer(inverse[1:, 0], inverse[0, 1:]) / inverse[0, 0]  # equation 5
by_elimination, by_factor = inverse[0] / inverse[0, 0], upper[40, 40:] / upper[40, 40]
print(f"largest difference between the two rows: {(by_elimination - by_factor).abs().max():.1e}")
print(f"pivot: {inverse[0, 0]:.6f}, U_jj squared: {upper[40, 40] ** 2:.6f}")

# %% [markdown]
# ### Freezing a column
#
# Now we can process a column for all rows at once. Lesson 02 derived the update for a weight that becomes zero. We need
# it for a weight that takes any new value $v$: in some rows it keeps its value, and in section 8 it is rounded to a few
# bits. The derivation hardly changes. The condition $H \delta w + \mu e_q = 0$ of lesson 02 stays the same, and only
# the constraint now asks for $\delta w_q = v - w_q$. So the direction of the update is still a column of the inverse,
# and only its length differs.

# %% [markdown]
# ### Freeze one column
# **Exercise** · difficulty 3 of 5 · 12 minutes · 3 points
#
# The weights of column $j$ take the new values $v$, one for each output. You know the direction in which the columns to
# the right should change: it is row $j$ of $U$. By which multiple of it does output $i$ change, so that the same
# multiple changes column $j$ itself by exactly $v_i - W_{ij}$? What follows for an output whose weight keeps its value?
# (In `hint` and in your progress this exercise is called `sparsegpt.settle`.)


# %% exercise="sparsegpt.settle"
def freeze(weight, values, upper, j):
    """Give column j its final values and update the columns to its right.

    weight: (O, I). values: (O,), what column j becomes. upper: (I, I), U. j: which column.
    Returns the new weight, (O, I); the columns to the left of j are unchanged.
    """
    ### BEGIN SOLUTION
    frozen = weight.clone()
    frozen[:, j] = values
    lost = (weight[:, j] - values) / upper[j, j]
    frozen[:, j + 1 :] -= torch.outer(lost, upper[j, j + 1 :])
    return frozen
    ### END SOLUTION


# %%
check("sparsegpt.settle", freeze)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Output $i$ changes by a multiple $m_i$ of row $j$ of $U$. In column $j$ itself this is $m_i U_{jj}$, and it must be
# equal to $v_i - W_{ij}$. So $m_i = (v_i - W_{ij}) / U_{jj}$, and for every column $k$ to the right
#
# $$ W_{ik} \leftarrow W_{ik} - \frac{W_{ij} - v_i}{U_{jj}}\, U_{jk} $$
#
# A weight that keeps its value has no error, and its row does not change at all. For a pruned weight ($v_i = 0$) this
# is equation 3, with the inverse of the columns that are not frozen yet.
#
# </details>
#
# **Cost**: one factorisation for all rows, which takes a multiple of $I^3$ multiplications, and on average $O \cdot I /
# 2$ multiplications per column. What do we lose? The last columns cannot be compensated: when they are pruned, hardly
# any column to their right is left.
#
# ## 5. Which weights to prune
#
# When we arrive at column $j$, pruning one of its weights costs $w^2 / U_{jj}^2$, where $w$ already contains all
# updates so far. When should we choose the mask?
#
# | the mask is chosen | problem |
# |:--|:--|
# | column by column | each column has to lose the same fraction: nothing is known yet about the columns after it |
# | for all columns before the start | the choice cannot take the updates into account |
# | **for 128 columns, when the sweep reaches them** | a compromise: this is what SparseGPT does |
#
# Within such a **block of columns**, the weights of all rows are ranked together.

# %% [markdown]
# ### The mask of a block
# **Exercise** · difficulty 3 of 5 · 8 minutes · 2 points
#
# Prune the $\lfloor O \cdot B \cdot s \rfloor$ weights of a block with the lowest cost. Prune exactly that many, even
# if costs are equal or weights are zero already. For example, with 3 rows, 5 columns and $s = 0.5$, 7 of the 15
# weights are pruned.


# %% exercise="sparsegpt.mask"
def block_mask(weight, diagonal, sparsity):
    """Choose the weights of a block of columns to keep.

    weight: (O, B), as updated so far. diagonal: (B,), U_jj of its columns. sparsity: the fraction
    that is pruned.
    Returns (O, B), bool, True = kept.
    """
    ### BEGIN SOLUTION
    score = (weight / diagonal).square()
    pruned = score.flatten().topk(int(score.numel() * sparsity + 1e-6), largest=False).indices
    return torch.ones(score.numel(), dtype=torch.bool).index_fill_(0, pruned, False).reshape(score.shape)
    ### END SOLUTION


# %%
check("sparsegpt.mask", block_mask)

# %% [markdown]
# With this and with `freeze` the sweep is complete. Let's watch it on a small part of the real layer, 32 outputs and
# 96 inputs, with masks for 32 columns.

# %%
choose_mask, freeze_one = mine("sparsegpt.mask", block_mask), mine("sparsegpt.settle", freeze)
part, states = weight[:32, :96], {}
part_upper = mine("sparsegpt.factor", inverse_factor)(hessian[:96, :96].double()).float()
swept = part
for j in range(96):
    if j % 32 == 0:
        keep = choose_mask(swept[:, j : j + 32], part_upper.diagonal()[j : j + 32], 0.5)
    swept = freeze_one(swept, swept[:, j] * keep[:, j % 32], part_upper, j)
    if (j + 1) % 32 == 0:
        states[j + 1] = swept
plots.sweep(part, states)

# %% [markdown]
# The red line shows how far the sweep has come. White weights are zero. The darker a weight, the more it has been
# updated. In the left panel the first 32 columns are frozen, and the columns to the right of the line have been updated
# for all of them: 63 % of these weights have changed by more than 5 % of the median weight. The middle panel shows the
# same after 64 columns. In the right panel the darkest columns are the last ones, because they have received the
# updates of all other columns.
#
# Do all columns lose the same fraction of their weights?

# %%
upper = mine("sparsegpt.factor", inverse_factor)(hessian.double()).float()
keep = choose_mask(weight[:, :128], upper.diagonal()[:128], 0.5)
pruned_by_column = 100 - 100 * keep.float().mean(dim=0)
print(f"single columns lose {pruned_by_column.min():.0f} to {pruned_by_column.max():.0f} % of their weights")

# %% [markdown]
# They do not. $1 / U_{jj}^2$ is the part of input $j$ (its sum of squares, with the damping) that the inputs to its
# right cannot explain. So $U_{jj}$ is large if the input is small, or if the columns to its right can replace it. Such
# a column loses most of its weights.
#
# For the pattern 2:4 (lesson 01), the choice is made for four columns when the sweep reaches them, in each row
# separately. Nothing else changes.
#
# **Cost**: a partial sort of each block.
#
# ## 6. Step four: lazy updates
#
# So far each column updates all columns to its right. This means $I$ passes over, on average, half of the matrix with
# one multiplication per weight, so the time goes into reading and writing memory (lesson 00). But column $j + 1$ needs
# only the updates of the columns before it. Columns far to the right can wait.

# %%
drawings.lazy()

# %% [markdown]
# Within a block (blue), column $j$ (yellow) updates the other columns immediately. For the columns after the block we
# only store its scaled error, $E_{:,j} = (W_{:,j} - v) / U_{jj}$. When all columns of the block are frozen, one
# matrix product applies all stored errors at once (algorithm 1 of the paper):
#
# $$ W_{:,\text{after}} \leftarrow W_{:,\text{after}} - E \, U_{\text{block},\,\text{after}} $$
#
# The result is the same up to rounding. With blocks of 128 columns, the weights after the block are read and written
# once instead of 128 times.
#
# **Deviation from the paper.** Algorithm 1 has two block sizes: $B_s$ columns whose mask is chosen together, and $B$
# columns whose updates are delayed together. In the paper's experiments both are 128, and here one number is used for
# both.

# %% [markdown]
# ### SparseGPT
# **Exercise** · difficulty 5 of 5 · 25 minutes · 5 points
#
# The loop of section 5 already is the method, but there each column updates all columns to its right. Write it with
# lazy updates: for each block choose its mask, freeze its columns and store their scaled errors, and then update the
# columns after the block with one matrix product. `freeze` works on the columns of a block alone if you give it the
# part of $U$ that belongs to them. At which moment do you have to compute $E_{:,j}$? The last block may be narrower
# than the others, and the number of weights to prune is rounded down in each block. You may call your functions from
# above. The check looks only at the result, so you can write a version without lazy updates first and compare the two:
# they must return the same weights up to rounding.


# %% exercise="sparsegpt.prune"
def sparsegpt(weight, upper, sparsity, block_size):
    """Prune a layer and update the weights that are kept.

    weight: (O, I). upper: (I, I), U. sparsity: of every block. block_size: columns in a block.
    Returns (O, I).
    """
    ### BEGIN SOLUTION
    weight = weight.clone()
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        score = (weight[:, start:end] / upper.diagonal()[start:end]).square()
        lowest = score.flatten().topk(int(score.numel() * sparsity + 1e-6), largest=False).indices
        prune = torch.zeros(score.numel(), dtype=torch.bool).index_fill_(0, lowest, True).reshape(score.shape)
        errors = torch.zeros_like(score)
        for j in range(start, end):
            errors[:, j - start] = weight[:, j] * prune[:, j - start] / upper[j, j]
            weight[:, j].masked_fill_(prune[:, j - start], 0)
            weight[:, j + 1 : end] -= torch.outer(errors[:, j - start], upper[j, j + 1 : end])
        weight[:, end:] -= errors @ upper[start:end, end:]
    return weight
    ### END SOLUTION


# %%
check("sparsegpt.prune", sparsegpt)

# %% [markdown]
# ## 7. The whole method, on a layer and on the model
#
# Here is SparseGPT from the inputs of a layer to its new weights, built from your functions. It has steps one to three
# and the masks of section 5. Step four, the lazy updates, is left out: the result must be the same without it, so you
# can compare it with your `sparsegpt`. The function takes your functions as arguments, so that it works with the
# course's own where yours are not finished:
#
# - the Hessian of the layer, and the factor $U$ of its inverse;
# - for each block of columns, the mask;
# - column by column, the final values and the update of all columns to the right.


# %%
@torch.no_grad()
def prune_layer(layer, inputs, sparsity, block_size, damped_hessian, inverse_factor, block_mask, freeze):
    """Prune one linear layer in place with SparseGPT; return the mask."""
    upper = inverse_factor(damped_hessian(inputs.double(), 0.01)).float()  # U, with H^-1 = U^T U
    weight, masks = layer.weight.clone(), []
    for start in range(0, layer.in_features, block_size):
        block = slice(start, start + block_size)
        keep = block_mask(weight[:, block], upper.diagonal()[block], sparsity)
        for offset, keep_column in enumerate(keep.T):
            j = start + offset
            weight = freeze(weight, weight[:, j] * keep_column, upper, j)
        masks.append(keep)
    layer.weight.copy_(weight)
    return torch.cat(masks, dim=1)


pruned_layer = torch.nn.Linear(*weight.T.shape, bias=False)
pruned_layer.weight.data.copy_(weight)
mask = prune_layer(
    pruned_layer,
    inputs["q_proj"],
    0.5,
    128,
    mine("sparsegpt.hessian", damped_hessian),
    mine("sparsegpt.factor", inverse_factor),
    mine("sparsegpt.mask", block_mask),
    mine("sparsegpt.settle", freeze),
)
pruned = pruned_layer.weight.detach()
print(f"kept {mask.sum():,} of {mask.numel():,} weights")

# %% [markdown]
# Do all three versions agree: this one, your lazy one, and the library? The solver of the library takes the inputs as a
# `Gram`, which adds up the Gram matrix batch by batch and stores the factor $U$.

# %%
layer_gram = Gram(weight.shape[1])
layer_gram.add(inputs["q_proj"])
layer_gram.factor(damping=0.01)
others = {
    "your lazy version": mine("sparsegpt.prune", sparsegpt)(weight, upper, 0.5, 128),
    "the library": library.SparseGPT().prune(weight, layer_gram),
}
for name, other in others.items():
    n_different = ((pruned == 0) != (other == 0)).sum()
    difference = (pruned - other).abs().max() / weight.abs().max()
    print(f"{name}: {n_different} zeros differ; largest difference {difference:.0e} of the largest weight")

# %% [markdown]
# On this layer they agree up to rounding. (Where two weights have almost the same cost, rounding may decide which one
# is pruned. In other layers of this model this happens to a few weights out of 10,000, and the error of the layer is
# the same to three digits.)
#
# ### What are the updates worth?
#
# We can now separate the two parts of SparseGPT, the mask and the update. We take its mask with the *dense* weights,
# that is, without any update. And for the same mask we compute the best weights (up to damping): a least-squares
# problem for each row, in which all kept weights may change, to the left and to the right.

# %%
errors["SparseGPT's mask, no updates"] = float(error_of(weight, weight * mask, gram) / output_size)
errors["SparseGPT"] = float(error_of(weight, pruned, gram) / output_size)
best = torch.zeros_like(weight)
for row, keep in enumerate(mask):
    # Minimise (w - w_dense)^T H (w - w_dense) over the kept weights: H_kk w_k = (H w_dense)_k
    best[row, keep] = torch.linalg.solve(hessian[keep][:, keep], hessian[keep] @ weight[row])
errors["SparseGPT's mask, least squares"] = float(error_of(weight, best, gram) / output_size)
table.Table(
    [{"method": name, "relative error": error} for name, error in errors.items()],
    caption="q_proj of block 15 with half of its weights",
    formats={"relative error": table.number(2, "%", 100)},
)

# %% [markdown]
# Read the table from top to bottom. With SparseGPT's mask and dense weights the error is already a third lower than
# with Wanda's mask. The score does not explain this: lesson 04 compares the two scores within rows and from dense
# weights, and there SparseGPT's score is not better. Two other things differ: SparseGPT ranks all rows of a block
# together, and it ranks them after the updates of the blocks before. We have not separated these two. The updates lower
# the error by another third, from 0.63 % to 0.43 %. The last row shows the price of freezing: with the same mask, if
# all kept weights could change at the end, the error would fall to 0.34 %.
#
# ### The whole model
#
# To prune the model, we go through it transformer block by transformer block, as in lesson 04: run a block on the
# calibration set, collect the Gram matrices of its layers, prune them, and run it again, so that the next block
# receives the outputs of the pruned block. `prune_model` does this with any method. We compare Wanda with SparseGPT. To
# save time, both prune only the first 8 of the 30 blocks here; the other 22 stay dense.


# %%
@torch.no_grad()
def window_losses(model):
    """The mean loss of each evaluation window, in nats per token."""
    return torch.stack([model(window[None], labels=window[None]).loss for window in evaluation])


losses = {"dense": window_losses(model)}
dense_blocks = [f"blocks.{i}.*" for i in range(8, 30)]
model, tokenizer = load_model()  # a fresh copy; `layers` still holds the dense weights
prune_model(model, wanda.Wanda(), calibration, ignore=dense_blocks)
losses["Wanda 50 %"] = window_losses(model)

# %%
model, tokenizer = load_model()
prune_model(model, library.SparseGPT(), calibration, ignore=dense_blocks)
losses["SparseGPT 50 %"] = window_losses(model)
for name, loss in losses.items():
    print(f"{name}: perplexity {loss.mean().exp():.1f}")
difference = losses["Wanda 50 %"] - losses["SparseGPT 50 %"]
standard_error = difference.std() / len(difference) ** 0.5
print(f"Wanda minus SparseGPT: {difference.mean():+.3f} ± {standard_error:.3f} nats per token")

# %% [markdown]
# The **perplexity** of a model is the exponential of its mean loss per token (lower is better). The last line
# compares the two pruned models window by window, so that it does not matter which windows are hard. The number after
# ± is the standard error of this mean over 8 windows. With so few windows, a difference is significant if it is more
# than 2.4 standard errors from zero (Student's t distribution). Here the difference is −0.025 ± 0.021, that is, about
# 1.2 standard errors. So these windows do not tell us which of the two methods is better at 50 %.
#
# On a single layer SparseGPT's error is less than half of Wanda's, and yet the two pruned models hardly differ. One
# likely reason is the amount of text: we calibrated with 4,096 tokens, and in section 9 SparseGPT's perplexity falls
# below Wanda's only with more. Two other likely reasons, which we have not tested: the layer error is measured on the
# calibration inputs, to which the updates are fitted, and it counts errors that later layers ignore.
#
# ### Other patterns
#
# `course reproduce sparsegpt` measured the whole model on more text, 16 windows of 512 tokens both for calibration
# and for evaluation.

# %%
plots.by_pattern()

# %% [markdown]
# Compare Wanda (squares) with SparseGPT (triangles) from left to right. With half of the weights pruned anywhere
# (*unstructured*), the two have nearly the same perplexity with this amount of calibration text: 49 with Wanda and 47
# with SparseGPT (section 9 varies the amount). At 4:8, where 4 of every 8 neighbouring weights are kept, it is 90 with
# Wanda and 66 with SparseGPT, and at 2:4 it is 170 and 96. A likely reason: the tighter the pattern, the more often a
# weight must be pruned that matters, and the more the updates are worth. The diamonds show SparseGPT with a
# least-squares refit of the kept weights.

# %%
print(claims.THAN_WANDA_2_4.judge())

# %% [markdown]
# The other claims of the paper are on [the page of claims](../docs/claims.md) under "All claims by lesson": the block
# size, the transformer blocks that are most sensitive, the distance from least squares in all layers, and the
# accuracy on benchmarks.
#
# ### What it costs, and when it does not pay off
#
# The table shows where the time goes when the whole model is pruned. Compare the forward passes with the Gram matrices,
# the factorisation and the sweep (the column *solve*).

# %%
tables.cost()

# %% [markdown]
# - **Time.** On our small model most of the time goes into the forward passes, which Wanda needs too. SparseGPT
#   factorises one $I \times I$ matrix for each of the four inputs of a transformer block, with a cost proportional to
#   $I^3$. Its sweep takes about $O \cdot I^2 / 2$ multiplications per layer, as many as running $I / 2$ tokens through
#   it. Both grow with the cube of the width: if a model becomes twice as wide, with the same number of blocks, they
#   take eight times as long, and the forward passes only four times.
# - **Memory.** SparseGPT needs one matrix per input of a transformer block. Wanda needs one number per input feature.
# - **It does not pay off** where Wanda is as good: here at 50 % with little calibration text, and according to the
#   Wanda paper also for LLaMA models at 50 %; where zeros are of no use, because the model is stored and multiplied
#   densely (lesson 01); and where retraining is affordable, since training changes all layers together.
# - **It depends on the calibration text**, because the updates fit the weights to it. Section 9 measures how much text
#   it needs.
#
# This is the end of the core path. Go on with the optional parts, or jump to *To take home*.
#
# ### Optional: larger models
#
# Our model is small, and its weights had been rounded to 4 bits before the course received them. The next figure shows
# it together with the paper's models. The texts and the models differ, so we compare ratios: the perplexity after
# pruning divided by the one before.

# %%
plots.by_size()

# %% [markdown]
# The filled marks are the paper's OPT models, from 125 million to 175 billion parameters. The larger the model, the
# closer the ratio is to 1 (the dotted line), and the closer together are the three patterns. The hollow marks on the
# left are ours. At 50 % (circles) our model has 2.16 times its dense perplexity and OPT-125M 1.33 times, although the
# two have nearly the same size. These measurements do not tell us why.
#
# ### Optional: how large should a block be?
#
# The size of a block decides how long the sweep takes, and also how freely the mask is chosen. We measure both on the
# real layer, with the solver of the library. It is faster than a plain loop, because it has a second level of blocks:
# strips of 16 columns, which stay in the processor's cache. The factor $U$ was computed before, so it is not part of
# the times.

# %%
seconds, block_errors = {}, {}
for size in (1, 8, 32, 128, 576):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = library.SparseGPT(block_size=size).prune(weight, layer_gram)
        times.append(time.perf_counter() - start)
    seconds[size], block_errors[size] = min(times), float(error_of(weight, result, gram) / output_size)
plots.block_sizes(seconds, block_errors)

# %% [markdown]
# Look at the right panel first. With blocks of one column each column loses the same fraction of its weights, and the
# error is largest. With one block of all 576 columns every weight is chosen before any update, and the error is large
# too. With 8 to 128 columns it is lower and hardly depends on the size. The left panel shows the time on your machine;
# its title compares the slowest size with the fastest.
#
# ### Optional: SparseGPT on a GPU
#
# On a GPU a single program, a **kernel**, can process a whole block (`kernels/weights/sparsegpt_columns.py`). It keeps
# the columns of the block on the chip until the last one is frozen. The table compares it (*on chip*) with programs
# that start several kernels per column: a plain loop in PyTorch (*torch, column loop*), the same loop on the transposed
# weights, where a column is contiguous in memory (*torch, transposed*), and the solver of the library (*solver*). Its
# bound is that of the roofline model (lesson 00).

# %%
print(gpu.provenance())
gpu.table("sparsegpt_columns")

# %% [markdown]
# The kernel is faster than all of them, but it takes more than 30 times as long as its bound. It has few bytes to move
# and few products to compute; the time goes into waiting, because each column needs the result of the one before. (The
# table is of an earlier version of the kernel.)
#
# How long does a whole model take? The next table is for all 32 blocks of a model of Llama-3-8B's shape, on the same
# GPU. The weights are random, so it shows speed only. As in the Wanda paper's times, the forward passes are left out,
# and here the Gram matrices as well.

# %%
of_32_blocks = ("32 blocks, Wanda", "32 blocks, SparseGPT")
gpu.whole_model("pruning", contests=(*of_32_blocks, "one block, SparseGPT, 50 %", "one block, SparseGPT, 2:4"))

# %% [markdown]
# SparseGPT takes 7.2 s at 50 % and 6.1 s at 2:4 (one run each), about a hundred times as long as Wanda. The Wanda paper
# reports 203 s and 0.54 s for the metrics of LLaMA-7B on its GPUs, a ratio of 376. The last rows are for one block,
# with and without the library's own kernels: with them it takes 0.22 s instead of 1.12 s at 50 %, and 0.19 s instead of
# 2.22 s at 2:4 (one run each). About half of the remaining time goes into the factors $U$ (*factors alone*).
#
# ## 8. Optional: fewer weights and fewer bits
#
# **Quantization** stores each weight with few bits: it rounds the weight to a **quantization grid** of, for example,
# $2^3 = 8$ values. Rounding is an error like any other, and our sweep compensates for errors wherever they come from.
# So one pass can prune and quantize (section 3.5 of the paper). With nothing pruned, the same sweep is the method
# GPTQ (Frantar and others, 2022). You have written it already: freeze each column at its rounded values. We try it on
# 64 outputs of the gate projection, with 3 bits and one grid per group of 64 weights.

# %%
freeze_one = mine("sparsegpt.settle", freeze)
gate, gate_gram = layers["gate_proj"].weight.detach(), grams["gate_proj"]
gate_hessian = mine("sparsegpt.hessian", damped_hessian)(inputs["gate_proj"].double(), 0.01)
gate_upper = mine("sparsegpt.factor", inverse_factor)(gate_hessian).float()
rows = gate[:64]
grid = Quantization(3, group=64).grid(rows)
rounded = rows.clone()
for j in range(rows.shape[1]):
    rounded = freeze_one(rounded, grid.round_column(rounded[:, j], j), gate_upper, j)
rows_size = error_of(rows, torch.zeros_like(rows), gate_gram)
for name, result in {"each weight to the nearest value": grid.round(rows), "column by column": rounded}.items():
    print(f"{name}: relative error {100 * float(error_of(rows, result, gate_gram) / rows_size):.2f} %")

# %% [markdown]
# With the updates the error falls from 3.06 % to 1.15 %, on the same grid.
#
# Is it better to prune, or to round to fewer bits? For a fair answer we compare models of equal size, so we have to
# count bits.

# %% [markdown]
# ### Bits per weight
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Weights come in groups of `group_size`, pruned ones included. Each group stores its **scale** (the distance between
# two values of its grid) and its **zero point** (which value of the grid means 0); together they take `grid_bits`. A
# fraction `sparsity` of the weights is pruned and not stored. As soon as any weight is pruned, a **bitmap** with one
# bit per weight records which ones are stored; a dense layer needs no bitmap. How many bits does a weight take on
# average, counting all weights of the layer?


# %% exercise="sparsegpt.bits"
def bits_per_weight(sparsity, value_bits, group_size, grid_bits):
    """Count the bits of storage per weight of the layer, pruned ones included. Returns a number."""
    ### BEGIN SOLUTION
    bitmap = 1 if sparsity > 0 else 0
    return bitmap + (1 - sparsity) * value_bits + grid_bits / group_size
    ### END SOLUTION


# %%
check("sparsegpt.bits", bits_per_weight)

# %%
count_bits = mine("sparsegpt.bits", bits_per_weight)
settings = {
    "half of the weights, 4 bits": (0.5, 4),
    "all weights, 3 bits": (0.0, 3),
    "all weights, 4 bits": (0.0, 4),
}
gate_size = error_of(gate, torch.zeros_like(gate), gate_gram)
gate_statistics = Gram(gate.shape[1])
gate_statistics.add(inputs["gate_proj"])
results = []
for name, (sparsity, bits) in settings.items():
    pattern = library.Unstructured(sparsity, per="layer")
    result = library.SparseGPT(pattern, quantization=Quantization(bits, group=64)).prune(gate, gate_statistics)
    error = float(error_of(gate, result, gate_gram) / gate_size)
    results.append({"weights": name, "bits per weight": count_bits(sparsity, bits, 64, 20), "relative error": error})
table.Table(
    results,
    caption="The gate projection, pruned and rounded in one pass",
    formats={"bits per weight": table.number(2), "relative error": table.number(2, "%", 100)},
)

# %% [markdown]
# The first two rows have the same size. (A group has 20 bits for its scale and zero point.) On this layer it is better
# to keep all weights with 3 bits: the error is 0.91 %, compared with 1.29 % for half of the weights with 4 bits. (The
# 1.15 % above was for the first 64 outputs only.) The third row shows what one more bit gives. For the whole model we
# measured several pairs (`course reproduce sparsegpt_rounded`):

# %%
print(claims.ROUNDED.judge())
tables.rounded()

# %% [markdown]
# On the whole model the advantage of rounding is gone. With one scale per row, half of the weights with 4 bits have a
# much lower perplexity than all of them with 3 bits (74 and 177). With one scale per group of 64, the two are not
# significantly different (67 and 63). The paper reports an advantage for pruning with OPT models of 2.7 billion
# parameters and more. Rounding is the least reproducible of our measurements: where a weight is halfway between two
# values, a tiny difference decides, and all columns after it are updated differently. So another processor can give
# other numbers. The table shows one run on one processor.
#
# ### Is the comparison fair?
#
# The weights of our model were rounded to 4 bits once before the course received them (lesson 00). If its old grid
# were the grid that we use here, rounding again would cost nothing. We cannot undo the first rounding. But we can
# move every weight at random by up to half a step of the old grid, which is about what the first rounding changed,
# and see whether the moved weights lose more when we round them.

# %%
moved = before_rounding(gate, group=32, bits=4, generator=torch.Generator().manual_seed(0))
results = []
for bits in (4, 3):
    for group in (32, 64, None):
        rounding_errors = []
        for dense in (gate, moved):
            rounded = Quantization(bits, group).grid(dense).round(dense)
            rounding_errors.append(((rounded - dense).norm() / dense.norm()).item())
        name = f"{bits} bits, one grid per {f'{group} weights' if group else 'row'}"
        results.append({"grid": name, "weights as they are": rounding_errors[0], "moved weights": rounding_errors[1]})
table.Table(
    results,
    caption="Relative error of the weights after rounding",
    formats=dict.fromkeys(("weights as they are", "moved weights"), table.number(2, "%", 100)),
)

# %% [markdown]
# In each row, both columns are nearly the same, even with groups of 32 weights. The reason is that the old grid
# started at the smallest weight of each group, while our grids always contain zero, so that a pruned weight stays
# zero. The two rarely coincide. So we can compare methods on these weights. We cannot compare the perplexities with
# those of the papers, whose dense models have 16 bits.
#
# ## 9. Optional: how much calibration text, and what came after
#
# Wanda's score needs one number per input feature. SparseGPT's updates are fitted to a whole matrix. Which of the two
# needs more text?

# %%
plots.calibration_curves()

# %% [markdown]
# With a single window of 512 tokens, Wanda (squares) has a perplexity of 55, which is already close to the 50 that it
# reaches with 32 windows. SparseGPT (triangles) starts at 110 and falls to 44. The curves cross between 8 and 16
# windows, that is, between 4,096 and 8,192 tokens. The widest layer has 1,536 inputs, so with one or two windows (512
# or 1,024 tokens) its Gram matrix is singular. The updates then fit the noise of the few tokens, and the error on other
# text is large. The paper uses 128 windows of 2,048 tokens.
#
# Later methods continue in several directions. **Refitting** keeps SparseGPT's mask and computes the least-squares
# weights for it, as you did in section 7. **SparseSwaps** (Zimmer and others, 2025) improves the mask: it swaps a
# pruned weight for a kept one as long as that lowers the error of the layer. OWL (Yin and others, 2024) gives the
# layers different sparsities, which is the open task of lesson 04. LLM-Pruner (Ma and others, 2023) goes back to the
# loss of the whole model, as in optimal brain damage.

# %%
tables.successors()

# %% [markdown]
# From top to bottom the perplexity falls, unstructured as well as at 2:4. At 2:4, for example, it is 97 with SparseGPT,
# 86 after a refit, and 81 with a better mask in addition. (The evaluation text is shorter than in section 7, so the
# same model has a slightly different perplexity here.) The errors in the table are those of each perplexity alone; for
# a verdict we would compare the models window by window. The swaps take several times as long as SparseGPT.
#
# ## 10. Optional: an open task
#
# SparseGPT makes four choices that nothing proves to be the best: the order of the columns, the size of the blocks,
# the damping, and a single sweep. Can you find better ones? Your recipe prunes half of the weights of four layers of
# transformer block 15, one for each of its inputs. Their outputs **on held-out text** should change as little as
# possible. There is no right answer, and nothing is graded. Anything is allowed that returns a weight with half of
# its entries zero: your own functions of this lesson, another mask, several passes, or a rule that looks at the layer
# first.
#
# Before you try: which column can be compensated best, and which one not at all? Which of the choices could lower the
# error on the calibration text and raise it on held-out text?


# %%
def recipe(weight, gram):
    """Prune a layer.

    weight: (O, I). gram: (I, I), X^T X over the calibration text. Returns (O, I), half of it zero.
    """
    order = torch.arange(len(gram))  # the column that is frozen first, second, ...
    return recipes.sparsegpt_with_order(weight, gram, order, block_size=128, damping=0.01)


tables.recipes(recipes.attempt(recipe))

# %% [markdown]
# The rows above yours are simple ideas that we measured on the same text (`course reproduce recipes`). The last
# column compares each of them with the first row, in the logarithm of the error: for example, 0.10 means an error
# that is about 10 % lower. A difference is clear if it is more than about twice its standard error. Is the best
# recipe on the calibration text also the best on held-out text? What else would you measure before you recommend your
# recipe for a whole model?
#
# ## To take home
#
# 1. The error of one layer is quadratic. Its Hessian is the Gram matrix of the inputs: exact, without gradients, and
#    the same for all outputs.
# 2. If all rows freeze their columns in the same order, they share their inverses, and one Cholesky factor contains all
#    of them. The price is that no row can choose its own order.
# 3. Lazy updates change nothing but the time: most of the work becomes matrix products.
# 4. Compared with Wanda, SparseGPT gains much with tight patterns such as 2:4. At 50 % the gain depends on the
#    calibration text: with little text there is none, because the updates need enough of it.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Why may the sweep update only the columns to the right?</summary>
#
# The columns to the left are frozen. Their zeros have been chosen, and a zero that is updated is no longer zero. And
# only because nothing to the left changes any more, all rows have the same remaining inputs and share one inverse.
#
# </details>
#
# <details><summary>What does SparseGPT become when the damping $\lambda$ grows without bound?</summary>
#
# $H$ becomes a multiple of the identity, and so do its inverse and $U$. The cost of pruning a weight is then $w^2$
# times a constant, and all updates are zero. So we get magnitude pruning, ranked within blocks of columns.
#
# </details>
#
# <details><summary>You calibrate with fewer tokens than a layer has inputs. What does the error on these tokens tell
# you?</summary>
#
# Little. In some directions the inputs of all tokens are zero, and along these directions the weights can change at no
# cost. The updates fit the few tokens that there are. So the error on them looks small while it is large on other text.
# Measure the error on held-out text.
#
# </details>
#
# ## Reading
#
# - Frantar, Alistarh: *SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot*, ICML 2023,
#   [arXiv:2301.00774](https://arxiv.org/abs/2301.00774). Read section 3 and algorithm 1.
# - Frantar, Singh, Alistarh: *Optimal Brain Compression*, NeurIPS 2022,
#   [arXiv:2208.11580](https://arxiv.org/abs/2208.11580). Exact elimination, row by row.
# - Frantar, Ashkboos, Hoefler, Alistarh: *GPTQ*, ICLR 2023, [arXiv:2210.17323](https://arxiv.org/abs/2210.17323).
#   Quantization with the same sweep.
# - Hassibi, Stork: *Second order derivatives for network pruning: Optimal Brain Surgeon*, NIPS 1992.
# - Zimmer and others: *SparseSwaps*, 2025. Better masks by swapping.
# - Yin and others: *Outlier Weighed Layerwise Sparsity (OWL)*, ICML 2024,
#   [arXiv:2310.05175](https://arxiv.org/abs/2310.05175). Sparsity by layer.
