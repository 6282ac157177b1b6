# %% [markdown]
# # 02 · Optimal brain damage and surgeon
#
# Which weight can a network lose most cheaply? In 1989 and 1992 two papers answered with second derivatives. Their
# networks have tens of weights, so that everything can be computed exactly, and their formulas are those that prune
# language models today: lessons 03 and 04 are this lesson with approximations.
#
# **Afterwards you can** derive magnitude pruning, optimal brain damage and optimal brain surgeon from one Taylor
# expansion, find the diagonal of a Hessian in one backward pass, prune a small network exactly, and say why the exact
# method ends at one row of a language model. **You need** partial derivatives, the chain rule and matrix inverses.
# **Time**: two hours, more than half of them for exercises.
#
# You will write eight short functions. Under each is a `check`; it tells you what is wrong and, when it knows, which
# mistake it is. What follows an exercise uses your function once it is right, and the course's until then.

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
from course_lib.lessons.classic import deck, measured as classic_results, tables
from course_lib.pruning.input_statistics import input_gram
from course_lib.workbook import check, mine

# %% [markdown]
# ## 1. The idea in one picture
#
# Training ended at the star. Deleting a weight moves the network onto an axis, and the error rises along the way. The
# rings are lines of equal error.
#
# - **Magnitude** deletes the smaller weight: the shorter way.
# - **Optimal brain damage** (OBD) also asks how steep the way is.
# - **Optimal brain surgeon** (OBS) does not insist on going straight: the other weight may move, too.

# %%
surfaces = {
    "correlations: none": quadratic((0.1, -0.3)),
    "none, other weights": quadratic((0.2, -0.3)),
    "correlated": quadratic((0.2, -0.3), 30.0),
}
plots.quadratics(surfaces)

# %% [markdown]
# On the left is $2x_1^2 + \tfrac12 x_2^2$ around trained weights $(0.1, -0.3)$: all three delete the first weight.
# With $(0.2, -0.3)$ magnitude still takes the smaller weight, and pays for the steep direction. OBD and OBS agree, as
# they must when the Hessian is diagonal. On the right the valley is turned. Now moving the other weight
# saves part of the cost; the title says how much.
#
# With only two weights OBD and OBS always delete the same one: both compare $h_{11} w_1^2$ with $h_{22} w_2^2$. From
# three on they may differ, and in section 5 they do.
#
# ## 2. What a change costs
#
# Both papers begin with a Taylor expansion of the error $E$ for a change $\delta w$:
#
# $$ \delta E = g^\top \delta w + \tfrac12\, \delta w^\top H\, \delta w + O(\lVert \delta w \rVert^3) $$

# %% [markdown]
# ### What a change costs
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# Write the first two terms.


# %% exercise="classic.taylor"
def predicted_change(gradient, hessian, change):
    """How much the error rises, to second order.

    gradient: (d,). hessian: (d, d). change: (d,). Returns a number.
    """
    ### BEGIN SOLUTION
    return gradient @ change + 0.5 * change @ hessian @ change
    ### END SOLUTION


# %%
check("classic.taylor", predicted_change)

# %% [markdown]
# How good is it? We train a network of nine weights on exclusive or, until its gradient is nearly zero, and delete
# every weight in turn: what the exact Hessian predicts, and what happens.

# %%
patterns = xor()
state = solved(XOR_NETWORK, patterns, torch.Generator().manual_seed(0), decay=1e-5)
exact = full_hessian(state.network, state.theta, patterns)
print(f"largest gradient {error_gradient(state.network, state.theta, patterns).abs().max():.1e}")
print(f"error before any deletion {state.error(patterns):.5f}\n")
print("weight      value   predicted rise   real rise")
for q, name in enumerate(deck.XOR_NAMES):
    predicted = 0.5 * exact[q, q] * state.theta[q] ** 2
    without = state.theta.clone()
    without[q] = 0
    rise = whole(XOR_NETWORK, without).error(patterns) - state.error(patterns)
    print(f"{name:<8}{state.theta[q]:>9.2f}{predicted:>17.4f}{rise:>12.4f}")

# %% [markdown]
# A saturated network is flat where it stands, and a deletion is not a small step. The second order says too little
# here, for every weight. What pruning needs is less: the right order, and the right way out.
#
# ## 3. Optimal brain damage
#
# LeCun, Denker and Solla (1989) drop the gradient (training has converged) and the off-diagonal of $H$. Each weight
# is left with a term of its own. Deleting weight $k$ alone is the change $\delta w = -w_k e_k$, with $e_k$ the $k$-th
# unit vector.

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
# ## 4. The diagonal in one backward pass
#
# So $s_k = \tfrac12 h_{kk} w_k^2$, and the diagonal of $H$ is all that OBD needs: $d$ entries of $d^2$. It finds them
# with one more backward pass. With $a_i$ what enters unit $i$, $x_i = f(a_i)$ what it says, and $l$ running over the
# units above:
#
# $$ \frac{\partial^2 E}{\partial w_{ij}^2} = \frac{\partial^2 E}{\partial a_i^2}\, x_j^2
# \qquad \frac{\partial^2 E}{\partial a_i^2} = f'(a_i)^2 \sum_l w_{li}^2 \frac{\partial^2 E}{\partial a_l^2}
# + f''(a_i) \frac{\partial E}{\partial x_i} $$

# %% [markdown]
# ### Curvature, one layer down
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# Write the second equation: bring the curvature one layer down, for all patterns at once.


# %% exercise="classic.back_one_layer"
def back_one_layer(weight, second, to_unit, slope, bend):
    """Second derivatives with respect to what enters the units of the layer below.

    weight: (L, I), from I units to the L above.
    second: (P, L), the second derivatives above, for each pattern.
    to_unit: (P, I), the gradient dE/dx of the lower units.
    slope, bend: (P, I), f'(a) and f''(a). Returns (P, I).
    """
    ### BEGIN SOLUTION
    from_above = second @ weight.square()
    return slope.square() * from_above + bend * to_unit
    ### END SOLUTION


# %%
check("classic.back_one_layer", back_one_layer)

# %% [markdown]
# Is it the diagonal? The sum over $l$ keeps $w_{li}^2$ and drops the products $w_{li} w_{mi}\, \partial^2 E / \partial
# a_l \partial a_m$ of two different units above. Directly under the outputs these are zero. So with the squared error
# the last two layers of weights are exact; further down it is an approximation, unless the layer above is one unit
# wide.

# The figure shows one network; the table below has others, trained from other starts, so its numbers differ.

# %%
deck.diagonals()

# %%
measured = classic_results.results()
print(tables.recursion_table(measured))

# %% [markdown]
# The last row shares weights, as LeCun's own networks did: a kernel slides over the inputs, and $h_{kk}$ is the sum
# over all places where the weight is used. Cross terms between two places are dropped, too.
#
# Two remarks. With the $f''$ term the diagonal may be negative, and a deletion seems to gain. Dropping the term (the
# Levenberg-Marquardt form) leaves no negative entries. And a pass costs about as much as a gradient. The product of $H$
# with one vector is as cheap, and exact (Pearlmutter 1994); the exact diagonal of a deep network is not.

# %%
small = convolution(8, 3, 2)
print(f"a convolution: {small.n_connections} connections, {small.n_weights} free weights")
start = XOR_NETWORK.start(torch.Generator().manual_seed(0))
both = [obd_diagonal(XOR_NETWORK, start, patterns, curvature=c).min().item() for c in (True, False)]
print(f"XOR before training: the smallest entry of the diagonal is {both[0]:.1e} with the bend, {both[1]:.1e} without")

# %% [markdown]
# ## 5. Optimal brain surgeon
#
# How much does the diagonal leave out? Here is the Hessian of the XOR network, scaled so that its diagonal is 1. OBD
# keeps the diagonal.

# %%
plots.correlations(outer_product_hessian(state.network, state.theta, patterns), deck.XOR_NAMES)

# %% [markdown]
# Hassibi and Stork (1992) keep it all. Minimise $\tfrac12\, \delta w^\top H\, \delta w$ under the condition that
# weight $q$ becomes zero, $e_q^\top \delta w + w_q = 0$. A Lagrange multiplier gives
#
# $$ \delta w = -\frac{w_q}{[H^{-1}]_{qq}}\, H^{-1} e_q $$
#
# and what that costs, the saliency $L_q$, is for you to find below. With $H = I$ this is magnitude pruning, with a
# diagonal $H$ it is OBD. Three methods, one formula.
#
# ### The inverse
#
# For a squared error and a network that fits, the Hessian is an average of outer products, with $X$ the gradient of
# the network's **output** (not of its error, which vanishes there):
#
# $$ H = \frac1P \sum_k X_k X_k^\top \qquad H^{-1}_{k+1} = H^{-1}_k - \frac{H^{-1}_k X_{k+1} X_{k+1}^\top H^{-1}_k}
# {P + X_{k+1}^\top H^{-1}_k X_{k+1}} \qquad H^{-1}_0 = \frac1\alpha I $$
#
# One rank-one correction for each pattern, and nothing is ever inverted.

# %% [markdown]
# ### The inverse without inverting
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# Compute $(\alpha I + \frac1P \sum X X^\top)^{-1}$ by the recursion.


# %% exercise="classic.recursion"
def inverse_hessian(gradients, alpha):
    """The inverse of the outer-product Hessian.

    gradients: (P, d), one output gradient a row. alpha: a positive number. Returns (d, d).
    """
    ### BEGIN SOLUTION
    inverse = torch.eye(gradients.shape[1], dtype=gradients.dtype) / alpha
    for x in gradients:
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (len(gradients) + x @ moved)
    return inverse
    ### END SOLUTION


# %%
check("classic.recursion", inverse_hessian)

# %%
slopes = output_gradients(state.network, state.theta, patterns.inputs).flatten(0, 1)
for alpha in (1e-4, 1e-8):
    one, other = (f(slopes, 4, alpha) for f in (inverse_by_recursion, inverse_directly))
    print(f"alpha {alpha:.0e}: recursion and direct inversion differ by {(one - other).norm() / other.norm():.0e}")
print(
    f"the outer product misses {100 * residual_part(state.network, state.theta, patterns):.1f} % of the exact Hessian"
)

# %% [markdown]
# Four patterns and nine weights: $H$ has rank 4, and without $\alpha$ no inverse. And where every unit is saturated,
# the outer product is as small as what it leaves out. Even so it will find its way.

# %% [markdown]
# ### The surgeon's saliency
# **Exercise** · difficulty 2 of 5 · 5 minutes · 2 points
#
# What does the surgeon's deletion of weight $q$ cost? Put $\delta w$ into $\tfrac12\, \delta w^\top H\, \delta w$ and
# simplify: of $H$ and its inverse a single number is left. Return this cost, $L_q$, for all weights.


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
# So $L_q = w_q^2 / (2\,[H^{-1}]_{qq})$: a weight is cheap when it is small, or when $[H^{-1}]_{qq}$ is large, which is
# where others can take over what it did. How they do it is $\delta w$.

# %% [markdown]
# ### The others make up for it
# **Exercise** · difficulty 3 of 5 · 8 minutes · 3 points
#
# Return the weights after the deletion of number q, when all others have moved as the surgeon asks.


# %% exercise="classic.obs_update"
def obs_update(weight, inverse, q):
    """The weights after the deletion of one, all others moved so that the error rises least.

    weight: (d,). inverse: (d, d), the inverse Hessian. q: the index that leaves.
    Returns (d,), zero at q.
    """
    ### BEGIN SOLUTION
    return weight - weight[q] / inverse[q, q] * inverse[:, q]
    ### END SOLUTION


# %%
check("classic.obs_update", obs_update)

# %% [markdown]
# The abstract says: of OBS, OBD and magnitude, only OBS deletes the correct weights of an XOR network in every case.
# Twenty networks now; those that solve XOR lose one weight.

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
# course; this lesson reads them from here on.

# %%
print(tables.provenance(measured), "\n")
print(tables.xor_table(measured))
print(tables.xor_verdict(measured))

# %%
classic_results.xor_bars(measured)

# %% [markdown]
# The figure takes choice and update apart, for the middle row. Hardly ever can a weight leave while the others stand
# still; the last column of the table counts when. So it is the **update** that saves OBS. OBD takes a weight whose
# absence no update mends. Magnitude, here, chooses as well as OBS: move the rest, and it is right as often. That is why
# there are two claims above. Which networks are left right is as the paper says; that only OBS finds a *correct weight*
# is not. With much decay, in the last row, units are less saturated, the diagonal says more, and OBD does as well as
# can be done without an update.
#
# ## 6. Surgery on a whole network
#
# Delete, update, compute $H^{-1}$ of what is left, and again, until it costs too much. The papers stop when the
# saliency is no longer small; one can also watch the accuracy on the training patterns. Never watch the test set: it is
# asked once, after the stop.

# %% [markdown]
# ### Delete until it costs too much
# **Exercise** · difficulty 4 of 5 · 20 minutes · 6 points
#
# Write OBS for an error with a constant Hessian. In each round find the lowest saliency among the weights that stay;
# if it is above the limit stop, otherwise (at the limit, too) delete that weight and update the others. Where all are
# cheap, all leave.


# %% exercise="classic.prune"
def prune(weight, hessian, limit):
    """Optimal brain surgeon on a quadratic error.

    weight: (d,), at the minimum. hessian: (d, d). limit: the highest saliency that may leave.
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
# The MONK's problems (Thrun and others, 1991): robots have six attributes, 17 inputs in all, and a hidden rule says
# which of the 432 belong to a class. Problem 3 is "jacket is not 4 and body is not 3, or ...", with 6 wrong labels in
# its 122 training robots. One network for problem 1 and one for problem 3, trained to a minimum and operated on, with
# nothing retrained.

# %%
for problem, good in ((1, 1.0), (3, 0.93)):
    training, test = monks(problem)
    dense = solved(NETWORKS[problem], training, torch.Generator().manual_seed(0), good, DECAY[problem])
    for name, method in METHODS.items():
        method = partial(brain_surgeon, alpha=DECAY[problem]) if name == "OBS" else method
        end = last_good(deletions(dense, training, method), accurate(training, dense.accuracy(training)))
        right = f"{100 * end.accuracy(test):.1f} % of all 432 right"
        print(f"problem {problem}, {name:<10} {end.n_left:>2} of {len(end.keep)} weights left, {right}")
plots.surviving(end, dense)

# %% [markdown]
# The surgeon's network for problem 3 can be read: a robot belongs to the class unless its body is 3 or its jacket is
# 4. That is the rule without its rare second half, which the noise hides; it is right for 97.2 % of the robots, as the
# trained network was. Compare magnitude in the list above: where it ends with as few weights and as many robots right,
# the small network is the problem's merit, and not the surgeon's alone.
#
# The paper's abstract speaks of reductions of 90, 76 and 62 %, without saying which belongs to which problem. Taken as
# 76 % of 58 weights, 62 % of 39 and 90 % of 39, they leave 14, 15 and 4: our reading, and the dotted lines. Ten
# networks for each:

# %%
classic_results.monks_counts(measured)

# %%
print(tables.monks_table(measured), "\n")
print(tables.monks_verdict(measured))

# %% [markdown]
# Three things are worth saying.
#
# - **Without retraining** the surgeon is far ahead in problems 1 and 2. That is the claim, and it is large. In problem
#   3 so few weights are needed that the medians of all three are close; one weight less, but in nearly every network.
#   Whether most networks reach the published counts is another question, and ten networks are too few to answer it.
# - **With retraining after every deletion, magnitude pruning does about as well.** Retraining finds by many small
#   steps what OBS computes in one. OBS's case is the case where retraining is too expensive. Language models are.
# - **$\alpha$ matters.** The objective contains weight decay, so its Hessian has the decay on its diagonal. Without
#   refitting this $\alpha$ does better than $10^{-8}$; no third value was tried. With $10^{-8}$ weights run far along
#   flat directions, out of the region where the second order means anything; compare the rows of the table.
#
# Problem 2 shows that training accuracy is not everything: without refitting, the last deletions leave all training
# robots right and some of the 432 wrong. And in problem 3 refitting leaves OBS with *more* weights than without, by the
# medians. Each refit changes which deletion is cheapest next, and greedy steps need not end better because each
# was taken from a better place. Whether that is the reason here was not examined.
#
# ## 7. Handwritten digits
#
# 1510 weights, 8 × 8 pixels, 1200 digits to learn from and 597 to be judged by. The Hessian has 2.3 million entries and
# is computed anew for every 75 deletions; in between, deleting corrects the inverse by one step of elimination.

# %%
classic_results.digits_curves(measured)

# %%
classic_results.dense_pruned_retrained(measured)

# %% [markdown]
# Dense, pruned, retrained: accuracy falls and comes back; where most is gone, not all the way. OBD's paper works in
# rounds of deleting and retraining, and so does everyone who can afford it.

# %%
print(tables.digits_verdict(measured))

# %% [markdown]
# The third network of the paper, NETtalk with 18 000 weights of which 1560 were left, is not here: its dictionary,
# aligned letter by letter, comes with no package.
#
# ## 8. What it costs, and when it does not pay

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
for name, size in deck.SIZES.items():
    needs = cost(size, 2048)
    print(
        f"{name:<17} OBD {plots.in_words(needs.obd_bytes):>9}, {needs.obd_flops:.0e} FLOPs;   "
        f"OBS {plots.in_words(needs.obs_bytes):>9}, {needs.obs_flops:.0e} FLOPs for 2048 gradients"
    )

# %% [markdown]
# OBD scales: one number a weight, one backward pass. OBS does not. For the 106 million weights in the blocks of our
# language model its inverse would fill 45 petabytes. But one line of the table is small: **one row**. A row of a
# linear layer is a network of its own, one linear unit, with $E = \frac{1}{2N} \lVert X \delta w \rVert^2$ and $H =
# X^\top X / N$, exactly and for good: a quadratic error has no third order.
#
# So here is the surgeon at work on a language model: rows of 576 weights, half of them deleted one by one, the error
# measured on text that was not used. Rows 44 and 465 are the first two of those that the measurement below drew at
# random; nothing else speaks for them.

# %%
model, tokenizer = load_model()
texts = {
    "calibration": corpora.windows("wikipedia", 16, 256, tokenizer, split="calibration", seed=0),
    "unseen": corpora.windows("wikipedia", 4, 256, tokenizer, split="evaluation", seed=0),
}
grams = {name: input_gram(model, ids, 15, "self_attn.q_proj") for name, ids in texts.items()}
weight = weight_of(linears(blocks(model)[15])["self_attn.q_proj"])
row_surface = row_surfaces(grams["calibration"].matrix, grams["calibration"].n_tokens)
for row in (44, 465):
    for name, surface in row_surface.items():
        pruned = prune_row(weight[row], surface, 288)
        errors = [100 * output_error(grams[text].matrix, weight[row], pruned) for text in texts]
        print(f"row {row:>3}, {name:<10} error {errors[0]:5.2f} %, on unseen text {errors[1]:5.2f} %")

# %% [markdown]
# The same with the two formulas that you wrote, saliency and update, on row 44. Then your whole loop, on the first 96
# weights of that row, while the others stand still; its limit is the median of what each of them costs alone.

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
# OBD's saliency of a row is $\tfrac12 w_j^2 \lVert X_j \rVert^2 / N$: **the square of Wanda's score**, lesson 04,
# but for the factor $1/(2N)$, which changes no order. OBS
# on a row is what lesson 03 makes fast.
#
# - **It does not pay** when you can retrain: magnitude and patience come as far.
# - **It does not pay** far from a minimum, or after so many deletions that the second order says nothing. Look where
#   the curves of the digits fall.
# - **It does pay** where retraining is out of the question and the correlations are strong.
#
# ### How does one scale it?
#
# For a row the exact surgeon needs $d$ deletions of $O(d^2)$ each: $O(d^3)$. But every row deletes in an order of its
# own, so every row needs its own inverse, which it changes with every deletion.

# %%
shapes = [weight_of(linear).shape for block in blocks(model) for linear in linears(block).values()]
start = time.perf_counter()
prune_row(weight[0], row_surface["OBS"], 288)
seconds = time.perf_counter() - start
as_many = sum(n_out * (n_in / 576) ** 3 for n_out, n_in in shapes)
print(f"one row of 576 weights: {seconds:.1f} s")
print(f"{sum(n_out for n_out, _ in shapes):,} rows, some longer, by d³ as much as {as_many:,.0f} such rows: ", end="")
print(f"{as_many * seconds / 3600:.0f} hours on this machine, for 135 million parameters")

# %% [markdown]
# All rows of a layer start from the same $X^\top X$. If only they could share its inverse. What would you give up for
# that: the order of deletions, the choice, the update? Lesson 03 answers in four steps.
#
# ## To take home
#
# 1. Deleting a weight is a move. Ask how steep the way is, and which other weights may move with it.
# 2. Magnitude, damage and surgeon are one formula with three Hessians: a multiple of the identity, its diagonal, all of
#    it.
# 3. Choosing the right weight is not enough; without an update of the others even the right one may cost much.
# 4. For one row of a linear layer the second order is exact, and that is where language models come in.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>For which Hessian do magnitude, OBD and OBS delete the same weight and leave the same
# network?</summary>
#
# For a multiple of the identity. Then the curvature is the same for every weight, so the smallest leaves, and nothing
# is correlated with it, so no other weight moves. If $H$ is diagonal with different entries, OBD and OBS still agree.
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
#   University, report CMU-CS-91-197, 1991. The [data](https://archive.ics.uci.edu/dataset/70).
# - Han, Pool, Tran, Dally: *Learning both Weights and Connections for Efficient Neural Networks*, NeurIPS 2015,
#   [arXiv:1506.02626](https://arxiv.org/abs/1506.02626). Magnitude pruning, with retraining.
# - Frantar, Singh, Alistarh: *Optimal Brain Compression*, NeurIPS 2022,
#   [arXiv:2208.11580](https://arxiv.org/abs/2208.11580). The exact surgeon, row by row.
