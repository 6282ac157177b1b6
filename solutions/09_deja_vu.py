# %% [markdown]
# # 09 · Deja Vu: heads and neurons chosen for each token
#
# Lessons 01 to 05 removed weights from a model, and they were gone for every text. Here we remove nothing. **Deja Vu**
# (Liu and others, 2023) claims that for each token a small part of an ordinary language model does most of the work,
# and for the next token another part. If we knew this part *before* computing it, we would have to read only its
# weights. So Deja Vu trains small networks that predict it.
#
# We first ask whether such small parts exist. Then you compute an MLP with a few of its neurons, train a predictor that
# finds them, and run a pretrained model with predicted neurons only. At the end we count when this is faster.
#
# **Afterwards you can** say which neurons matter for a token and show that no static set does as well, run an MLP with
# chosen rows of its matrices, train and judge a predictor of neurons, replace the MLPs of a real model with hooks, and
# say when all of this pays off.
#
# **You need** lesson 00, norms and `topk` in PyTorch, and the idea of gradient descent. Other lessons are not required.
#
# **Time**: the core path, sections 1 to 8, takes about two hours and a quarter, 49 minutes of it for exercises. The
# optional sections 9 to 12 take almost an hour and a half, 29 minutes of it for exercises.

# %%
import torch

from course_lib.contextual.apply import contextual
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.static import Static
from course_lib.contextual.small_models.relu_model import load_relu_model
from course_lib.data import corpora
from course_lib.lessons.dejavu import activations, claims, costs, drawings, plots, tables, widgets
from course_lib.lessons.dejavu.experiments import dejavu_ideas
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model
from course_lib.workbook import check, mine

# %% [markdown]
# We need two samples of text that share no article. On the **evaluation set** we measure the loss of a model in
# **nats** per token (the mean cross-entropy with natural logarithms), and its **perplexity**, the exponential of the
# loss (lower is better). The **calibration set** is for choices that have to work for any text, for example a fixed set
# of neurons. The model is SmolLM2-135M-Instruct, whose weights were rounded to 4 bits once before the course received
# them (lesson 00).

# %%
model, tokenizer = load_model()
evaluation = corpora.windows("wikipedia", 6, 80, tokenizer, split="evaluation", seed=0)  # 6 windows of 80 tokens
calibration = corpora.windows("wikipedia", 6, 128, tokenizer, split="calibration", seed=0)

# %% [markdown]
# ## 1. Which neurons does a token need?
#
# An MLP of our model has three matrices: *gate* and *up* with shape (1536, 576), and *down* with shape (576, 1536). For
# one token, its input $x$ is a vector of 576 numbers. The first two matrices turn it into 1,536 **hidden values**
# $h_i$, and *down* turns these into the output:
#
# $$ h = \mathrm{silu}(W_\text{gate}\, x) \odot W_\text{up}\, x, \qquad y = W_\text{down}\, h = \sum_i h_i\, w_i $$
#
# Here $\odot$ multiplies entry by entry, $\mathrm{silu}(z) = z / (1 + e^{-z})$, and $w_i$ is column $i$ of *down*. A
# **neuron** is everything that belongs to one index $i$: row $i$ of *gate*, row $i$ of *up*, and column $i$ of *down*.
# We call the vector $h_i w_i$ the **contribution** of neuron $i$. The output is the sum of the contributions, and no
# neuron uses the result of another one.
#
# Let's compute this for block 15 of 30. A forward pre-hook (a function that PyTorch calls with the arguments of a
# module) gives us the input of the MLP for one window of text. The rest is one MLP in six lines of PyTorch.

# %%
mlp_inputs = []
handle = model.model.layers[15].mlp.register_forward_pre_hook(lambda mlp, args: mlp_inputs.append(args[0][0]))
with torch.no_grad():
    model.model(evaluation[:1], use_cache=False)
handle.remove()

block_15 = model.model.layers[15].mlp
gate_weight, up_weight, down_weight = (
    w.weight.detach() for w in (block_15.gate_proj, block_15.up_proj, block_15.down_proj)
)
mlp_input = mlp_inputs[0]  # (80 tokens, 576)
opened = torch.nn.functional.silu(mlp_input @ gate_weight.T)
hidden_values = opened * (mlp_input @ up_weight.T)  # (80, 1536)
mlp_output = hidden_values @ down_weight.T  # (80, 576)

# %% [markdown]
# Now take a single token, number 60 of the window, and compute all 1,536 contributions. Their sum has to be the output.
# What are their norms?

# %%
contributions = hidden_values[60][:, None] * down_weight.T  # (1536, 576), one row per neuron
difference = (contributions.sum(dim=0) - mlp_output[60]).abs().max()
print(f"the sum of the contributions differs from the output by {difference:.0e} at most")
plots.importances(contributions.norm(dim=1))

# %% [markdown]
# The figure counts neurons by the length (the Euclidean norm) of their contribution, on a log scale. We call this
# length the **importance** of the neuron for this token, and its square the **energy**. Look at the dark bars on the
# right, the 10 % most important neurons: they hold 74 % of the energy. The longest contribution has a length of about
# 8, and hundreds of neurons (grey) are below 0.1. If we leave out neurons, we lose exactly their contributions. So
# which ones would you leave out?

# %% [markdown]
# ### Which neurons matter
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Suppose that each token may keep $k$ neurons and that we know all hidden values. Return a mask with the $k$ most
# important neurons of each token. Two things to consider: a hidden value can be large, of either sign, and still hardly
# move the output; and the tokens choose independently of each other. There may be many tokens, so do not build all
# contributions as in the cell above.


# %% exercise="dejavu.importance"
def which_neurons(hidden, down, k):
    """Choose the k neurons with the longest contributions for each token.

    hidden: (T, F), the hidden values of F neurons for each of T tokens, of either sign.
    down: (D, F); the output of the MLP is hidden @ down.T.
    k: the number of neurons that each token keeps, 1 to F.
    Returns (T, F), bool, True for exactly k neurons in every row; among equals any may be chosen.
    """
    ### BEGIN SOLUTION
    length = hidden.abs() * down.norm(dim=0)  # of h_i w_i
    best = length.topk(k, dim=1).indices
    return torch.zeros_like(hidden, dtype=torch.bool).scatter(1, best, True)
    ### END SOLUTION


# %%
check("dejavu.importance", which_neurons)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The contribution of neuron $i$ is the number $h_i$ times the vector $w_i$, so its length is $|h_i| \cdot \lVert w_i
# \rVert$. The norms of the columns of *down* do not depend on the token and are computed once. For example, a hidden
# value of 2 on a column of norm 0.1 matters less than one of −0.5 on a column of norm 1. `topk` along each row gives
# the positions of the k largest, and `scatter` writes True there. A comparison with the k-th largest value would keep
# too many neurons where several are equal, as after a ReLU, where many are zero.
#
# Why these neurons? Let $S$ be the set that we leave out. The error of the output is $\lVert \sum_{i \in S} h_i w_i
# \rVert \le \sum_{i \in S} |h_i| \lVert w_i \rVert$, and your choice makes the bound on the right as small as it can
# be. The error itself may be smaller with another set, because contributions can cancel.
#
# </details>
#
# Now let your function choose 30 % of the neurons for each of the 80 tokens. Do neighboring tokens choose the same
# ones?

# %%
chosen = mine("dejavu.importance", which_neurons)(hidden_values, down_weight, round(0.3 * 1536))
chosen_again = (chosen[1:] & chosen[:-1]).sum() / chosen[1:].sum()
relative_error = ((hidden_values * ~chosen) @ down_weight.T).norm() / mlp_output.norm()
print(f"of the chosen neurons, the previous token had chosen {100 * chosen_again:.0f} %")
print(f"norm of the sum of the others' contributions: {100 * relative_error:.0f} % of the norm of the output")

# %% [markdown]
# If the tokens chose independently and at random, the first number would be 30 %. At 45 %, neighbors agree more than by
# chance, but more than half of a token's chosen neurons are new. And although 70 % of the neurons are left out, they
# would change the output by 24 % of its norm only.
#
# In the view below you can look at this token by token. It shows four consecutive tokens from the one of the slider on.
# Each picture is one token, each cell one of the 1,536 neurons of a block. The chosen 30 % are colored: dark if the
# previous token chose the neuron as well, light if not. The neurons are sorted row by row, from the top left, by their
# mean importance on the *calibration* text. If the same set were right for all tokens, each picture would be colored
# down to the dashed line and empty below it. Move the token slider and try other blocks.

# %%
shown_blocks = (1, 8, 15, 22, 28)
block_names = [f"block {number}" for number in shown_blocks]
recorded = {
    split: activations.record_mlps(model, windows, shown_blocks)
    for split, windows in (("evaluation", evaluation[:1]), ("calibration", calibration[:2]))
}
importance = {split: [activations.importance(block) for block in blocks] for split, blocks in recorded.items()}
token_texts = [tokenizer.decode([token]) for token in evaluation[0]]
text_choices = widgets.choices(token_texts, importance["evaluation"], importance["calibration"])
controls = widgets.show_choices(text_choices, density=0.3, block=2, token=20, names=block_names)

# %% [markdown]
# The pictures are colored all over. The upper part is denser, since neurons that matter on other text are more likely
# to matter here as well, but many choices lie below the dashed line. How often is each neuron chosen, over all 80
# tokens?

# %%
chosen_often = {name: text_choices.keep(i, 0.3).float().mean(dim=0) for i, name in enumerate(block_names)}
plots.choice_counts(chosen_often, 0.3)

# %% [markdown]
# Each line is a block, with its neurons sorted by how often they are chosen (horizontal); the vertical axis is the
# fraction of the 80 tokens that choose them. A set that is the same for all tokens would be the step (solid, without
# markers): 30 % of the neurons chosen for every token, the others never. Random sets would give the dotted line. All
# blocks lie in between: a few neurons are chosen for nearly every token, and most of them now and then. Even the 30 %
# of the neurons that are chosen most often account for only 41 to 56 % of all choices, depending on the block (see the
# title).
#
# This is what Deja Vu calls **contextual sparsity**: a small set of neurons (or attention heads, section 9) that
# depends on the input gives nearly the same output as all of them. (Lesson 00 calls zeros that depend on the input
# *dynamic*.) A set that is the same for all tokens is called **static**. The fraction of neurons that is kept is the
# **density**. For example, 461 of 1,536 neurons are a density of 30 %.
#
# ## 2. The same neurons for all tokens, or a set for each?
#
# Small errors in every block add up, so we have to measure on the whole model. The next cell does this with your
# function. A pre-hook on every *down* matrix receives the hidden values, sets those that are not chosen to zero, and
# passes the rest on. Setting $h_i$ to zero is the same as leaving neuron $i$ out.


# %%
@torch.no_grad()
def losses_with_neurons(model, token_ids, density, choose):
    """Keep only the chosen neurons in every MLP; return the loss of each window."""

    def zero_the_others(down_proj, arguments):
        (hidden,) = arguments  # (windows, tokens, neurons)
        keep = choose(hidden.flatten(0, 1), down_proj.weight, round(density * hidden.shape[-1]))
        return (hidden * keep.view_as(hidden),)

    handles = [block.mlp.down_proj.register_forward_pre_hook(zero_the_others) for block in model.model.layers]
    losses = window_losses(model, token_ids, progress=False)
    for handle in handles:
        handle.remove()
    return losses


# %% [markdown]
# We compare it with a static set: in each block the $k$ neurons with the highest mean importance on the calibration
# text. (Lesson 05 prunes neurons in this way.) Both ways keep equally many neurons. What differs is what the choice may
# depend on.

# %%
mean_importance = {}  # by matrix


def record_importance(down_proj, arguments):
    mean_importance[down_proj.weight] = arguments[0].abs().mean(dim=(0, 1)) * down_proj.weight.norm(dim=0)


def choose_once(hidden, down, k):
    static = torch.zeros(hidden.shape[1], dtype=torch.bool)
    static[mean_importance[down].topk(k).indices] = True
    return static.expand_as(hidden)


handles = [block.mlp.down_proj.register_forward_pre_hook(record_importance) for block in model.model.layers]
with torch.no_grad():
    model.model(calibration, use_cache=False)
for handle in handles:
    handle.remove()

choices = {"contextual": mine("dejavu.importance", which_neurons), "static": choose_once}
dense_losses = window_losses(model, evaluation, progress=False)
losses_by_choice = {
    name: {density: losses_with_neurons(model, evaluation, density, choose) for density in (0.75, 0.5, 0.3)}
    for name, choose in choices.items()
}
plots.perplexity_over_density(losses_by_choice, dense_losses, at=0.5)

# %%
display(tables.perplexities(losses_by_choice, dense_losses))
gap = losses_by_choice["static"][0.5] - losses_by_choice["contextual"][0.5]
print(f"static minus contextual at 50 %: {gap.mean():+.2f} ± {gap.std() / len(gap) ** 0.5:.2f} nats per token")

# %% [markdown]
# Compare the two lines at 50 %. With half of the neurons chosen for each token (dark, circles), the perplexity is close
# to that of the dense model (dotted). With the same number of neurons in a static set (red, squares), it is nearly nine
# times that of the contextual sets. In the line below the table, the number after ± is the standard error of the
# difference over the six windows. For example, +2.17 ± 0.15 is more than 14 standard errors from zero.
#
# So small sets exist. But to choose them, your function needed all hidden values, so nothing was saved. Such a choice
# is called an **oracle**: it tells us what a perfect prediction would achieve. Two questions remain. How much time
# would a known set save (section 3)? And can we predict it (sections 4 to 6)?
#
# **Cost** of the oracle: the whole MLP, plus one `topk` per token and block.
#
# ## 3. What a known set saves
#
# A model that writes a text computes one token at a time and reads all of its weights for each of them. This makes
# decoding **memory-bound**: its time is the time to read the weights, and the multiplications are nearly free (lesson
# 00). If the set is known, only the weights of the chosen neurons have to be read.
#
# How do the weights of a neuron lie in memory? The drawing shows a small example with 10 neurons and width 6; the
# weights of four chosen neurons are dark. PyTorch stores a matrix row by row.

# %%
drawings.neuron_major()

# %% [markdown]
# On the left, in *gate* and *up*, a neuron is a row, and its numbers lie next to each other: three pieces of memory in
# each of the two matrices, since two of the chosen neurons are neighbors. In the middle, in *down*, a neuron is a
# column, and every entry is a piece of its own. If *down* is stored transposed (right), its columns become rows as
# well. In the exercise *down* is stored as usual; the measurement of the time after it uses the transposed form.

# %% [markdown]
# ### Only the rows that are needed
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Compute the MLP for one token with the neurons in a list, without using the weights of the others. What belongs to
# neuron $i$ in each of the three matrices?


# %% exercise="dejavu.gathered"
def gathered_mlp(x, gate, up, down, index):
    """Compute down @ (silu(gate @ x) * (up @ x)) with the neurons in `index` only.

    x: (D,). gate, up: (F, D). down: (D, F).
    index: (K,), the numbers of the neurons that are kept, each once and in any order; it may be
    empty, and then the output is zero.
    Use only the weights of these neurons. The other weights may hold anything, including NaN.
    Returns (D,).
    """
    ### BEGIN SOLUTION
    hidden = torch.nn.functional.silu(gate[index] @ x) * (up[index] @ x)  # (K,)
    return down[:, index] @ hidden
    ### END SOLUTION


# %%
check("dejavu.gathered", gathered_mlp)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Take the rows `index` of *gate* and *up*, and the columns `index` of *down*. All three use the same order, so the
# order of the list does not matter. With an empty list, the product of a (D, 0) matrix and an empty vector is zero.
#
# </details>
#
# Let's run token 60 of block 15 with a fifth of its neurons. A check can only compare results, so a function that
# computes all neurons and uses a few of them would pass as well and save nothing. We therefore count the products of
# two numbers that your function computes.

# %%
chosen_60 = mine("dejavu.importance", which_neurons)(hidden_values, down_weight, round(0.2 * 1536))[60]
compute_few = mine("dejavu.gathered", gathered_mlp)
arguments = mlp_input[60], gate_weight, up_weight, down_weight, chosen_60.nonzero().flatten()
few_output = compute_few(*arguments)  # the first call also runs the course's function, to compare the results
with costs.count_products() as products:
    compute_few(*arguments)
masked_output = down_weight @ (hidden_values[60] * chosen_60)
print(f"{int(chosen_60.sum())} of 1536 neurons: {100 * products.n / (3 * up_weight.numel()):.0f} % of the products")
print(f"difference from the MLP with the others set to zero: {(few_output - masked_output).abs().max():.0e}")
lost_part = (mlp_output[60] - few_output).norm() / mlp_output[60].norm()
print(f"what is lost has {100 * lost_part:.0f} % of the norm of the output")

# %% [markdown]
# The first line should say 20 %. A larger number means that other neurons were computed as well. The last line says how
# much the other four fifths of the neurons would have added.
#
# The time does not shrink as fast as the products. The chosen rows are spread over memory and have to be collected
# first, which is called **gathering**, and one large matrix is read faster than many single rows. The next cell
# measures all 30 MLPs of our model (319 MB of weights in float32) for one token, with random sets that are known in
# advance.

# %%
gathering_times = costs.time_gathered_mlps(model, (1.0, 0.5, 0.3, 0.2, 0.1))
plots.time_over_density(gathering_times)

# %% [markdown]
# The dashed line is the speedup that the number of bytes would allow: for example, 10 times at a density of 10 %. The
# solid line is what your machine reaches. The distance between the lines is the price of gathering. At a density of 100
# % the solid line lies below 1: gathering all rows is slower than reading them in order. Other programs on your machine
# disturb this short measurement, so the points move from run to run.
#
# **Cost**: gathering. Above some density, which depends on the machine, nothing is gained.
#
# ## 4. Which models make it easy: ReLU
#
# The models of the paper are OPT models (Zhang and others, 2022), whose MLP has two matrices and the activation
# $\mathrm{ReLU}(z) = \max(z, 0)$: $h = \mathrm{ReLU}(W_\text{up}\, x + b)$ with a bias $b$. After a ReLU many hidden
# values are *exactly* zero, and leaving these neurons out changes nothing. After a SiLU, as in Llama and in our model,
# no value is exactly zero.
#
# To see the difference we use a small model with ReLU that comes with the course. (`course reproduce relu_model` trains
# it again. You never need to run a `course reproduce` command; its results are stored.) It predicts text byte by byte,
# so its tokens are bytes. It has 4 blocks, width 256, and 4,096 neurons per block, so its MLPs hold seven eighths of
# its weights.

# %%
relu_model, bytes_evaluation, bytes_training = load_relu_model(n_held_out=10, n_training=24)  # windows of 128 bytes
relu_recorded = activations.record_mlps(relu_model, bytes_evaluation, range(4))
for model_name, blocks in (("SmolLM2", recorded["evaluation"]), ("ReLU model", relu_recorded)):
    zeros = [f"{100 * (block.hidden == 0).float().mean():.0f} %" for block in blocks]
    print(f"{model_name}: hidden values that are exactly zero, by block: {', '.join(zeros)}")

# %% [markdown]
# How many neurons does a token need in each model? We sort the energies of a token, add them up from the largest one
# on, and take the mean over tokens.


# %%
def energy_of_largest(importance):
    """Return the fraction of the energy in the n most important neurons, n = 1 to F."""
    energy = importance.double().square().sort(dim=1, descending=True).values
    energy = energy[energy.sum(dim=1) > 0]  # without tokens for which all values are zero
    return (energy.cumsum(dim=1) / energy.sum(dim=1, keepdim=True)).mean(dim=0)


relu_importance = [activations.importance(block) for block in relu_recorded]
energy_curves = {
    "SmolLM2": dict(zip(block_names, map(energy_of_largest, importance["evaluation"]), strict=True)),
    "ReLU model": {f"block {i}": energy_of_largest(each) for i, each in enumerate(relu_importance)},
}
plots.energy(energy_curves)

# %% [markdown]
# Each line shows what fraction of the energy (vertical) the most important neurons (horizontal) hold; the dotted line
# is at 95 %. In SmolLM2 (left) a token needs between 16 and 36 % of the neurons for it, depending on the block, and
# every further neuron still contributes a little. In the ReLU model (right) between 4 and 16 % are enough, and where a
# line reaches 100 %, everything to its right is exactly zero. The ReLU model was trained with the ordinary loss,
# without a penalty that asks for zeros.
#
# The two models also differ in size, in their tokens, and in the number of neurons, which is 16 times the width in the
# ReLU model and 2.7 times in SmolLM2. So the activation need not be the reason for the whole distance between the
# panels. The exact zeros are due to the ReLU.
#
# Most models of today use SiLU or a similar function. Some have been converted back: ReLU was put in place of SiLU, and
# training continued until the model had adapted (Mirzadeh and others, 2023).
#
# ## 5. Predict the neurons
#
# We want to know the set before the MLP is computed. Deja Vu adds a small **predictor** to each MLP. It reads the input
# $x$ of the MLP and outputs one number per neuron, its **logit**: the larger, the more it expects the neuron to be
# needed. It consists of two matrices with no activation function and no bias:
#
# $$ \text{logits} = B\,(A\,x), \qquad A: r \times D, \quad B: F \times r $$
#
# $D$ is the width of the model, $F$ the number of neurons, and $r$ the **rank** of the predictor. It has $r\,(D + F)$
# weights, which are read for every token, so $r$ has to be small. For example, with $r = 64$ a predictor for SmolLM2
# has 135,168 weights per block, 5.1 % of the 2,654,208 of the MLP.

# %%
drawings.predictor()

# %% [markdown]
# The drawing is to scale for SmolLM2 and $r = 64$. The predictor (red, left) reads the same $x$ as the MLP. The $k$
# largest logits choose the rows of the three large matrices that are read (dark).
#
# Why not search for the rows that are most similar to $x$ with an index for nearest-neighbor search, as a search engine
# does? The paper tried two of them on OPT-175B: HNSW took more than 10 ms and FAISS more than 4 ms, while the whole MLP
# takes 0.2 ms. A product with two small matrices reads far fewer weights than the MLP, and reads them in order.
#
# The predictor is trained like a classifier. We call a neuron **active** for a token if it should be kept: after a
# ReLU, if its value is not zero, and in other models, if it is among the $k$ most important. Each neuron is a yes-or-no
# question of its own, so the loss is a **binary cross-entropy**: with $\sigma(z) = 1 / (1 + e^{-z})$, an active neuron
# with logit $z$ costs $-\log \sigma(z)$, and an inactive one costs $-\log (1 - \sigma(z))$.
#
# There is one problem. If only 5 % of the neurons are active, a predictor that always answers "no" is right in 95 % of
# the cases. The authors' code therefore gives the inactive neurons a smaller weight $w$: the fraction of the active
# ones, plus 0.005. For example, with 5 % active neurons $w$ is 0.055, and both kinds have about the same total weight.

# %% [markdown]
# ### A predictor's loss
# **Exercise** · difficulty 4 of 5 · 15 minutes · 4 points
#
# Write this loss and its derivative with respect to the logits. On paper the derivative is one line; you may also use
# autograd. Logits can be large: $\log \sigma(-200)$ is $-200$, but in float32 $\sigma(-200)$ is 0, and its logarithm is
# $-\infty$.


# %% exercise="dejavu.loss"
def predictor_loss(logits, parts, k):
    """Compute the weighted loss of a predictor and its gradient.

    logits: (T, F), one per token and neuron. They may be large.
    parts: (T, F), the importance of each neuron for each token, zero or above. A neuron is active
    for a token if it is among the k most important of the token and its importance is not zero
    (after a ReLU we pass k = F, and all that are not zero are active).
    The importances of a token that are not zero are all different.
    k: the largest number of active neurons per token, 1 to F.
    The loss is the mean over all T * F of the binary cross-entropy of the sigmoid of each logit. In
    it an active neuron has weight 1, and every other neuron has weight w: the fraction of active
    neurons among all T * F, plus 0.005.
    Returns the loss, and its derivative with respect to the logits, (T, F).
    """
    ### BEGIN SOLUTION
    order = parts.argsort(dim=1, descending=True)
    active = torch.zeros_like(parts).scatter(1, order[:, :k], 1.0) * (parts > 0)
    counts = torch.where(active > 0, 1.0, active.mean() + 0.005) / logits.numel()
    losses = torch.nn.functional.softplus(logits) - active * logits  # −log σ(z), or −log(1 − σ(z))
    return (counts * losses).sum(), counts * (logits.sigmoid() - active)
    ### END SOLUTION


# %%
check("dejavu.loss", predictor_loss)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# With $a = 1$ for active neurons and 0 for the others, and with $\mathrm{softplus}(z) = \log(1 + e^z)$, we have $-\log
# \sigma(z) = \mathrm{softplus}(z) - z$ and $-\log(1 - \sigma(z)) = \mathrm{softplus}(z)$. Both cases together are
# $\mathrm{softplus}(z) - a z$, which PyTorch computes without overflow. The derivative of softplus is $\sigma$, so the
# derivative of the loss is
#
# $$ \frac{\partial L}{\partial z} = \frac{c}{T F} \, (\sigma(z) - a), \qquad c = 1 \text{ if active, else } w. $$
#
# For example, an active neuron with logit 0 has $\sigma(0) - 1 = -0.5$: a step against the gradient raises its logit.
#
# </details>
#
# Now train a predictor of rank 32 for the last MLP of the ReLU model, on the 24 training windows. `train_predictor` is
# an ordinary training loop: take 128 random tokens (bytes), compute the logits, use your loss and gradient, update $A$
# and $B$.

# %%
relu_training = activations.record_mlps(relu_model, bytes_training, range(4))


def train_predictor(inputs, importance, loss_and_gradient, rank=32, n_steps=80, batch_size=128):
    """Train A (rank, D) and B (F, rank) to predict which importances are not zero."""
    generator = torch.Generator().manual_seed(0)
    n_inputs, n_neurons = inputs.shape[1], importance.shape[1]
    matrix_a = (torch.randn(rank, n_inputs, generator=generator) / n_inputs**0.5).requires_grad_()
    matrix_b = (torch.randn(n_neurons, rank, generator=generator) / rank**0.5).requires_grad_()
    optimizer = torch.optim.AdamW([matrix_a, matrix_b], lr=5e-3, weight_decay=0.01)
    training_losses = []
    for _ in range(n_steps):
        rows = torch.randint(len(inputs), (batch_size,), generator=generator)
        logits = inputs[rows] @ matrix_a.T @ matrix_b.T
        loss, gradient = loss_and_gradient(logits.detach(), importance[rows], n_neurons)
        optimizer.zero_grad()
        logits.backward(gradient)  # continues the chain rule from the derivative with respect to the logits
        optimizer.step()
        training_losses.append(float(loss))
    return (matrix_a.detach(), matrix_b.detach()), training_losses


last_inputs, last_importance = relu_training[-1].x, activations.importance(relu_training[-1])
last_predictor, training_losses = train_predictor(last_inputs, last_importance, mine("dejavu.loss", predictor_loss))
print(f"{len(last_inputs):,} bytes of text; loss {training_losses[0]:.3f}, at the end {training_losses[-1]:.3f}")

# %% [markdown]
# Is this good? Compare it with a predictor that ignores its input and gives every neuron the same probability $p$. With
# a fraction $f$ of active neurons, its loss $-f \log p - (1 - f)\, w \log(1 - p)$ is smallest at $p = f / (f + (1 - f)
# w)$.

# %%
fraction_active = (last_importance > 0).double().mean()
weight_of_others = (1 - fraction_active) * (fraction_active + 0.005)
best_p = fraction_active / (fraction_active + weight_of_others)
constant_loss = -fraction_active * best_p.log() - weight_of_others * (1 - best_p).log()
n_predictor, n_mlp = sum(matrix.numel() for matrix in last_predictor), 2 * 256 * 4096
print(f"{100 * fraction_active:.1f} % active; loss of the best constant prediction: {constant_loss:.3f}")
print(f"weights of the predictor: {n_predictor:,}, {100 * n_predictor / n_mlp:.1f} % of those of the MLP")

# %% [markdown]
# The predictor is well below the constant, after a few seconds of training. This does not yet show that it uses the
# context. It could have learned only which neurons are active often, and we measured it on its training text. So we now
# judge it on other text and compare it with a static set.
#
# ### How good is a prediction
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# We judge a predicted set by two numbers. **Recall** is the fraction of the active neurons that were predicted. The
# second one is the fraction of the energy (section 1: squared importance) that the predicted neurons hold. Take both as
# fractions of sums over all tokens and not as means of fractions: some tokens have no active neuron, and a token with
# one active neuron should not count as much as one with a hundred.


# %% exercise="dejavu.recall"
def recall_and_energy(hidden, down, active, keep):
    """Measure how much of what matters a predicted set holds: (recall, energy).

    hidden: (T, F), the hidden values of F neurons for each of T tokens. down: (D, F).
    active: (T, F), True where a neuron counts as active; at least one entry is True.
    keep: (T, F), True where a neuron was predicted.
    recall: the fraction of the active neurons that were predicted.
    energy: the squared importance of the predicted neurons, as a fraction of that of all neurons,
    active or not.
    Both are fractions of sums over all tokens; there are tokens without an active neuron.
    Returns two numbers between 0 and 1.
    """
    ### BEGIN SOLUTION
    length = hidden * down.norm(dim=0)  # of h_i w_i; its sign does not matter
    energy = length.square()
    return (active & keep).sum() / active.sum(), energy[keep].sum() / energy.sum()
    ### END SOLUTION


# %%
check("dejavu.recall", recall_and_energy)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Recall needs only the two masks: the number of neurons in both, divided by the number of active ones. The energy of a
# neuron for a token is $(h_i \lVert w_i \rVert)^2$. Here is why we need both. Suppose that a token has four active
# neurons with importances 4, 1.5, 1.2 and 1. A set that misses the first one and a set that misses the last one both
# have a recall of 75 %. But the first set misses 16 of 20.7 units of energy, and the second one misses 1.
#
# </details>
#
# Now we judge the predictor on text that it has not been trained on, next to a static set and random sets of the same
# size.

# %%
matrix_a, matrix_b = last_predictor
scores_by_way = {
    "predictor": relu_recorded[-1].x @ matrix_a.T @ matrix_b.T,
    "static": last_importance.mean(dim=0).expand_as(relu_recorded[-1].hidden),
    "random": torch.rand(relu_recorded[-1].hidden.shape, generator=torch.Generator().manual_seed(0)),
}
quality = activations.score_predictions(
    scores_by_way, relu_recorded[-1], (0.02, 0.05, 0.1, 0.2, 0.4), mine("dejavu.recall", recall_and_energy)
)
plots.recall_and_energy(quality)

# %% [markdown]
# Compare the three lines in each panel (recall on the left, energy on the right). The predictor (dark, circles) finds
# more active neurons than the static set (red, squares) of the same size, and the energy that it keeps is higher than
# its recall: the active neurons that it misses tend to be unimportant ones. A random set (green, triangles) of 10 % of
# the neurons finds 10 % of the active ones.
#
# What does this mean for the loss of the model? We train a predictor for each of the four blocks and evaluate the model
# with the chosen neurons. From here on we use the library. A **selector** is an object that gives each neuron a score,
# and `contextual(model, selector, density)` keeps the neurons with the highest scores and zeroes the others, as the
# hook in section 2 did, for every architecture.

# %%
loss_and_gradient = mine("dejavu.loss", predictor_loss)
predictors = [train_predictor(each.x, activations.importance(each), loss_and_gradient)[0] for each in relu_training]
relu_ways = {
    "predicted": DejaVu(predictors=tuple(lambda x, a=a, b=b: x @ a.T @ b.T for a, b in predictors)),
    "static": Static().fit(relu_model, bytes_training),
}
relu_dense, relu_losses = window_losses(relu_model, bytes_evaluation, progress=False), {}
for way, selector in relu_ways.items():
    relu_losses[way] = {}
    for density in (0.2, 0.1, 0.05):
        with contextual(relu_model, selector, density):
            relu_losses[way][density] = window_losses(relu_model, bytes_evaluation, progress=False)
plots.perplexity_over_density(relu_losses, relu_dense, at=0.2)

# %% [markdown]
# At a density of 20 % the predicted sets (dark) are close to the dense model (dotted line), and static sets of the same
# size (red) are clearly worse. The fewer neurons we keep, the larger the difference. The predictors were trained for a
# few seconds each; those of section 8 were trained for longer.
#
# Here is what the paper reports for OPT-175B with predictors. The first row is the dense model. The second row leaves
# out 85 % of the neurons, and the third row leaves out half of the attention heads:

# %%
tables.published_accuracy()

# %% [markdown]
# Compare each column with the first row. The perplexities on WikiText and C4 change by less than 1 %, and the
# accuracies by at most 1.1 points.
#
# **Cost** of prediction: $r\,(D + F)$ weights per block and token, and one `topk`.
#
# ## 6. Predict, choose, gather on SmolLM2
#
# SmolLM2 has no ReLU, so there is no natural border between active and inactive, and 30 predictors take minutes to
# train (`course reproduce dejavu_predictors`; section 8 shows the result). But there is another predictor, which is not
# from the paper and needs no training: a **coarse copy** of *gate* and *up* with 2 bits per weight. It computes rough
# hidden values, and your `which_neurons` picks the neurons that look important.
#
# The next cell is the whole method: **predict, choose, gather**. A forward hook on each MLP replaces its output by the
# sum over the predicted neurons only, token by token, computed by your `gathered_mlp`.
#
# - `round_to_2_bits` divides each row into groups of 64 weights. In each group a weight becomes one of four evenly
#   spaced values, one of which is 0.
# - `predict_choose_gather` runs after each MLP. PyTorch replaces the output of a module by the return value of its
#   forward hook.


# %%
def round_to_2_bits(weight, group=64):
    """Round each group of a row to four values: scale * (code - zero) with codes 0 to 3."""
    groups = weight.unflatten(1, (-1, group))
    low, high = groups.amin(dim=2, keepdim=True).clamp(max=0), groups.amax(dim=2, keepdim=True).clamp(min=0)
    scale = (high - low) / 3
    zero = (-low / scale).round()
    scale = scale.half().float()  # scales are stored in 16 bits
    codes = ((groups / scale).round() + zero).clamp(0, 3)
    return (scale * (codes - zero)).flatten(1)


@torch.no_grad()
def loss_with_predicted_neurons(model, token_ids, density, choose, compute):
    """Run one window with the predicted neurons of every MLP; return the loss in nats per token."""
    mlps = [block.mlp for block in model.model.layers]
    copies = {mlp: [round_to_2_bits(w.weight) for w in (mlp.gate_proj, mlp.up_proj)] for mlp in mlps}

    def predict_choose_gather(mlp, arguments, dense_output):
        x = arguments[0][0]  # (tokens, width)
        rough_gate, rough_up = copies[mlp]
        rough_hidden = torch.nn.functional.silu(x @ rough_gate.T) * (x @ rough_up.T)
        keep = choose(rough_hidden, mlp.down_proj.weight, round(density * len(rough_up)))
        weights = mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight
        rows = [compute(x_t, *weights, keep_t.nonzero().flatten()) for x_t, keep_t in zip(x, keep, strict=True)]
        return torch.stack(rows)[None]

    handles = [mlp.register_forward_hook(predict_choose_gather) for mlp in mlps]
    logits = model(token_ids, use_cache=False).logits
    for handle in handles:
        handle.remove()
    return torch.nn.functional.cross_entropy(logits[0, :-1], token_ids[0, 1:]).item()


one_window = evaluation[:1]
loss_predicted = loss_with_predicted_neurons(
    model, one_window, 0.5, mine("dejavu.importance", which_neurons), mine("dejavu.gathered", gathered_mlp)
)
print(f"loss with 50 % of the neurons: {loss_predicted:.3f} nats per token, dense {dense_losses[0]:.3f}")

# %% [markdown]
# The model still works, although half of the neurons are missing and we chose them without looking at their hidden
# values. But it is not free: on this window the loss rises by 0.42 nats. Does the library compute the same? `LowBit` is
# its coarse copy:

# %%
two_bit_copy = LowBit(bits=2).fit(model, calibration)
with contextual(model, two_bit_copy, 0.5):
    library_loss = window_losses(model, one_window, progress=False)[0]
print(f"difference between your loop and the library: {abs(library_loss - loss_predicted):.0e} nats per token")
print(f"the copy takes {100 * two_bit_copy.n_bytes / gathering_times.n_bytes:.0f} % of the bytes of the MLPs")

# %% [markdown]
# The difference on this one window should be a few hundredths at most. It is not 0, because your loop adds up the same
# numbers in another order: where two neurons are almost equally important, rounding decides which one is chosen, and
# such small differences grow from block to block.
#
# Three remarks. First, this cell shows the result of the method and not its speed: a forward hook runs *after* the MLP,
# so PyTorch still computes the dense output. Section 7 measures the speed. Second, our model came to us with weights
# rounded to 4 bits. A copy with 4 bits could nearly find these values again. With 2 bits per weight this is not
# possible. Third, here and below the bytes of the MLPs, and those of a trained predictor, are counted in float32, in
# which our models run. For a model in 16 bits, the same copy would be twice this percentage.
#
# How close is it to the oracle, on all six windows?

# %%
compared = {name: losses_by_choice[name] for name in ("contextual", "static")}
compared["2-bit copy"] = {}
for density in (0.5, 0.3):
    with contextual(model, two_bit_copy, density):
        compared["2-bit copy"][density] = window_losses(model, evaluation, progress=False)
plots.perplexity_over_density(compared, dense_losses, at=0.5)

# %% [markdown]
# At 50 % the 2-bit copy (green, triangles) is far below the static set (red, squares), but it does not reach the oracle
# (dark, circles). In the larger measurement of section 8, the copy costs 0.25 nats per token at 50 %, the oracle 0.04,
# and the static set 2.17. At 30 % the distance to the oracle is larger: the copy costs 0.65 nats, and the oracle 0.22.
#
# There are also methods without a predictor. *CATS* (Lee and others, 2024) computes the gate exactly and skips the
# neurons whose gate is small. *TEAL* (Liu and others, 2024) sets small inputs of every matrix to zero; when its code
# processes a whole window, only the second half of it is sparse. Neither needs extra weights, but CATS reads a third of
# the MLP, the whole gate, before it can skip anything.
#
# ## 7. What it costs, and when it pays off
#
# Let's count what a decoding step reads. Of the MLPs only the chosen neurons are read, a fraction equal to the density,
# and the predictor comes on top. Attention, the KV cache and the **LM head** (the matrix that turns the last vector
# into logits for all tokens of the vocabulary) are read as before. And a prompt gains nothing: its tokens are processed
# together, and together they need nearly all neurons (we measure this below).

# %% [markdown]
# ### When it pays
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Compute three results from the amount of numbers that is read: how much faster a token becomes, how much faster an
# answer with its prompt becomes, and the **break-even density**, at which nothing is gained. A gathered number takes
# `gather` times as long as a number that is read in order.


# %% exercise="dejavu.break_even"
def when_it_pays(width, neurons, blocks, rank, others, density, gather, prompt, n_tokens):
    """Compute (speedup of a token, speedup of the whole answer, break-even density).

    The time of a decoded token is the time to read its numbers.
    width, neurons, blocks: the MLP of each block has gate, up and down with width * neurons numbers
    each, and a predictor with two matrices, width -> rank -> neurons, read in full.
    others: numbers that a token reads outside of the MLPs (attention, cache, LM head), as before.
    density: the fraction of the neurons that is kept.
    gather: a number that is gathered takes this many times as long as one that is read in order.
    Only the weights of the kept neurons are gathered.
    prompt: the time to process the prompt, in units of one decoded dense token, for example 3.0 if
    it takes as long as three dense tokens. It stays the same.
    n_tokens: tokens of the answer.
    Returns the speedup of a decoded token; that of prompt and answer together; and the density at
    which a decoded token takes as long as a dense one, 0 if it is slower at every density.
    """
    ### BEGIN SOLUTION
    mlp = 3 * width * neurons * blocks
    predictor = rank * (width + neurons) * blocks
    dense, sparse = mlp + others, gather * density * mlp + predictor + others
    whole = (prompt + n_tokens) * dense / (prompt * dense + n_tokens * sparse)
    return dense / sparse, whole, max(0.0, (mlp - predictor) / (gather * mlp))
    ### END SOLUTION


# %%
check("dejavu.break_even", when_it_pays)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Write $M$ for the numbers of all MLPs, $P$ for those of all predictors, $O$ for the others, $d$ for the density and
# $g$ for `gather`. A dense token takes $M + O$, a sparse one $g\,d\,M + P + O$, and the speedup of a token is their
# ratio. Prompt and answer together take $(\text{prompt} + n)(M + O)$ dense, and $\text{prompt} \cdot (M + O) +
# n\,(g\,d\,M + P + O)$ sparse. At break-even both tokens take the same time: $g\,d\,M + P = M$, so $d = (M - P) / (g
# M)$. The others cancel.
#
# For example, with $g = 2$ and a predictor of 5 % of the MLP, the break-even density is $0.95 / 2 = 0.475$. A model
# that needs half of its neurons gains nothing then.
#
# </details>
#
# What does a token of SmolLM2 read? The figure counts the weights at the start of a text, when the KV cache is empty.

# %%
drawings.token_bytes()

# %% [markdown]
# The number above each bar is the speedup if time is proportional to bytes. The rightmost bar shows the limit: even
# with no neurons at all, attention, LM head and predictor are still read, and a token is at most 2.28 times as fast. In
# OPT-175B the MLPs are a larger part of the whole, so there is more to gain.
#
# Now your function, for SmolLM2 with 512 tokens in its cache and three settings: a set that is known without cost, a
# predictor of rank 64, and the same predictor with gathering that is half as fast as reading in order.

# %%
pays_off = mine("dejavu.break_even", when_it_pays)
sizes = costs.weights_per_token(model, n_cached=512)
speedups = {
    name: {density: pays_off(*sizes[:3], rank, sizes.others, density, gather, 0.0, 1) for density in costs.DENSITIES}
    # 0.0, 1: no prompt, one token
    for name, rank, gather in (("known set", 0, 1.0), ("rank 64", 64, 1.0), ("rank 64, slow gathering", 64, 2.0))
}
plots.speedup_over_density(speedups)

# %% [markdown]
# Look where each line crosses 1 (dotted): this is the break-even density, and the title lists it. Slow gathering
# (green) moves it from 95 % to 47 %. On the left each line approaches a limit of its own: 2.31 without a predictor and
# 2.17 with one. The latter is lower than the 2.28 of the figure before, because now 512 cached tokens are read in
# addition.
#
# ### Batch size
#
# If several sequences are decoded together, each of them chooses its own neurons, and a neuron has to be read if *any*
# sequence needs it. For example, two sequences that choose 20 % each read between 20 and 40 %. We take the oracle's
# choice of 20 % and count the union over 1 to 16 random tokens from all evaluation windows, as the sequences of a batch
# have different texts. In the ReLU model some of the chosen 20 % are zero and need not be read, so it starts lower.

# %%
all_windows = activations.record_mlps(model, evaluation, shown_blocks)
fifth = [activations.keep_fraction(activations.importance(block), 0.2) for block in all_windows]
relu_fifth = [
    activations.keep_fraction(activations.importance(block), 0.2) & (block.hidden > 0) for block in relu_recorded
]
unions = costs.measure_unions({"SmolLM2": torch.stack(fifth), "ReLU model": torch.stack(relu_fifth)}, (1, 2, 4, 8, 16))
plots.union(unions, (1, 2, 4, 8, 16))

# %% [markdown]
# The horizontal axis is the batch size, and the vertical axis is the fraction of the neurons that at least one token
# needs. The dotted lines show independent random choices. Real tokens agree more than that, in the ReLU model much
# more. But at batch size 16 SmolLM2 already reads 93 % of its neurons, so little is saved. In other words, contextual
# sparsity helps most at batch size 1.
#
# ### End to end
#
# Finally we measure the time of decoding. The ReLU model processes three windows byte by byte: with all neurons, with
# 20 % that an oracle has found beforehand without cost, and with 20 % that the predictors of section 5 choose, whose
# time counts.

# %%
laps = costs.race_decoders(relu_model, bytes_evaluation[:3], predictors, density=0.2)
tables.decoding(laps, n_tokens=bytes_evaluation.shape[1] - 1)

# %% [markdown]
# Read the column *speedup*. The third row is what you would get in practice: the predictor costs part of the gain, and
# the loss rises a little.
#
# - **It pays off** at batch size 1, when weights are most of what is read, and when most neurons are zero anyway.
# - **It does not pay off** on a prompt, at a large batch size, or above the break-even density.
# - **There are simpler ways to save bytes.** For comparison: all neurons in 8 bits are also half of the bytes of 16
#   bits, and nothing has to be predicted.
#
# ## 8. Results: what holds for larger models
#
# The cells above use a few hundred tokens. For the following results, `course reproduce dejavu` and `course reproduce
# dejavu_predictors` used 5,120 tokens for SmolLM2 and 20,480 bytes for the ReLU model, and longer training for the
# predictors. Each claim of the paper is on [the page of claims](../docs/claims.md) under "All claims by lesson", with
# our number, its error and a verdict (*holds*, *holds partly*, *mixed*, *does not hold*, *not at this scale* or
# *undecided*). Here are the two most important results.
#
# **1. Small sets exist, but how small depends on the model.** The figure compares five ways to choose:
#
# - *oracle*: your `which_neurons`;
# - *oracle, two passes*: the oracle's choice from a pass of the dense model, as in the paper;
# - *token alone*: the neurons that are large when the MLP reads the embedding of the token in place of its input,
#   without the context;
# - *map of the embedding*: a linear map from the embedding to the importances, fitted on calibration text, also without
#   the context;
# - *static*: the set of section 2, which is the same for every token.

# %%
plots.levels()

# %% [markdown]
# The horizontal axis is the density, the vertical axis the increase of the loss. Points above 3 nats are drawn at the
# upper edge, with their value next to them. Look at 50 % in the left panel. In SmolLM2 half of the neurons are enough
# for the oracle (+0.04 nats per token). Every choice without the context is far worse: the map of the embedding costs
# 1.0 nats, the static set 2.2, and the token alone 5.1. In the ReLU model (right) 20 % are enough for the oracle
# (+0.006). The paper claims that 5 % are enough for OPT-175B:

# %%
print(claims.FEW_NEURONS.judge())

# %% [markdown]
# "Not at this scale" means that our models clearly fail, but the claim is about a model that is a thousand times
# larger.
#
# **2. With a ReLU the sets can be predicted.** The figure shows the loss increase with several selectors (horizontal),
# at a density of 50 % for SmolLM2 and 20 % for the ReLU model. Next to each name are its bytes in % of those of the
# MLPs (as before, MLPs and trained predictors are counted in float32). In addition to the static set and the trained
# predictor of Deja Vu there are copies of *gate* and *up* with few bits or of low rank. *Nearest rows* is a
# nearest-neighbor search: the rows of the gate are divided into 16 clusters, and $x$ is compared with the rows of the
# nearest eight. The bytes next to its name are those of the clusters only; it also reads the rows that it compares.

# %%
plots.predicted()

# %% [markdown]
# In the ReLU model (right) the trained predictor costs 0.017 nats at a density of 20 %, and the oracle 0.006. In
# SmolLM2 (left), at a density of 50 %, the trained predictor is worse than the static set (+3.7 nats against +2.2). The
# 2-bit copy with about the same bytes is far better (+0.25).
#
# How can a trained predictor be worse than a static set? On evaluation text it finds more of the active neurons (recall
# 59 % against 57 %), but they hold less of the energy (66 % against 75 %). Its loss counts each of the $k$ active
# neurons equally, while the static set goes by importance. Two more reasons are possible, and we have not measured
# them: the predictor has no bias that could say "always needed", and our predictors were trained on 12,288 tokens,
# those of the paper's code on up to 400,000.
#
# Does the prediction cost almost nothing, as the paper reports?

# %%
print(claims.PREDICTOR_CHEAP.judge())

# %% [markdown]
# So in the ReLU model it costs almost nothing at 20 % of the neurons, but not at 10 % and 5 %. (*Almost nothing* means
# less than 0.05 nats, that is, 5 % of the perplexity, the course's mark for no loss.) With 15 % of the neurons, as in
# the paper, trained predictors cost 0.03 nats (`course reproduce relu_predictors`).
#
# How much of this becomes speed? With predictors the ReLU model decodes at most 1.66 times as fast as dense, and then
# the loss rises by 0.04 nats per byte. For OPT-175B on eight GPUs the paper reports 1.8 to 2.5 times. Section 11 has
# the details, and measurements on a GPU.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 9. Optional: attention heads
#
# Attention is a sum too. In every block, nine heads each output 64 numbers per token. They lie next to each other in a
# vector of 576 numbers, and the output projection maps it to the output of the attention, another 576 numbers. So each
# head contributes a vector to the output, and some heads contribute more than others.

# %% [markdown]
# ### Which heads matter
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# How long is the contribution of each head to the output, for each token? Note that the norm of what a head outputs
# *before* the projection is not enough: a large output can meet small weights.


# %% exercise="dejavu.heads"
def head_norms(heads, weight, n_heads):
    """Compute the length of the contribution of each head to the output, for every token.

    heads: (T, H * d), the outputs of H heads with d entries each, next to each other.
    weight: (D, H * d), of the output projection; the attention outputs heads @ weight.T.
    n_heads: H. Returns (T, H).
    """
    ### BEGIN SOLUTION
    size = heads.shape[1] // n_heads
    outputs = heads.unflatten(1, (n_heads, size))  # (T, H, d)
    weight_by_head = weight.unflatten(1, (n_heads, size))  # (D, H, d)
    return torch.einsum("thi,dhi->thd", outputs, weight_by_head).norm(dim=2)
    ### END SOLUTION


# %%
check("dejavu.heads", head_norms)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Divide both the vector and the columns of the matrix into $H$ pieces of $d$ entries: `weight.view(D, H, d)`. Head $h$
# contributes $W_h a_h$, where $W_h$ are the $d$ columns that belong to the head. `einsum` computes the contributions of
# all heads and tokens, and the norm runs over the $D$ entries of each.
#
# </details>
#
# Now each token keeps the seven or five heads with the longest contributions. A pre-hook on the output projection sets
# the others to zero. For comparison we choose the heads once for each block, by their mean on the calibration text.


# %%
@torch.no_grad()
def losses_with_heads(token_ids, n_kept, score):
    """Keep the heads with the highest scores in every block; return the loss of each window."""

    def zero_other_heads(o_proj, arguments):
        (outputs,) = arguments  # (windows, tokens, 9 * 64)
        top = score(outputs.flatten(0, 1), o_proj.weight, 9).topk(n_kept, dim=1).indices
        keep = torch.zeros(len(top), 9).scatter(1, top, 1.0).repeat_interleave(64, dim=1)
        return (outputs * keep.view_as(outputs),)

    handles = [block.self_attn.o_proj.register_forward_pre_hook(zero_other_heads) for block in model.model.layers]
    losses = window_losses(model, token_ids, progress=False)
    for handle in handles:
        handle.remove()
    return losses


norms_of_heads = mine("dejavu.heads", head_norms)
mean_norms = {}  # by matrix


def record_norms(o_proj, arguments):
    norms = norms_of_heads(arguments[0].flatten(0, 1), o_proj.weight, 9)
    mean_norms[o_proj.weight] = norms.mean(dim=0, keepdim=True)


def same_for_all_tokens(outputs, weight, n_heads):
    return mean_norms[weight].expand(len(outputs), n_heads)


handles = [block.self_attn.o_proj.register_forward_pre_hook(record_norms) for block in model.model.layers]
with torch.no_grad():
    model.model(calibration[:3], use_cache=False)
for handle in handles:
    handle.remove()
head_losses = {
    name: {n / 9: losses_with_heads(evaluation, n, score) for n in (7, 5)}
    for name, score in (("contextual", norms_of_heads), ("static", same_for_all_tokens))
}
plots.perplexity_over_density(head_losses, dense_losses, at=7 / 9, what="heads")

# %% [markdown]
# In the figure, heads chosen for each token (dark) have a lower perplexity than static ones (red). Does this hold on
# more text?

# %%
print(claims.HEADS_DIFFER.judge())

# %% [markdown]
# It does. The paper's oracle keeps a fifth of the heads (with predictors, half) of a model that has 96 of them per
# block. Our model has only nine per block, and keeping only two of nine costs 3.4 nats (`course reproduce dejavu`).
#
# Keeping seven of nine heads does not save any of the KV cache either. In SmolLM2 three query heads share one key-value
# head, and only if all three are skipped can its keys and values be skipped. (This is called **grouped-query
# attention**.)
#
# ### A head that was skipped before
#
# Neurons have no memory, but heads do. If a head was skipped for token 2, it has no key and no value for token 2. When
# token 5 chooses this head, it wants to attend to token 2, and there is nothing.

# %%
drawings.missing_key()

# %% [markdown]
# The drawing shows three heads and six tokens. Dark cells hold a key and a value. Where a head was skipped, the input
# $x$ of the attention is stored instead (white). Token 5 chooses head 2, which was skipped at tokens 0 and 2. Their
# keys and values are computed now, from the stored inputs.

# %% [markdown]
# ### A key that is missing
# **Exercise** · difficulty 4 of 5 · 12 minutes · 3 points
#
# Compute the missing keys and values. They have to be those that would be in the cache if the head had been chosen
# then. So from which input is each key computed, to which position is it rotated, and what about the value? The newest
# token has no key and value yet. They are computed in the same way, so its row is one of the missing ones. Rows and
# positions differ where tokens have been removed from the cache.


# %% exercise="dejavu.missing"
def complete(keys, values, position, missing, stored, key_weight, value_weight, cos, sin):
    """Complete the keys and values of a head that was skipped at some tokens and is chosen now.

    keys, values: (N, d), one row for each of N tokens; rows of missing tokens may hold anything.
    position: (N,), the position of each token in the text, rising, with gaps where tokens have been
    removed from the cache; the last one is the newest.
    missing: (M,), the rows of the tokens for which the head was not chosen, rising; the last is the
    newest token's.
    stored: (M, D), the inputs of the attention (after its norm) at these tokens, in the same order.
    key_weight, value_weight: (d, D), the head's own.
    cos, sin: (P, d), one row for each position of a text: a key k at position p is rotated to
    k * cos[p] + rotated_half(k) * sin[p] with rotated_half(k) = (-second half, first half) of k.
    The keys that are present have been rotated already.
    Returns keys and values, both (N, d), as if no token had been missing.
    """
    ### BEGIN SOLUTION
    unrotated = stored @ key_weight.T  # (M, d)
    first, second = unrotated.chunk(2, dim=1)
    angle = position[missing]  # a row of cos and sin
    keys, values = keys.clone(), values.clone()
    keys[missing] = unrotated * cos[angle] + torch.cat([-second, first], dim=1) * sin[angle]
    values[missing] = stored @ value_weight.T
    return keys, values
    ### END SOLUTION


# %%
check("dejavu.missing", complete)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# A key is `key_weight` times the input that the attention had *at that token*, rotated to the position *of that token*
# (RoPE rotates keys by their own position). `position[missing]` gives these positions; the rows of the cache and the
# positions in the text need not be the same. Values are not rotated. Work on copies, because the cache belongs to the
# caller.
#
# </details>
#
# We take a head of the real model with every third token missing, complete it with your function, and compare it with
# the cache of the same head without gaps.

# %%
full_cache, incomplete_cache = activations.head_with_missing_keys(model, block=15, head=0, ids=evaluation[0], every=3)
completed = mine("dejavu.missing", complete)(*incomplete_cache)
for what, ours, theirs in zip(("keys", "values"), completed, full_cache, strict=True):
    print(f"{what} differ from the full cache by {(ours - theirs).abs().max():.0e} at most")

# %% [markdown]
# Does it save memory? An input $x$ of SmolLM2 has 576 numbers. Key and value of one head have 128, and there are three
# key-value heads, so all keys and values of a token are 384 numbers. Storing one $x$ takes more room than everything
# that it could replace. In a model with many heads and no groups, such as OPT-175B, one $x$ is as large as the keys and
# values of half of the heads.
#
# ## 10. Optional: looking one block ahead
#
# A predictor that reads the input of the MLP delays it: the MLP has to wait. The paper lets the predictor read an
# *earlier* input, so that it can run while the previous block is still computing. This is easy if the earlier input is
# similar. Is it? The **residual stream** is the vector to which every attention and every MLP adds its output. If a
# block adds little, the stream changes slowly from block to block.

# %%
states = activations.residual_stream(model, evaluation[:2])  # (61, tokens, 576): embedding, then after each part
before, between, after = states[:-1:2], states[1::2], states[2::2]  # of each block: before, between its parts, after
cosines = torch.nn.functional.cosine_similarity(before, after, dim=2).median(dim=1).values
added_by = {
    "attention": ((between - before).norm(dim=2) / before.norm(dim=2)).median(dim=1).values,
    "MLP": ((after - between).norm(dim=2) / between.norm(dim=2)).median(dim=1).values,
}
plots.residual_change(cosines, added_by)

# %% [markdown]
# Left: the cosine between the stream before and after each block, median over tokens. Right: the length of what
# attention and MLP add, relative to the stream. The paper excludes block 0, which turns the embedding into something
# new. From block 2 on the cosine is near 1, except in blocks 24 and 29 (we do not know why). So the input of one block
# is probably a good guess at the input of the next one. But a cosine can also be near 1 because of a few large entries
# that hardly change, and a norm comes before each MLP. So we test it with predictors below.
#
# Sources differ in where the predictor of the MLP in block $k + 1$ reads. Section 4.3 of the paper takes the input of
# the attention in block $k$, the authors' code that of the MLP in block $k$, and in Figure 2 it is the input of the
# attention in its own block. We do as the code does, at any distance: the predictor of an MLP reads the input of the
# MLP $n$ blocks earlier.

# %% [markdown]
# ### One block ahead
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Collect the training pairs of such predictors. You have the states of the residual stream in one tensor. Which of them
# are the inputs of MLPs, and with the labels of which block does each of them go?


# %% exercise="dejavu.lookahead"
def training_pairs(stream, active, ahead):
    """Pair the inputs of the MLPs with the active neurons `ahead` blocks later.

    stream: (2L + 1, T, D), the states of the residual stream in order, for L blocks: the embedding,
    then the state after the attention and after the MLP of each block. Attention and MLP read the
    state just before them.
    active: (L, T, F), the neurons of each block's MLP that a token needs. ahead: n, 0 to L - 1.
    The predictor of block l reads the input of the MLP of block l - n. The first n blocks have no
    predictor.
    Returns inputs (L - n, T, D) and labels (L - n, T, F), one entry per predictor, in the order of
    the blocks.
    """
    ### BEGIN SOLUTION
    read_by_mlp = stream[1::2]  # (L, T, D)
    n_pairs = len(active) - ahead
    return read_by_mlp[:n_pairs], active[ahead:]
    ### END SOLUTION


# %%
check("dejavu.lookahead", training_pairs)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The states with odd numbers come after an attention, so they are read by an MLP: state 1 by that of block 0, state 3
# by that of block 1. For example, with $L = 4$ and $n = 1$ there are three pairs: (state 1, block 1), (state 3, block
# 2) and (state 5, block 3). In code these are `stream[1::2][: L - n]` and `active[n:]`.
#
# </details>
#
# With your pairs we train predictors for the last block of the ReLU model, from its own input and from one, two and
# three blocks earlier. (We use every fourth neuron to save time, and normalize the states as a LayerNorm without
# weights does.)

# %%
training_states, evaluation_states = (
    torch.nn.functional.layer_norm(activations.residual_stream(relu_model, windows), (256,))
    for windows in (bytes_training, bytes_evaluation)
)
training_active, evaluation_active = (
    torch.stack([block.hidden[:, ::4] > 0 for block in blocks]) for blocks in (relu_training, relu_recorded)
)
pairs, loss_and_gradient = mine("dejavu.lookahead", training_pairs), mine("dejavu.loss", predictor_loss)
recall_by_distance = {}
for n_ahead in range(4):
    inputs, labels = (each[-1] for each in pairs(training_states, training_active, n_ahead))
    (matrix_a, matrix_b), _ = train_predictor(inputs, last_importance[:, ::4] * labels, loss_and_gradient)
    inputs, labels = (each[-1] for each in pairs(evaluation_states, evaluation_active, n_ahead))
    logits = inputs @ matrix_a.T @ matrix_b.T
    recall_by_distance[n_ahead] = activations.recall_by_window(logits, labels, 0.2, len(bytes_evaluation))
tables.recall_ahead(recall_by_distance)

# %% [markdown]
# The first column says how many blocks earlier the predictor reads, and *recall lost* compares its recall with that of
# the predictor that reads the block's own input. One block earlier costs 0.001, that is, 0.1 percentage points. Only
# the predictor in the last row, which reads the input of the MLP of block 0, loses several points. These rows are about
# the last block. The experiments measured all blocks of both models:

# %%
print(claims.AHEAD.judge())

# %% [markdown]
# So this holds for SmolLM2, and not for the ReLU model. There the mean over blocks 1 to 3 is 1.4 percentage points, but
# nearly all of it comes from block 1 (3.8 points), whose predictor reads the input of block 0. Blocks 2 and 3 lose 0.3
# and 0.1.
#
# ## 11. Optional: from sparsity to speed
#
# The speedup is smaller than the sparsity suggests. The table lists how much faster the ReLU model decodes on a
# processor. Each setting names the mean fraction of neurons that is kept, in brackets the fraction in each of the four
# blocks, and the loss increase with predictors. The first block keeps more, because more of its neurons are active.

# %%
tables.decoding_speedup()

# %% [markdown]
# Compare the rows *oracle* and *predicted* of one setting: the difference is the time of the predictor. With predictors
# the model is at most 1.66 times as fast as dense, and then the loss rises by 0.04 nats per byte. At 30 % it is even
# slower than dense. These times are from one core of a server's processor. The times of section 7 are from your
# machine, and every block kept the same fraction there, so do not expect the same speedups. The paper's own times are
# for OPT-175B on eight A100 GPUs:

# %%
display(tables.published_latency())
print(claims.TWICE.judge())

# %% [markdown]
# Our small model does not become twice as fast. The published speedup over FasterTransformer (NVIDIA's library for
# inference) falls from 2.5 to 1.8 as the prompt grows, because the KV cache is read as before.
#
# ### On a GPU
#
# On a GPU there is one more cost: PyTorch's indexing copies the chosen rows, and the copy is read again. The course
# contains a **kernel** (a function that is written for the GPU) that reads the rows where they are. On an H200 GPU we
# measured both for one token, with an MLP of width 4,096 and 14,336 neurons in bfloat16, the sizes of a model with 8
# billion parameters:

# %%
tables.gathered_on_gpu()

# %% [markdown]
# Look at the column *speedup*. At a density of 50 %, gathering with PyTorch's indexing is slower than the dense MLP
# (0.61 times as fast). At the two densities of the table, the kernel is faster than the dense MLP and than PyTorch's
# indexing.
#
# ## 12. Optional: an open task
#
# Choose 30 % of SmolLM2's neurons for each token with a predictor that takes at most 5 % of the bytes of the MLPs, and
# reach the lowest perplexity that you can. How do you spend the 5 %: on fewer bits, on a lower rank, on the neurons
# that are nearly always needed? There is no right answer, and nothing is graded.
#
# You may change the settings of any selector in `course_lib/contextual/selectors`, or write one of your own like this:
#
# ```python
# from dataclasses import dataclass, replace
# from course_lib.contextual.selector import NeuronSelector
#
# @dataclass(frozen=True, eq=False, kw_only=True)
# class MySelector(NeuronSelector):
#     copies: tuple = ()  # for each block, what the scores are computed from
#
#     @property
#     def n_bytes(self):  # of all copies, compared with the budget
#         return sum(copy.nbytes for copy in self.copies)
#
#     def _fit(self, model, calibration):  # once; calibration: (windows, tokens), token ids
#         return replace(self, copies=...)
#
#     def _score(self, seen, block):  # seen.x: (T, 576), the inputs of the MLP
#         return ...  # (T, 1536), the highest scores are kept
# ```
#
# In the last cell, *gate*, *up* and the hidden values of the model are NaN for your selector. `seen.embedding` has the
# embeddings of the tokens, and `seen.neurons.down_norm` the norms of the columns of *down*.


# %%
def my_selector():
    """Return a NeuronSelector that scores neurons without computing them, not fitted yet."""
    return LowBit(bits=2, group=192)


# %% [markdown]
# Tune your selector on calibration text with the next cell, which fits it on three windows and evaluates it on three
# others. The last cell uses evaluation text, so run it when you have decided.

# %%
fitted_selector = my_selector().fit(model, calibration[:3])
with contextual(model, fitted_selector, 0.3):
    tuning_losses = window_losses(model, calibration[3:], progress=False)
print(f"on calibration text: {tuning_losses.mean():.2f} nats per token")
print(f"bytes: {100 * fitted_selector.n_bytes / gathering_times.n_bytes:.1f} % of those of the MLPs")

# %%
attempt = dejavu_ideas.attempt(my_selector(), (model, tokenizer))
dejavu_ideas.table(dejavu_ideas.stored_ideas(), attempt)

# %% [markdown]
# The rows above yours are five simple ideas that we measured on the same text (`course reproduce dejavu_ideas`). Each
# row is compared with the first one, window by window, and a difference is clear if it is larger than about twice its
# standard error. With about the same bytes, few bits for all weights are much better than a low rank. A gain counts
# only on text that your choices have not used.
#
# ## To take home
#
# 1. Which neurons matter depends on the context. At equal density, a set chosen for each token has a far lower
#    perplexity than a static set.
# 2. An oracle shows that small sets exist. To save anything, they have to be predicted: with a ReLU by two small
#    matrices, with a SiLU better by a coarse copy of the layer.
# 3. Predict, choose, gather: a hook of ten lines replaces an MLP by a few of its neurons.
# 4. The saving is in the bytes of the MLPs, at batch size 1, while decoding. Count the predictor, the attention and the
#    LM head before you promise a speedup.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>The paper reports a contextual sparsity of 85 % for heads and neurons together, so that a token
# needs a model seven times smaller. Why is its decoding only about twice as fast?</summary>
#
# $1 / (1 - 0.85)$ is nearly 7, but these 85 % belong to the oracle (80 % of the heads and 95 % of the neurons), which
# has computed everything before it chooses. With predictors fewer are left out: the times were measured at densities of
# 10 % for the neurons and 42 % for the attention, at which a token still reads 21 % of the weights of a block. The
# predictors cost bytes themselves. The KV cache is read as before, and eight GPUs have to exchange data at any density.
#
# </details>
#
# <details><summary>A colleague evaluates sparse activations on windows of 2,048 tokens. She leaves the first half of
# each window dense and scores only the second half. What does she measure?</summary>
#
# How a sparse model continues a text that a dense model has processed. Each scored token is sparse, but many of the
# keys and values that it attends to are exact. A model that is sparse from its first token on has a higher loss.
#
# </details>
#
# <details><summary>A predictor finds 95 % of the active neurons. Does it keep 95 % of the output?</summary>
#
# Not necessarily, in either direction. If the neurons that it misses are unimportant, it keeps more. If they are the
# few most important ones, it keeps much less. Recall counts neurons, and the energy weighs them.
#
# </details>
#
# ## Reading
#
# - Liu and others: *Deja Vu: Contextual Sparsity for Efficient LLMs at Inference Time*, ICML 2023,
#   [arXiv:2310.17157](https://arxiv.org/abs/2310.17157). Read sections 3 and 4.
# - Lee and others: *CATS: Contextually-Aware Thresholding for Sparsity in Large Language Models*, 2024,
#   [arXiv:2404.08763](https://arxiv.org/abs/2404.08763).
# - Liu and others: *Training-Free Activation Sparsity in Large Language Models*, 2024,
#   [arXiv:2408.14690](https://arxiv.org/abs/2408.14690). TEAL, thresholds on the inputs of all matrices.
# - Mirzadeh and others: *ReLU Strikes Back: Exploiting Activation Sparsity in Large Language Models*, 2023,
#   [arXiv:2310.04564](https://arxiv.org/abs/2310.04564). Back to ReLU, with training.
# - Song and others: *PowerInfer: Fast Large Language Model Serving with a Consumer-grade GPU*, 2023,
#   [arXiv:2312.12456](https://arxiv.org/abs/2312.12456). Predictors on a desktop.
# - Shin and others: *SparseInfer: Training-free Prediction of Activation Sparsity for Fast LLM Inference*, 2024,
#   [arXiv:2411.12692](https://arxiv.org/abs/2411.12692). Signs of the weights as a predictor.
# - Zhang and others: *OPT: Open Pre-trained Transformer Language Models*, 2022,
#   [arXiv:2205.01068](https://arxiv.org/abs/2205.01068). The models of the paper.
