# %% [markdown]
# # 02 · Optimal brain damage and surgeon
#
# Which weight can a network lose most cheaply? In 1989 and 1992 two papers answered with second derivatives. Their
# networks have tens of weights, so that everything can be computed exactly. Lessons 03 and 04 apply approximations of
# the same formulas to language models.
#
# **Afterwards you can** derive magnitude pruning, optimal brain damage and optimal brain surgeon from one Taylor
# expansion, find the diagonal of a Hessian in one backward pass, say when squared gradients may replace it, prune a
# small network exactly, and explain why the exact method ends at one row of a language model. **You need** partial
# derivatives, the chain rule and matrix inverses. **Time**: two and a half hours, more than half of them for exercises.
#
# You will write eight short functions. Lesson 00 shows how they are checked; once one is right, what follows it works
# with yours.

# %%
import time
from functools import partial

import torch

from course_lib.data import corpora
from course_lib.pruning.classic.obd import obd_diagonal
from course_lib.pruning.classic.derivatives import error_gradient, full_hessian, outer_product_hessian
from course_lib.pruning.classic.derivatives import output_gradients, residual_part
from course_lib.pruning.classic.obs import inverse_by_recursion, inverse_directly
from course_lib.pruning.classic.network import convolution
from course_lib.pruning.classic.problems import DECAY, NETWORKS, XOR_NETWORK, monks, xor
from course_lib.pruning.classic.quadratic import quadratic
from course_lib.pruning.classic.rows import output_error, prune_row, row_surfaces
from course_lib.lessons.classic.cost import cost
from course_lib.lessons.classic.surgery import ByFormulas
from course_lib.pruning.classic.stopping import accurate, last_good
from course_lib.pruning.classic.surfaces import METHODS, brain_surgeon
from course_lib.pruning.classic.deletion import cheapest, delete, deletions, whole
from course_lib.pruning.classic.training import levenberg_marquardt, solved
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.lessons.classic import figures as plots
from course_lib.lessons.common.table import Table, number
from course_lib.lessons.classic import deck, fisher, measured as classic_results, schematics, smallest, tables
from course_lib.pruning.input_statistics import input_gram
from course_lib.workbook import check, mine

# %% [markdown]
# ## 1. The idea in one picture
#
# The star marks the trained weights, where the error is lowest. The rings are lines of equal error. Deleting a weight
# sets it to zero, which moves the network onto an axis, and on the way there the error rises.
#
# - **Magnitude** deletes the smaller weight, because it is nearer to its axis.
# - **Optimal brain damage** (OBD) also asks how steeply the error rises in that direction.
# - **Optimal brain surgeon** (OBS) lets the other weight move as well, so that the network ends at the cheapest point
#   of the axis.

# %%
surfaces = {
    "no correlations": quadratic((0.1, -0.3)),
    "no correlations, other weights": quadratic((0.2, -0.3)),
    "correlated": quadratic((0.2, -0.3), 30.0),
}
plots.quadratics(surfaces)

# %% [markdown]
# On the left is $2x_1^2 + \tfrac12 x_2^2$ around trained weights $(0.1, -0.3)$, and all three methods delete the first
# weight. With $(0.2, -0.3)$ magnitude still deletes the smaller weight, although the error is steep in its direction.
# OBD and OBS agree, as they must when the Hessian is diagonal. On the right the valley is turned, so that the two
# weights are correlated. There OBS saves part of the cost by moving the other weight, and the title says how much.
#
# With only two weights OBD and OBS always delete the same one, because both compare $h_{11} w_1^2$ with $h_{22} w_2^2$.
# From three weights on they may differ, and in section 6 they do.
#
# ## 2. What a deletion costs
#
# Both papers begin with a Taylor expansion of the error $E$ for a change $\delta w$ of the weights, with the gradient
# $g$ and the Hessian $H$ at the trained weights:
#
# $$ \delta E = g^\top \delta w + \tfrac12\, \delta w^\top H\, \delta w + O(\lVert \delta w \rVert^3) $$

# %% [markdown]
# ### What deletions cost
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# Several weights are deleted at once. Which $\delta w$ is that? Put it into the expansion and return by how much the
# error rises, to second order. The network need not be at a minimum.


# %% exercise="classic.taylor"
def predicted_change(gradient, hessian, weight, gone):
    """How much the error rises, to second order, when some weights are deleted together.

    gradient: (d,). hessian: (d, d). weight: (d,). gone: (d,), True for the weights that are
    deleted.
    Returns a number.
    """
    ### BEGIN SOLUTION
    change = -weight * gone
    return gradient @ change + 0.5 * change @ hessian @ change
    ### END SOLUTION


# %%
check("classic.taylor", predicted_change)

# %% [markdown]
# How good is this prediction? We train a network of nine weights on exclusive or until its gradient is nearly zero, and
# delete every weight in turn. The table compares what your function predicts from the exact Hessian with what happens.

# %%
patterns = xor()
state = solved(XOR_NETWORK, patterns, torch.Generator().manual_seed(0), decay=1e-5)
exact = full_hessian(state.network, state.theta, patterns)
slope = error_gradient(state.network, state.theta, patterns)
rise_of = mine("classic.taylor", predicted_change)
print(f"largest gradient {slope.abs().max():.1e}, error before any deletion {state.error(patterns):.5f}\n")
rises = []
for q, name in enumerate(deck.XOR_NAMES):
    gone = torch.arange(len(state.theta)) == q
    without = whole(XOR_NETWORK, torch.where(gone, 0.0, state.theta))
    rise = without.error(patterns) - state.error(patterns)
    predicted = float(rise_of(slope, exact, state.theta, gone))
    rises.append(
        {"weight": name, "value": state.theta[q].item(), "predicted rise": predicted, "real rise": float(rise)}
    )
Table(
    rises,
    caption="What deleting each weight does to the error",
    formats={"value": number(2), "predicted rise": number(4), "real rise": number(4)},
)

# %% [markdown]
# The predictions are far too small, for every weight. The trained units are saturated, so the error is flat around the
# trained weights, and a deletion is a long step that leaves the flat region. This does not ruin the method, because
# pruning needs less than the exact cost: it needs the right *order* of the weights, and a good *direction* in which to
# move the others. Both can be right where the numbers are not.
#
# ## 3. Optimal brain damage
#
# LeCun, Denker and Solla (1989) make two assumptions. Training has converged, so the gradient is zero; and weights do
# not interact, so $H$ is diagonal. What remains of the expansion is a sum with one term for each weight. Deleting
# weight $k$ alone is the change $\delta w = -w_k e_k$, with $e_k$ the $k$-th unit vector.

# %% [markdown]
# ### OBD's saliency
# **Exercise** · difficulty 1 of 5 · 4 minutes · 2 points
#
# Put that change into the expansion of section 2. What is left of it, with the gradient and the off-diagonal dropped?
# Return this rise of the error, the *saliency*, for every weight.


# %% exercise="classic.obd_saliency"
def obd_saliency(weight, diagonal):
    """The cost of each deletion when weights do not interact.

    weight: (d,). diagonal: (d,), the second derivatives h_kk. Returns (d,).
    """
    ### BEGIN SOLUTION
    return 0.5 * diagonal * weight.square()
    ### END SOLUTION


# %%
check("classic.obd_saliency", obd_saliency)

# %% [markdown]
# <details><summary>The saliency as a formula</summary>
#
# $$ s_k = \tfrac12 h_{kk} w_k^2 $$
#
# </details>
#
# ## 4. The diagonal in one backward pass
#
# So OBD needs only the diagonal of $H$: $d$ numbers instead of $d^2$. One more backward pass finds them. In the drawing
# unit $i$ reads $a_i = \sum_j w_{ij} x_j$ from the units $j$ below, gives out $x_i = f(a_i)$, and is read by the units
# $l, m$ above.

# %%
schematics.units()

# %% [markdown]
# **From a unit to its weights.** $a_i$ is linear in $w_{ij}$ with slope $x_j$, so the curvature along the weight is
# $\dfrac{\partial^2 E}{\partial w_{ij}^2} = \dfrac{\partial^2 E}{\partial a_i^2}\, x_j^2$.
#
# **The beginning.** The pass starts at the outputs. One output with the error $E = \tfrac12 (f(a) - t)^2$ has
#
# $$ \frac{\partial E}{\partial a} = f'(a)\, (x - t) \qquad
# \frac{\partial^2 E}{\partial a^2} = f'(a)^2 + f''(a)\, (x - t) \qquad x = f(a) $$
#
# where the second formula is the derivative of the first, by the product rule.
#
# **The step.** Suppose both derivatives are known for the units $l$ above. Ordinary backpropagation gives the gradient
# of the unit below:
#
# $$ \frac{\partial E}{\partial x_i} = \sum_l w_{li} \frac{\partial E}{\partial a_l} \qquad
# \frac{\partial E}{\partial a_i} = f'(a_i)\, \frac{\partial E}{\partial x_i} $$
#
# To get the curvature, differentiate once more.

# %% [markdown]
# ### Curvature, one layer down
# **Exercise** · difficulty 4 of 5 · 15 minutes · 4 points
#
# Differentiate $\partial E / \partial a_i$ by $a_i$. Two terms arise. In one of them the derivative of $\partial E /
# \partial x_i$ contains a sum over pairs of units $l, m$ above, and OBD keeps only the pairs with $l = m$. Write the
# result, for all patterns at once.


# %% exercise="classic.back_one_layer"
def back_one_layer(weight, first, second, slope, bend):
    """Second derivatives with respect to what enters the units of the layer below.

    weight: (L, I), from I units to the L above.
    first, second: (P, L), dE/da and the second derivatives of the units above, for each pattern.
    slope, bend: (P, I), f'(a) and f''(a) of the units below. Returns (P, I).
    """
    ### BEGIN SOLUTION
    from_above = second @ weight.square()
    return slope.square() * from_above + bend * (first @ weight)
    ### END SOLUTION


# %%
check("classic.back_one_layer", back_one_layer)

# %% [markdown]
# <details><summary>The result, which is the paper's recursion</summary>
#
# $$ \frac{\partial^2 E}{\partial a_i^2} = f'(a_i)^2 \sum_l w_{li}^2 \frac{\partial^2 E}{\partial a_l^2}
# + f''(a_i) \frac{\partial E}{\partial x_i} $$
#
# </details>
#
# Is it the exact diagonal? What it leaves out are the products $w_{li} w_{mi}\, \partial^2 E / \partial a_l \partial
# a_m$ of two different units above. For two outputs of a squared error these mixed derivatives are zero, so the last
# two layers of weights are exact. Further down the recursion is an approximation, unless the layer above has only one
# unit.
#
# The figure shows one network. The table below it has others, trained from other starts, so its numbers differ.

# %%
deck.diagonals()

# %%
measured = classic_results.results()
tables.recursion_table(measured)

# %% [markdown]
# In the last row weights are shared, as in LeCun's own networks: a kernel slides over the inputs, and $h_{kk}$ is the
# sum over all places where the weight is used. Cross terms between two places are dropped as well.
#
# Two remarks. With the $f''$ term an entry of the diagonal may be negative, which would mean that deleting the weight
# lowers the error. Without the term (the Levenberg-Marquardt form) no entry is negative. And the pass costs about as
# much as a gradient. The product of $H$ with one vector is as cheap and exact (Pearlmutter 1994), but the exact
# diagonal of a deep network is not cheap.

# %%
small = convolution(8, 3, 2)
print(f"a convolution: {small.n_connections} connections, {small.n_weights} free weights")
start = XOR_NETWORK.start(torch.Generator().manual_seed(0))
both = [obd_diagonal(XOR_NETWORK, start, patterns, curvature=c).min().item() for c in (True, False)]
print(f"XOR before training: the smallest entry of the diagonal is {both[0]:.1e} with the bend, {both[1]:.1e} without")

# %% [markdown]
# ## 5. Squared gradients in place of curvatures
#
# In a language model even this second backward pass is rarely taken. Gradients are known from training anyway, so one
# squares them instead. Why should a squared *first* derivative say anything about a second one?
#
# Let the error be a negative log-likelihood, $E = -\log p(t \mid x)$, as it is in language modelling. If the data
# follow the distribution that the model describes, the mean of the outer products of the gradients then equals the mean
# Hessian. Both are called the **Fisher information**:
#
# $$ \mathbb E\left[ \frac{\partial E}{\partial w} \frac{\partial E}{\partial w}^{\top} \right]
# = \mathbb E\left[ \frac{\partial^2 E}{\partial w\, \partial w^\top} \right] $$
#
# (Differentiate $\int p = 1$ twice to see it.) The mean is over targets drawn *from the model*. If the targets of the
# data set are taken instead, one gets the **empirical Fisher information**, and its diagonal is the mean squared
# gradient. Methods that prune language models by gradients, such as LLM-Pruner (Ma and others, 2023), put it where OBD
# has $h_{kk}$.
#
# With a squared error one can see what replaces what. With the residual $r = o - t$ and $X = \partial o / \partial w$,
# the gradient of the **output** $o$,
#
# $$ \underbrace{\tfrac1P \sum (X_k^2 + r\, \partial^2 o / \partial w_k^2)}_{\text{Hessian}} \qquad
# \underbrace{\tfrac1P \sum X_k^2}_{\text{outer product, Gauss-Newton}} \qquad
# \underbrace{\tfrac1P \sum r^2 X_k^2}_{\text{squared gradients}} $$
#
# The outer product leaves out a term that is small where residuals are small. Squared gradients count each pattern by
# its squared residual. So before you look at the figure: what do they become in a network that fits its targets
# exactly?

# %%
fisher.diagonals_figure()

# %% [markdown]
# They are multiplied by about $r^2$, which is small, but by nearly the same factor for all weights. A common factor
# changes no order, and pruning needs only the order. The argument fails where the model does not describe the data, as
# in a network before training. The table and the figure compare how the saliencies $\tfrac12 h_{kk} w_k^2$ are ordered,
# in four situations with ten networks each (`course reproduce small`).

# %%
small_networks = classic_results.small()
display(fisher.curvature_table(small_networks))
print(fisher.order_verdict(small_networks))

# %%
fisher.order_figure(small_networks)

# %% [markdown]
# Before training neither approximation is good, because the residuals are large, and so is the term that they multiply.
# In trained networks both order the weights nearly as the Hessian does. In the MONK's network of section 7, however,
# this is not their merit: $w^2$ alone orders the weights as well, since the curvatures differ less than the weights do.
# Look at the column of sizes, too: squared gradients of a well-trained network say little about *how much* a deletion
# costs.
#
# ## 6. Optimal brain surgeon
#
# How much does any diagonal leave out? Here is the outer-product Hessian of the XOR network, scaled so that its
# diagonal is 1. OBD keeps the diagonal and drops the rest.

# %%
plots.correlations(outer_product_hessian(state.network, state.theta, patterns), deck.XOR_NAMES)

# %% [markdown]
# Each number is $|h_{ij}| / \sqrt{h_{ii} h_{jj}}$, the correlation of two weights' output gradients over the four
# patterns. It is 1.0 next to the diagonal where the gradients of two weights are proportional. In a saturated unit
# hardly any pattern but one has a gradient, and two weights that read the same value in that pattern cannot be told
# apart.
#
# Hassibi and Stork (1992) keep the whole matrix. When weight $q$ is deleted, the other weights may move, and the
# question is where to. That is a minimisation under one condition:
#
# $$ \min_{\delta w}\ \tfrac12\, \delta w^\top H\, \delta w \quad\text{such that}\quad
# e_q^\top \delta w + w_q = 0 $$
#
# With a Lagrange multiplier $\mu$ for the condition, the derivative with respect to $\delta w$ must vanish:
# $H \delta w + \mu e_q = 0$.

# %% [markdown]
# ### The others make up for it
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Solve for $\delta w$. Which $\mu$ makes weight $q$ zero? Return the weights after the deletion of number $q$, when
# all others have moved to their best places.


# %% exercise="classic.obs_update"
def obs_update(weight, inverse, q):
    """The weights after the deletion of one, all others moved so that the error rises least.

    weight: (d,). inverse: (d, d), the inverse Hessian. q: the index that is deleted.
    Returns (d,), zero at q.
    """
    ### BEGIN SOLUTION
    return weight - weight[q] / inverse[q, q] * inverse[:, q]
    ### END SOLUTION


# %%
check("classic.obs_update", obs_update)

# %% [markdown]
# <details><summary>The solution as a formula</summary>
#
# The other weights move along a column of the inverse Hessian:
#
# $$ \delta w = -\frac{w_q}{[H^{-1}]_{qq}}\, H^{-1} e_q $$
#
# </details>

# %% [markdown]
# ### The surgeon's saliency
# **Exercise** · difficulty 2 of 5 · 5 minutes · 2 points
#
# What does this deletion cost? Put $\delta w$ into $\tfrac12\, \delta w^\top H\, \delta w$ and simplify: of $H$ and
# its inverse a single number remains. Return this cost, the saliency $L_q$, for all weights.


# %% exercise="classic.obs_saliency"
def obs_saliency(weight, inverse):
    """The cost of each deletion when the others make up for it.

    weight: (d,). inverse: (d, d), the inverse Hessian. Returns (d,).
    """
    ### BEGIN SOLUTION
    return weight.square() / (2 * inverse.diagonal())
    ### END SOLUTION


# %%
check("classic.obs_saliency", obs_saliency)

# %% [markdown]
# <details><summary>The saliency as a formula</summary>
#
# $$ L_q = \frac{w_q^2}{2\,[H^{-1}]_{qq}} $$
#
# A weight is cheap to delete when it is small, or when $[H^{-1}]_{qq}$ is large, which means that other weights can
# take over what it did.
#
# </details>
#
# With $H = I$ this is magnitude pruning, and with a diagonal $H$ it is OBD. The three methods are one formula with
# three Hessians.
#
# ### The inverse
#
# The formula needs $H^{-1}$. Hassibi and Stork use the outer-product form of section 5, with $X$ the gradient of an
# **output** (not of the error, whose gradient vanishes at the minimum), and add a small $\alpha$ to the diagonal:
#
# $$ H = \alpha I + \frac1P \sum_{p=1}^{P} \sum_{o} X_{po} X_{po}^\top $$
#
# It is a mean over the $P$ patterns and a sum over the outputs. Each term adds a matrix of rank one, and for such a
# change the inverse is known in closed form (Sherman and Morrison):
#
# $$ (A + u u^\top)^{-1} = A^{-1} - \frac{A^{-1} u\, u^\top A^{-1}}{1 + u^\top A^{-1} u} $$

# %% [markdown]
# ### The inverse without inverting
# **Exercise** · difficulty 4 of 5 · 15 minutes · 4 points
#
# Build $H^{-1}$ one gradient at a time, without inverting a matrix. What is the inverse before the first gradient?
# Which $u$ belongs to one gradient $X$? Mind that a pattern with several outputs has several gradients.


# %% exercise="classic.recursion"
def inverse_hessian(gradients, alpha):
    """The inverse of the outer-product Hessian.

    gradients: (P, O, d), for P patterns the gradient of each of O outputs. alpha: a positive
    number.
    Returns (d, d).
    """
    ### BEGIN SOLUTION
    inverse = torch.eye(gradients.shape[-1], dtype=gradients.dtype) / alpha
    for x in gradients.flatten(0, 1):
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (len(gradients) + x @ moved)
    return inverse
    ### END SOLUTION


# %%
check("classic.recursion", inverse_hessian)

# %% [markdown]
# <details><summary>The recursion as the paper writes it, for one output</summary>
#
# $$ H^{-1}_{k+1} = H^{-1}_k - \frac{H^{-1}_k X_{k+1} X_{k+1}^\top H^{-1}_k}{P + X_{k+1}^\top H^{-1}_k X_{k+1}}
# \qquad H^{-1}_0 = \frac1\alpha I $$
#
# </details>

# %%
slopes = output_gradients(state.network, state.theta, patterns.inputs)
for alpha in (1e-4, 1e-8):
    one, other = (f(slopes.flatten(0, 1), 4, alpha) for f in (inverse_by_recursion, inverse_directly))
    print(f"alpha {alpha:.0e}: recursion and direct inversion differ by {(one - other).norm() / other.norm():.0e}")
missed = 100 * residual_part(state.network, state.theta, patterns)
print(f"the outer product misses {missed:.1f} % of the exact Hessian")

# %% [markdown]
# With four patterns and nine weights the sum of outer products has rank 4 at most, so without $\alpha$ it has no
# inverse. It also misses much of the exact Hessian here: where every unit is saturated, the outer product is as small
# as the residual term that it leaves out. The next experiment shows that it is good enough all the same.

# %% [markdown]
# The paper's abstract says that of OBS, OBD and magnitude-based methods only OBS deletes the correct weights from an
# XOR network in every case. We train twenty networks and delete one weight from each that solves XOR.

# %%
generator, counts, n_solved = torch.Generator().manual_seed(1), dict.fromkeys(METHODS, 0), 0
for _ in range(20):
    trained = levenberg_marquardt(whole(XOR_NETWORK, XOR_NETWORK.start(generator)), patterns, 1e-5, 200)
    if trained.accuracy(patterns) == 1:
        n_solved += 1
        for name, method in METHODS.items():
            surface = method(trained.network, trained.theta, trained.keep, patterns)
            pruned = delete(trained, surface, cheapest(trained, surface))
            counts[name] += pruned.accuracy(patterns) == 1
print(f"of {n_solved} networks still right: " + ", ".join(f"{name} {count}" for name, count in counts.items()))

# %% [markdown]
# `course reproduce classic` did the same with 200 starts for each of three weight decays. Its tables are part of the
# course, and this lesson reads them from here on.

# %%
print(tables.provenance(measured))
display(tables.xor_table(measured))
print(tables.xor_verdict(measured))

# %%
classic_results.xor_bars(measured)

# %% [markdown]
# The figure separates the *choice* of a weight from the *update* of the others, for the middle row of the table. Few
# networks have a weight that can be deleted while the others stand still (the last column of the table counts them). So
# it is the **update** that keeps XOR right. OBD chooses a weight whose deletion no update can repair. Magnitude chooses
# as well as OBS in these networks: with OBS's update after its choice, XOR is right as often. That is why two claims
# stand above. The paper is right about the networks that result, but not about OBS alone choosing a *correct weight*.
# With much decay, in the last row, the units are less saturated, the diagonal tells more, and OBD keeps every network
# right for which a deletion without update can.
#
# ## 7. Surgery on a whole network
#
# The full method deletes the cheapest weight, updates the others, computes $H^{-1}$ of those that are left, and
# repeats, until a deletion costs too much. The papers stop when the saliency is no longer small. One can also watch the
# accuracy on the training patterns. The test set must not decide when to stop, because it is to judge the result.

# %% [markdown]
# ### Delete until it costs too much
# **Exercise** · difficulty 4 of 5 · 20 minutes · 6 points
#
# Write OBS for an error with a constant Hessian. In each round find the lowest saliency among the weights that are
# left. If it is above the limit, stop; otherwise (at the limit, too) delete that weight and update the others. Where
# all weights are cheap, all are deleted.


# %% exercise="classic.prune"
def prune(weight, hessian, limit):
    """Optimal brain surgeon on a quadratic error.

    weight: (d,), at the minimum. hessian: (d, d). limit: the highest saliency that is still
    deleted.
    Returns (d,).
    """
    ### BEGIN SOLUTION
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        inverse = torch.linalg.inv(hessian[keep][:, keep])
        left, places = weight[keep], keep.nonzero().flatten()
        saliency = left.square() / (2 * inverse.diagonal())
        q = saliency.argmin()
        if saliency[q] > limit:
            break
        weight[keep] = left - left[q] / inverse[q, q] * inverse[:, q]
        weight[places[q]] = 0
        keep[places[q]] = False
    return weight
    ### END SOLUTION


# %%
check("classic.prune", prune)

# %% [markdown]
# The MONK's problems (Thrun and others, 1991) describe robots by six attributes, coded as 17 inputs, and a hidden rule
# says which of the 432 possible robots belong to a class. The rule of problem 1 is "head and body are equal, or the
# jacket is 1". Problem 3 is "jacket is not 4 and body is not 3, or ...", with 6 wrong labels among its 122 training
# robots. We train one network for each of these two, and prune it without any retraining.

# %%
ends = []
for problem, good in ((1, 1.0), (3, 0.93)):
    training, test = monks(problem)
    dense = solved(NETWORKS[problem], training, torch.Generator().manual_seed(0), good, DECAY[problem])
    for name, method in METHODS.items():
        method = partial(brain_surgeon, alpha=DECAY[problem]) if name == "OBS" else method
        end = last_good(deletions(dense, training, method), accurate(training, dense.accuracy(training)))
        row = {"problem": str(problem), "method": name, "weights left": end.n_left, "of": len(end.keep)}
        ends.append(row | {"robots right": end.accuracy(test)})
display(
    Table(
        ends,
        caption="The last network that is as good on the training robots as the trained one",
        formats={("weights left", "of"): "{} of {}".format, "robots right": number(1, "%", 100)},
        note="robots right: of all 432.",
    )
)
plots.surviving(end, dense)

# %% [markdown]
# The pruned network for problem 3 can be read: a robot belongs to the class unless its body is 3 or its jacket is 4.
# That is the rule without its rare second half, which the wrong labels hide, and it is right for 97.2 % of the robots,
# as the trained network was. A hidden unit without inputs is a constant ½, so its outgoing weight acts as a bias.
# Compare magnitude in the table above: where it ends with as few weights and as many robots right, the small network is
# explained by the problem, and not by OBS alone.
#
# The paper's abstract gives reductions of 90, 76 and 62 % without saying which belongs to which problem. We read them
# as 76 % of 58 weights, 62 % of 39 and 90 % of 39, which leaves 14, 15 and 4 weights: the dotted lines. Here are ten
# networks for each problem.

# %%
classic_results.monks_counts(measured)

# %%
display(tables.monks_table(measured))
print(tables.monks_verdict(measured))

# %% [markdown]
# Three results stand out.
#
# - **Without retraining** OBS is far ahead in problems 1 and 2. That is the paper's claim, and the effect is large. In
#   problem 3 so few weights are needed that the medians of all three methods are close, although OBS still needs one
#   weight less in nearly every network. Whether most networks reach the published counts is another question, and ten
#   networks are too few to answer it.
# - **With retraining after every deletion, magnitude pruning does about as well**, because retraining finds by many
#   small steps what OBS computes in one. OBS is for the case in which retraining is too expensive, as it often is for
#   language models.
# - **$\alpha$ matters.** The training objective contains weight decay, so its Hessian has the decay on its diagonal,
#   and this $\alpha$ does better without refitting than $10^{-8}$ (no third value was tried). With $10^{-8}$ weights
#   move far along flat directions, out of the region in which the second order is valid; compare the rows of the table.
#
# Problem 2 shows that training accuracy is not everything: without refitting, the last deletions leave all training
# robots right and some of the 432 wrong. And in problem 3 refitting leaves OBS with *more* weights than without, by the
# medians. Each refit changes which deletion is cheapest next, and greedy steps need not end better because each of them
# was taken from a better place. We did not examine whether that is the reason here.
#
# ## 8. Handwritten digits
#
# The network has 1510 weights. It reads 8 × 8 pixels, learns from 1200 digits and is judged by 597 others. Its Hessian
# has 2.3 million entries and is computed anew for every 75 deletions; in between, each deletion corrects the inverse by
# one step of elimination.

# %%
classic_results.digits_curves(measured)

# %%
classic_results.dense_pruned_retrained(measured)

# %% [markdown]
# Accuracy falls when the network is pruned, and comes back when it is retrained; where most weights are gone, it does
# not come back all the way. OBD's paper works in rounds of deleting and retraining, and so does everyone who can afford
# it.

# %%
display(tables.digits_table(measured))
print(tables.digits_verdict(measured))

# %% [markdown]
# The paper's third network is NETtalk, whose 18,000 weights OBS reduced to 1560. It is missing here because its
# dictionary, aligned letter by letter, comes with no package.
#
# ## 9. What it costs, and when it does not pay

# %% [markdown]
# ### What the inverse costs
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# How many bytes has the inverse Hessian of d weights, and how many FLOPs does the recursion spend on n gradients? Count
# a multiplication and an addition as one FLOP each, the two leading terms only: $H^{-1} X$, and the correction of the
# matrix, a product and a subtraction for each entry. (The division is done on a vector before, and costs little.)


# %% exercise="classic.scale"
def scale(n_weights, n_gradients, bytes_per_number):
    """What OBS needs. Returns (bytes of the inverse Hessian, FLOPs of the recursion)."""
    ### BEGIN SOLUTION
    n_bytes = bytes_per_number * n_weights**2
    flops = 4 * n_gradients * n_weights**2
    return n_bytes, flops
    ### END SOLUTION


# %%
check("classic.scale", scale)

# %%
plots.bytes_of_inverses(deck.SIZES, 16 * 10**9)

# %%
needs = {name: cost(size, 2048) for name, size in deck.SIZES.items()}
Table(
    [
        {
            "network": name,
            "OBD: bytes": float(need.obd_bytes),
            "OBD: FLOPs": float(need.obd_flops),
            "OBS: bytes": float(need.obs_bytes),
            "OBS: FLOPs": float(need.obs_flops),
        }
        for name, need in needs.items()
    ],
    caption="What second derivatives cost, with 2048 gradients",
    formats=dict.fromkeys(("OBD: bytes", "OBS: bytes"), plots.in_words)
    | dict.fromkeys(("OBD: FLOPs", "OBS: FLOPs"), "{:.0e}".format),
)

# %% [markdown]
# OBD scales, because it needs one number a weight and one backward pass. OBS does not: for the 106 million weights in
# the blocks of our language model its inverse would fill 45 petabytes. But one line of the table is small: **one row**
# of a layer. It can be seen as a network of its own, with one linear unit. If a row is to keep its output on given
# inputs $X$, its error is $E = \frac{1}{2N} \lVert X \delta w \rVert^2$ and its Hessian is $H = X^\top X / N$, and this
# is exact however far the weights move, because the third derivative of a quadratic error is zero.
#
# So we can apply OBS to a language model, SmolLM2-135M-Instruct (its weights come from a file of 4 bits a weight). From
# rows of 576 weights half are deleted one by one, and the error is measured on text that was not used. Rows 44 and 465
# are the first two of those that the measurement below drew at random.

# %%
model, tokenizer = load_model()
texts = {
    "calibration": corpora.windows("wikipedia", 16, 256, tokenizer, split="calibration", seed=0),
    "unseen": corpora.windows("wikipedia", 4, 256, tokenizer, split="evaluation", seed=0),
}
grams = {name: input_gram(model, ids, 15, "self_attn.q_proj") for name, ids in texts.items()}
weight = weight_of(linears(blocks(model)[15])["self_attn.q_proj"])
row_surface = row_surfaces(grams["calibration"].matrix, grams["calibration"].n_tokens)
errors = []
for row in (44, 465):
    for name, surface in row_surface.items():
        pruned = prune_row(weight[row], surface, 288)
        error_of = {f"error, {text} text": output_error(grams[text].matrix, weight[row], pruned) for text in texts}
        errors.append({"row": str(row), "method": name} | error_of)
Table(
    errors,
    caption="The relative error of one output with half of its weights pruned",
    formats=dict.fromkeys(("error, calibration text", "error, unseen text"), number(2, "%", 100)),
)

# %% [markdown]
# The next cell does the same with the two formulas that you wrote, saliency and update, on row 44. Then it runs your
# whole loop on the first 96 weights of that row while the others stand still; the limit is the median of what each of
# them costs alone.

# %%
formulas = mine("classic.obs_saliency", obs_saliency), mine("classic.obs_update", obs_update)
pruned = prune_row(weight[44], ByFormulas(row_surface["OBS"].inverse, *formulas), 288)
print(f"row 44, by the two formulas: error {100 * output_error(grams['calibration'].matrix, weight[44], pruned):.2f} %")
part = grams["calibration"].matrix[:96, :96] / grams["calibration"].n_tokens
hessian = part + 0.01 * part.diagonal().mean() * torch.eye(96)
limit = (weight[44, :96].square() / (2 * torch.linalg.inv(hessian).diagonal())).median().item()
left = mine("classic.prune", prune)(weight[44, :96], hessian, limit)
error = output_error(part, weight[44, :96], left)
print(f"the loop deletes {int((left == 0).sum())} of 96 weights: error {100 * error:.2f} %")

# %%
print(tables.rows_verdict(measured))
classic_results.row_errors(measured)

# %% [markdown]
# OBD's saliency of a row is $\tfrac12 w_j^2 \lVert X_j \rVert^2 / N$. This is **the square of Wanda's score** (lesson
# 04) up to the factor $1/(2N)$, which changes no order. OBS on a row is what lesson 03 makes fast.
#
# - **It does not pay** when you can retrain: on the MONK's problems magnitude pruning with retraining came as far.
# - **It does not pay** far from a minimum, or after so many deletions that the second order is no longer valid. The
#   curves of the digits show where they fall.
# - **It does pay** where retraining is out of the question and the weights are strongly correlated.
#
# ### How does one scale it?
#
# For one row the exact method needs $d$ deletions of $O(d^2)$ each, which is $O(d^3)$. All rows of a layer start from
# the same $X^\top X$. But every row deletes its weights in an order of its own, and every deletion changes the inverse,
# so from the first deletion on every row needs an inverse of its own.

# %%
shapes = [weight_of(linear).shape for block in blocks(model) for linear in linears(block).values()]
start = time.perf_counter()
prune_row(weight[0], row_surface["OBS"], 288)
seconds = time.perf_counter() - start
as_many = sum(n_out * (n_in / 576) ** 3 for n_out, n_in in shapes)
print(f"one row of 576 weights: {seconds:.1f} s")
print(f"{sum(n_out for n_out, _ in shapes):,} rows, some longer, by d³ as much as {as_many:,.0f} such rows:")
n_weights = sum(n_out * n_in for n_out, n_in in shapes)
print(f"{as_many * seconds / 3600:.0f} hours on this machine, for {n_weights / 1e6:.0f} million weights in blocks")

# %% [markdown]
# What would you give up so that the rows of a layer may share one inverse: the order of the deletions, the choice, or
# the update? Lesson 03 answers in four steps.
#
# ## 10. An open task
#
# Section 7 ended with networks for the first of the MONK's problems that still had ten weights or more. How few are
# enough? Ten trained networks of 58 weights are given. Write a function that makes each as small as you can, by any
# method: another choice, another update, retraining, looking several deletions ahead, beginning with another network.
# It may look at the training robots. A network counts as solved when it is right about all 432. There is no formula,
# and nothing is graded.
#
# What is given: `delete(state, surface, q)` removes weight `q`, `method(network, theta, keep, samples)` computes an
# error surface, `smallest.refitted(state, training)` trains the weights that are left, `last_good(states, rule)` takes
# the state before the first that breaks a rule. Before you try: which deletions would a greedy method never make?


# %%
def make_small(dense, training):
    """A network with as few weights as possible that is still right about the robots.

    dense: a State, trained, of 58 weights. training: Samples, 124 robots. Returns a State.
    """
    return last_good(deletions(dense, training, METHODS["magnitude"]), accurate(training, 1.0))


# %%
smallest.table(smallest.stored(), smallest.attempt(make_small))

# %% [markdown]
# The rows above yours are simple ideas on the same ten networks (`course reproduce small`). The third column is the
# smallest network that is right about all 432 robots. The last column compares each idea with OBS alone, network by
# network; a row says something where its number is larger than twice its error.
#
# ## To take home
#
# 1. Deleting a weight means moving through the space of the weights. The cost depends on how steeply the error rises
#    on the way, and on which other weights may move along.
# 2. Magnitude, damage and surgeon are one formula with three Hessians: a multiple of the identity, its diagonal, all of
#    it.
# 3. Choosing the right weight is not enough. Without an update of the others even the right one may cost much.
# 4. Squared gradients may replace the diagonal where the model describes its data, and then only for the order.
# 5. For one row of a linear layer the second-order expansion is exact, which makes these methods usable for language
#    models.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>For which Hessian do magnitude, OBD and OBS delete the same weight and end at the same
# network?</summary>
#
# For a multiple of the identity. Then the curvature is the same for every weight, so the smallest is deleted, and no
# other weight is correlated with it, so none moves. If $H$ is diagonal with different entries, OBD and OBS still agree.
#
# </details>
#
# <details><summary>OBS needs the gradient to vanish. What does its formula leave out when training was stopped
# early?</summary>
#
# The linear term $g^\top \delta w$. A deletion may then even lower the error, which a formula of the second order, with
# a positive definite $H$, can never predict.
#
# </details>
#
# <details><summary>Why does the Hessian of a linear layer's squared error not depend on its weights?</summary>
#
# The error is quadratic in the weights, so its second derivative is constant: $X^\top X / N$, made of the inputs alone.
#
# </details>
#
# ## Reading
#
# - LeCun, Denker, Solla: *Optimal Brain Damage*, NIPS 1989,
#   [proceedings](https://proceedings.neurips.cc/paper/1989/hash/6c9882bbac1c7093bd25041881277658-Abstract.html).
# - Hassibi, Stork: *Second Order Derivatives for Network Pruning: Optimal Brain Surgeon*, NIPS 1992,
#   [proceedings](https://proceedings.neurips.cc/paper/1992/hash/303ed4c69846ab36c2904d3ba8573050-Abstract.html).
# - Thrun and others: *The MONK's Problems. A Performance Comparison of Different Learning Algorithms*, Carnegie Mellon
#   University, report CMU-CS-91-197, 1991, [the author's page](http://robots.stanford.edu/papers/thrun.MONK.html). The
#   [data](https://archive.ics.uci.edu/dataset/70).
# - Han, Pool, Tran, Dally: *Learning both Weights and Connections for Efficient Neural Networks*, NeurIPS 2015,
#   [arXiv:1506.02626](https://arxiv.org/abs/1506.02626). Magnitude pruning, with retraining.
# - Ma, Fang, Wang: *LLM-Pruner: On the Structural Pruning of Large Language Models*, NeurIPS 2023,
#   [arXiv:2305.11627](https://arxiv.org/abs/2305.11627). Squared gradients as curvatures, on language models.
# - Kunstner, Balles, Hennig: *Limitations of the Empirical Fisher Approximation for Natural Gradient Descent*, NeurIPS
#   2019, [arXiv:1905.12558](https://arxiv.org/abs/1905.12558). What goes wrong when the two are confused.
# - Pearlmutter: *Fast Exact Multiplication by the Hessian*, Neural Computation 6(1), 1994,
#   [doi:10.1162/neco.1994.6.1.147](https://doi.org/10.1162/neco.1994.6.1.147). The Hessian times a vector.
# - Frantar, Singh, Alistarh: *Optimal Brain Compression*, NeurIPS 2022,
#   [arXiv:2208.11580](https://arxiv.org/abs/2208.11580). The exact surgeon, row by row.
