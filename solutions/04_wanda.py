# %% [markdown]
# # 04 · Wanda: pruning by weights and activations
#
# In this lesson you remove half of the weights of a pretrained language model in less than a minute, without
# gradients and without retraining. The method is **Wanda**, short for *pruning by weights and activations* (Sun, Liu,
# Bair and Kolter, 2023). It needs one number for each input of a layer: the norm of that input over a sample of text.
#
# We first ask why the simplest method fails on language models. Then you write the parts of Wanda, and one function
# of about 25 lines joins them and prunes the real model. At the end we compare with the paper.
#
# **Afterwards you can** explain what outlier features do to magnitude pruning, read and change a block-by-block
# pruning loop with forward hooks, choose a comparison group and say why it matters, and judge the difference between
# two pruned models by its standard error.
#
# **You need** lesson 00, and norms and `topk` in PyTorch. Lesson 03 is not required.
#
# **Time**: the core path, sections 1 to 7, takes about two hours, 44 minutes of it for exercises. The optional
# sections 8 to 10 take another hour, 21 minutes of it for exercises.

# %%
import copy

import torch

from course_lib.data import corpora
from course_lib.lessons.common import gpu
from course_lib.lessons.wanda import claims, plots, tables
from course_lib.lessons.wanda.experiments import layer_sparsity
from course_lib.measure.perplexity import perplexity
from course_lib.models import load_model
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.workbook import check, mine

# %% [markdown]
# We need two samples of text, with no article in both. The **calibration set** is a small amount of text on which we
# observe the inputs of the layers. On the evaluation set we measure the **perplexity** of a model, that is, the
# exponential of its mean loss per token (lower is better). The model is SmolLM2-135M-Instruct, whose weights were
# rounded to 4 bits once before the course received them (lesson 00). By a *layer* we mean one weight matrix.

# %%
model, tokenizer = load_model()
calibration = corpora.windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)  # 8 windows of 256 tokens
evaluation = corpora.windows("wikipedia", 4, 512, tokenizer, split="evaluation", seed=0)

# %% [markdown]
# ## 1. Why magnitude pruning fails on language models
#
# The simplest way to prune a model is to remove the weights with the smallest absolute values. This **magnitude
# pruning** is our **baseline**, that is, the method that any other method has to beat. It has one weakness: it never
# looks at what a weight is multiplied by.
#
# | | weight | input | contribution to the output |
# |:--|--:|--:|--:|
# | a large weight on a small input | 0.9 | 0.1 | 0.09 |
# | a small weight on a large input | 0.1 | 10 | **1.00** |
#
# Magnitude pruning removes the second weight, although it contributes eleven times as much as the first. If all
# inputs of a layer were of similar size, this could not happen. So the question is: do the inputs of a language model
# differ in size?
#
# Let's measure it. We write $X$ for the inputs of a layer, a matrix with one row per token and one column per **input
# feature**. The size of feature $j$ is the norm of its column, $\lVert X_j \rVert_2$, over all tokens of the
# calibration set. To see the inputs of every layer we use **forward pre-hooks**: functions that PyTorch calls with
# the arguments of a layer just before the layer runs. We take each norm twice, over all tokens and without the first
# token of every window. You will see why in a moment.

# %%
example = "layers.15.self_attn.q_proj"  # the query projection of block 15; blocks are numbered from 0
norms, norms_without_first, inputs_by_layer = {}, {}, {}


def record_norms(name):
    def hook(layer, arguments):
        x = arguments[0]  # (windows, tokens, features)
        norms[name] = x.norm(dim=(0, 1))
        norms_without_first[name] = x[:, 1:].norm(dim=(0, 1))
        if name == example:
            inputs_by_layer[name] = x.flatten(0, 1)  # (tokens, features)

    return hook


handles = [
    module.register_forward_pre_hook(record_norms(name))
    for name, module in model.model.named_modules()
    if isinstance(module, torch.nn.Linear)
]
with torch.no_grad():
    model.model(calibration, use_cache=False)  # the transformer without its LM head
for handle in handles:
    handle.remove()

plots.feature_norms(norms[example], example)

# %% [markdown]
# Each dot is one of the 576 input features of the query projection in block 15. Most norms are close to the median
# (the dashed line), but a few are far above it. The largest one, feature 247, is 44 times the median and holds nearly
# two thirds of the squared norm on its own. Does it owe this to a few tokens, or is it large everywhere?

# %%
inputs = inputs_by_layer[example]
largest = norms[example].argmax()
is_large = inputs[:, largest].abs() > 6 * inputs.abs().median()
print(f"feature {largest}: {norms[example][largest] / norms[example].median():.0f} times the median norm")
print(f"above six times the median input on {100 * is_large.float().mean():.0f} % of the tokens")

# %% [markdown]
# It is large on every token. Such inputs are called **outlier features** (Dettmers and others, 2022): the same few
# features are much larger than the rest on most tokens, in many layers. For example, feature 247 is the largest input
# of q, k and v in all blocks from 9 to 24. (For the letters, see the block in lesson 00: q, k, v and o are the four
# projections of attention; gate, up and down are the three matrices of the MLP.)
#
# The next figure shows the ratio of the largest to the median norm for all 30 blocks and for the four inputs of each
# block (q, k and v share one input, and so do gate and up).

# %%
plots.norm_ratios(norms, norms_without_first)

# %% [markdown]
# Compare the two panels.
#
# - **Input of q, k, v** (dark blue, circles): the ratio is between 18 and 70 in both panels. These are outlier
#   features; the first token plays no role.
# - **Input of down** (yellow, diamonds): three blocks stand out, 2, 11 and 28. Without the first token of each window,
#   the peak of block 11 disappears, that of block 28 shrinks, and that of block 2 stays. The exact numbers:

# %%
for block in (11, 28, 2):
    down = f"layers.{block}.mlp.down_proj"
    all_tokens, others = ((n[down].max() / n[down].median()).item() for n in (norms, norms_without_first))
    print(f"input of down in block {block}: {all_tokens:,.0f} with all tokens, {others:.0f} without the first")

# %% [markdown]
# In block 11 a single token per window made one feature look 1,235 times as large as the median. Such values are not
# outlier features. They are called **massive activations** (Sun, Chen, Kolter and Liu, 2024): huge values of single
# features at single tokens, very often the first one. Lesson 08 is about that token. In block 28 a ratio of 59
# remains without the first token: a second feature is large there on the other tokens as well, so block 28 has both.
# Not everything fits into the two classes, however: in block 2 the ratio hardly falls.
#
# To sum up: the inputs of this model do differ in size, by factors of 18 to 70 at q, k and v alone. The Wanda paper
# names outlier features as the reason why magnitude pruning fails on language models.
#
# ## 2. The score
#
# How important is a single weight? We can set $W_{ij}$ to zero, change nothing else, and see by how much the output
# of the layer changes. The figure does this for two weights in the same row of our example layer.

# %%
weight = model.model.layers[15].self_attn.q_proj.weight.detach()
plots.removed_weights(weight, inputs)

# %% [markdown]
# The solid line shows the change when we remove a large weight (0.84) on an input of usual size. The dashed line
# belongs to a weight that is 18 times smaller but sits on the outlier feature 247: the output moves 3.5 times as far
# on average, and in the same direction on nearly every token. Magnitude pruning keeps the first weight and removes
# the second one.
#
# We need one number per weight that measures how far the output moves over all tokens.

# %% [markdown]
# ### The Wanda score
# **Exercise** · difficulty 1 of 5 · 5 minutes · 2 points
#
# $W$ has shape (outputs, inputs), and $X$, the inputs of the layer, has shape (tokens, inputs). When $W_{ij}$ is set
# to zero, output $i$ changes on every token. The score of the weight is the Euclidean norm of this change over all
# tokens. Work out on paper what that is, then compute it for all weights at once, without a loop. You may also return
# the squared score, or multiply all scores by the same positive constant. Do not scale rows differently: in section 4
# we compare weights of different rows.


# %% exercise="wanda.score"
def wanda_score(weight, inputs):
    """Compute how much each weight matters.

    weight: (O, I). inputs: (N, I), one row per token.
    Returns (O, I); the weights with a high score are kept.
    """
    ### BEGIN SOLUTION
    return weight.abs() * inputs.norm(dim=0)
    ### END SOLUTION


# %%
check("wanda.score", wanda_score)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# On token $t$ the output changes by $-W_{ij} X_{tj}$. The norm over all tokens is therefore
#
# $$ S_{ij} = |W_{ij}| \cdot \lVert X_j \rVert_2 $$
#
# where $X_j$ is column $j$ of $X$. This is equation 1 of the paper. For example, a weight of 0.1 on a feature with
# norm 10 has the same score as a weight of 1 on a feature with norm 1.
#
# For a single weight the score is exact. When we remove two weights of a row together, their changes can cancel or
# add up, and the score ignores that. Section 8 comes back to it.
#
# </details>
#
# Now we compute the score of the example layer. The score uses $X$ only through its column norms. The norm of a
# column with one non-negative entry is that entry, so we can pass a matrix with one row, the norms, in place of $X$.

# %%
score = mine("wanda.score", wanda_score)(weight, norms[example][None])
plots.columns_kept(weight, norms[example])

# %% [markdown]
# In the figure each dot is one input column of the matrix, and both methods remove half of every row. On the largest
# 1 % of inputs, magnitude (dark circles) keeps only 31 % of the weights, since the model has learned small weights
# there. Wanda (red squares) keeps 89 % of them, and instead removes more weights on the smallest inputs.
#
# **Cost**: one multiplication per weight.
#
# ## 3. From activations to norms
#
# The calibration set may not fit into memory at once, so we have to build up each norm batch by batch. Norms do not
# add up, however. For example, if a feature has norm 3 in the first batch and norm 4 in the second, its norm over
# both is 5 and not 7. Which quantity can we add up instead?

# %% [markdown]
# ### Norms over many batches
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# Take the running total so far and one batch of inputs, and return the new total. Its square root, taken once at the
# very end, must be the norm of every feature over all batches.


# %% exercise="wanda.accumulate"
def accumulate(total, batch):
    """Add one batch to the running total.

    total: (I,). batch: (B, T, I), sequences of tokens. Returns (I,).
    """
    ### BEGIN SOLUTION
    return total + batch.square().sum(dim=(0, 1))
    ### END SOLUTION


# %%
check("wanda.accumulate", accumulate)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Squared norms add up: $\lVert X_j \rVert_2^2 = \sum_t X_{tj}^2$ is a sum over tokens, and a sum can be built in any
# number of parts. So `total + batch.square().sum(dim=(0, 1))` is enough, and we take the root once at the end. In the
# example, $3^2 + 4^2 = 5^2$.
#
# </details>
#
# In section 6 your function will collect the norms of all layers.
#
# **Cost**: one number per input feature of each matrix. For the whole model these are 600 kB, however long the
# calibration set is.
#
# ## 4. The comparison group
#
# A score gives an order, but half of *what* should we remove? The weights that compete with each other form a
# **comparison group**. Magnitude pruning usually ranks all weights of a layer together, so one row may lose nearly
# all of its weights and another one none. Wanda ranks within each output row, so that every output keeps the same
# number of inputs. The paper also tries groups of 128 rows or columns. The drawing shows all five choices on a layer
# with 6 outputs and 8 inputs, with two rows or columns in place of 128. In brackets is the paper's name for each: for
# example, (output, 1) means one output row per group.

# %%
plots.comparison_groups()

# %% [markdown]
# ### Compare within each output
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# From each row remove the $\lfloor I \cdot s \rfloor$ lowest scores: exactly that many, whatever the ties. For
# example, with $I = 5$ inputs and $s = 0.5$, two weights of each row are removed and three are kept. Scores may be
# negative or zero. Where the count is 0, everything is kept.


# %% exercise="wanda.keep_rows"
def keep_rows(score, sparsity):
    """Choose the weights to keep, with each output row as a comparison group.

    score: (O, I). sparsity: the fraction of each row that is removed.
    Returns (O, I), bool, True = kept.
    """
    ### BEGIN SOLUTION
    n_pruned = int(score.shape[1] * sparsity)
    pruned = score.topk(n_pruned, dim=1, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(1, pruned, False)
    ### END SOLUTION


# %%
check("wanda.keep_rows", keep_rows)

# %% [markdown]
# Now the other direction: each input column is a group. It looks like a small change, but the result is surprising.

# %% [markdown]
# ### Compare within each input
# **Exercise** · difficulty 2 of 5 · 5 minutes · 2 points
#
# From each column remove the $\lfloor O \cdot s \rfloor$ lowest scores, exactly that many. Before you run the cell
# after the check, predict how much the masks of magnitude and Wanda differ within these groups.


# %% exercise="wanda.column_groups"
def keep_columns(score, sparsity):
    """Choose the weights to keep, with each input column as a comparison group.

    score: (O, I). sparsity: the fraction of each column that is removed.
    Returns (O, I), bool, True = kept.
    """
    ### BEGIN SOLUTION
    n_pruned = int(score.shape[0] * sparsity)
    pruned = score.topk(n_pruned, dim=0, largest=False).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(0, pruned, False)
    ### END SOLUTION


# %%
check("wanda.column_groups", keep_columns)

# %%
keep_by_group = {"row": mine("wanda.keep_rows", keep_rows), "column": mine("wanda.column_groups", keep_columns)}
for group, keep in keep_by_group.items():
    agreement = (keep(weight.abs(), 0.5) == keep(score, 0.5)).float().mean()
    print(f"within each {group}: magnitude and Wanda agree on {100 * agreement:.1f} % of the weights")

# %% [markdown]
# <details><summary>Why do they agree completely within columns?</summary>
#
# Within column $j$ all weights are multiplied by the same number, $\lVert X_j \rVert_2$. Multiplying all scores of a
# group by one positive number does not change their order. So with one input per group, magnitude and Wanda are the
# same method, whatever the calibration set is. The same holds for any score of the form $f(|W_{ij}|) \cdot g(j)$ with
# increasing $f$ and positive $g$. This is a theorem; the cell only illustrates it.
#
# </details>
#
# Within rows the two masks agree on 93 % of the weights. Does this mean that the two methods are nearly the
# same? We should judge a mask by what it does to the output of the layer. With $\hat W$ for the pruned weight, the
# relative squared error is $\lVert X \hat W^\top - X W^\top \rVert^2 / \lVert X W^\top \rVert^2$.

# %%
keep_magnitude, keep_wanda = (keep_by_group["row"](ranking, 0.5) for ranking in (weight.abs(), score))
output_energy = (inputs @ weight.T).square().sum()
for n_inputs in (0, 1, 6, weight.shape[1]):
    largest_inputs = norms[example].topk(n_inputs).indices
    keep = keep_magnitude.clone()
    keep[:, largest_inputs] = keep_wanda[:, largest_inputs]
    error = (inputs @ (weight * ~keep).T).square().sum() / output_energy
    print(f"Wanda's choice for the {n_inputs} largest inputs, magnitude's for the rest: {100 * error:.2f} %")

# %% [markdown]
# The first line is magnitude's mask with a relative squared error of 5 %, the last line is Wanda's with 1 %. Look at
# the lines between them: if we take Wanda's choice for a single input, the outlier feature 247, most of the
# difference is gone already, and with six inputs nearly all of it. (The mixed masks keep a few weights more, because
# Wanda keeps more weights of these inputs.) So a few decisions on outlier features matter more than all the others,
# and the number of equal entries is not a good measure of a mask.
#
# This is one layer with a strong outlier feature. We compared both masks in all 210 layers of the model on other text
# (`course reproduce masks`): Wanda's error is smaller in every layer, and magnitude's is 1.9 times as large in the
# median layer. In a pruned model, each layer also receives the errors of the layers before.
#
# And the group itself? The experiments of this lesson pruned the whole model with each group:

# %%
print(claims.OUTPUT_GROUP_IS_BEST.judge())

# %% [markdown]
# **Cost**: one partial sort per row, about one second for the whole model.
#
# ## 5. A pattern for GPUs: N:M
#
# A GPU can skip zeros only if it knows where to expect them. The pattern that NVIDIA GPUs support is **2:4**: of
# every four neighbouring weights of a row, two are kept. In general, **N:M sparsity** keeps N of every M neighbours.
# Because it lies between unstructured pruning and the removal of whole rows or columns, it is called
# **semi-structured sparsity**. For Wanda only the comparison group changes: it shrinks to M weights.

# %%
plots.n_of_m_example()

# %% [markdown]
# Both drawings keep four of the same eight scores. With one group of eight, the kept scores add up to 30. With 2:4,
# the 7 and the 6 are removed because 9 and 8 in the same group are even higher, while 5 and 3 are kept because 1 and
# 2 are lower. The sum falls to 25.

# %% [markdown]
# ### N of M
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Keep the n highest scores of every m neighbouring inputs of a row: exactly n. Scores may be negative or zero.


# %% exercise="wanda.n_of_m"
def keep_n_of_m(score, n, m):
    """Choose the weights to keep, n of every m consecutive inputs.

    score: (O, I), I divisible by m. Returns (O, I), bool, True = kept.
    """
    ### BEGIN SOLUTION
    groups = score.reshape(-1, m)
    pruned = groups.topk(m - n, dim=1, largest=False).indices
    keep = torch.ones_like(groups, dtype=torch.bool).scatter_(1, pruned, False)
    return keep.reshape(score.shape)
    ### END SOLUTION


# %%
check("wanda.n_of_m", keep_n_of_m)

# %%
masks = {
    "half of each row": keep_by_group["row"](score, 0.5),
    "2:4": mine("wanda.n_of_m", keep_n_of_m)(score, 2, 4),
}
for pattern, keep in masks.items():
    print(f"{pattern}: keeps {100 * score[keep].sum() / score.sum():.1f} % of the total score")

# %% [markdown]
# Both masks remove half of the weights. The smaller the group, the more often a weight is removed only because its
# neighbours have even higher scores.
#
# **Cost**: 2:4 gives a higher perplexity than removing half of each row, although the sparsity is the same. Section 7
# measures how much higher.
#
# ## 6. The whole method, block by block
#
# After we have pruned a layer, the later layers receive other inputs than in the dense model. We should score them
# with the norms of these new inputs. So we prune the **transformer blocks** in order: run a block on the calibration
# set to collect the norms, prune its layers, and run it again to compute the inputs of the next block.

# %%
plots.block_by_block()

# %% [markdown]
# ### One layer after the other
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Prune a network of two layers, `relu(inputs @ first.T) @ second.T`, with Wanda within rows. The score of the second
# layer must use the inputs that it receives from the pruned first layer. You may call your functions from above.


# %% exercise="wanda.sequential"
def prune_two_layers(first, second, inputs, sparsity):
    """Prune both layers in order.

    first: (H, I). second: (O, H). inputs: (N, I). sparsity: of every row.
    Returns the pruned (first, second).
    """

    ### BEGIN SOLUTION
    def prune(weight, x):
        score = weight.abs() * x.norm(dim=0)
        pruned = score.topk(int(score.shape[1] * sparsity), dim=1, largest=False).indices
        return weight.scatter(1, pruned, 0.0)

    first = prune(first, inputs)
    return first, prune(second, torch.relu(inputs @ first.T))
    ### END SOLUTION


# %%
check("wanda.sequential", prune_two_layers)

# %% [markdown]
# Now the real model: 30 transformer blocks, 210 matrices, 106 million weights. Wanda prunes a whole block at a time:
# it collects the norms of all seven matrices in one run of the block, and only then prunes them. So the first
# matrices of a block receive inputs from pruned blocks, but `o_proj` and `down_proj` are scored with inputs that the
# block's own q, k, v, gate and up produced before they were pruned. (Your two-layer function updates the inputs after
# every layer. Wanda updates them only after every block, which saves time.) The next cell is the whole method. It
# needs two kinds of hooks:
#
# - `collect` runs before every linear layer and adds its inputs to a running total (your `accumulate`).
# - `prune_and_rerun` runs after every block, when the totals of its layers are complete. It scores and masks the
#   layers (your `wanda_score` and `keep_rows`) and runs the block again, with the same arguments as before. PyTorch
#   replaces the output of a module by the return value of its forward hook, so the next block receives the output of
#   the *pruned* block.
#
# In this way one call of `model.model(token_ids)` prunes the model from the first block to the last. All calibration
# windows go through a block together, as one batch; the library also handles several batches.
#
# Two details of PyTorch: `with_kwargs=True` passes the block's keyword arguments (such as position embeddings) to our
# hook, and `block.forward(...)` runs the block without calling its hooks again.


# %%
@torch.no_grad()
def prune_with_wanda(model, token_ids, sparsity, accumulate, wanda_score, keep_rows):
    """Prune every linear layer of every transformer block in place; return the masks by layer."""
    totals, masks, hooks = {}, {}, {}

    def collect(linear, arguments):
        total = totals.get(linear, torch.zeros(linear.in_features))
        totals[linear] = accumulate(total, arguments[0])

    def prune_and_rerun(block, arguments, keywords, dense_output):
        for linear in [module for module in block.modules() if module in totals]:
            hooks.pop(linear).remove()  # the second run of the block must not be collected
            norms = totals.pop(linear).sqrt()
            masks[linear] = keep_rows(wanda_score(linear.weight, norms[None]), sparsity)
            linear.weight.mul_(masks[linear])
        return block.forward(*arguments, **keywords)

    for block in model.model.layers:
        for module in block.modules():
            if isinstance(module, torch.nn.Linear):
                hooks[module] = module.register_forward_pre_hook(collect)
        hooks[block] = block.register_forward_hook(prune_and_rerun, with_kwargs=True)
    model.model(token_ids, use_cache=False)
    for handle in hooks.values():
        handle.remove()
    return masks


pruned_model = copy.deepcopy(model)
masks = prune_with_wanda(
    pruned_model,
    calibration,
    0.5,
    mine("wanda.accumulate", accumulate),
    mine("wanda.score", wanda_score),
    mine("wanda.keep_rows", keep_rows),
)
n_kept, n_weights = (sum(int(count(mask)) for mask in masks.values()) for count in (torch.sum, torch.numel))
print(f"kept {n_kept:,} of {n_weights:,} weights in {len(masks)} matrices")

# %% [markdown]
# The library does the same in `prune_model`. It also handles other architectures, other methods, and models larger
# than memory. Does it keep the same weights? The first blocks do not depend on the later ones, so we can compare them
# on a copy that ends after four blocks. `Wanda()` removes half of each row:

# %%
first_blocks = copy.deepcopy(model)
del first_blocks.model.layers[4:]
prune_model(first_blocks, Wanda(), calibration)
n_different = sum(
    int((weight != pruned_model.get_parameter(name)).sum()) for name, weight in first_blocks.named_parameters()
)
print(f"weights that differ between your loop and the library, in four blocks: {n_different}")

# %% [markdown]
# The number should be 0. From here on we can use the library. Here is the baseline, magnitude pruning. `Magnitude()`
# removes half of each row too, so that only the score differs. (Section 7 ranks whole layers, which is magnitude's
# usual group.) We evaluate all three models on the evaluation set:

# %%
baseline = copy.deepcopy(model)
prune_model(baseline, Magnitude(), calibration)
models = {"dense": model, "Wanda 50 %": pruned_model, "magnitude 50 %": baseline}
results = {name: perplexity(each, evaluation) for name, each in models.items()}
for name, result in results.items():
    print(f"{name}: perplexity {result.value:.1f} ± {result.standard_error:.1f}")

# %% [markdown]
# The number after ± is the **standard error**: if we repeated the measurement with other windows of text, the result
# would typically move by this much. All three models are evaluated on the same four windows, so the differences
# between windows cancel when we compare two models. We subtract the losses window by window: a window that is hard
# for one model is usually hard for the others too, and this part drops out of the difference.

# %%
losses = {name: torch.tensor(result.losses) for name, result in results.items()}  # nats per token, one per window
for better, worse in (("dense", "Wanda 50 %"), ("Wanda 50 %", "magnitude 50 %")):
    difference = losses[worse] - losses[better]
    standard_error = difference.std() / len(difference) ** 0.5
    print(f"{worse} minus {better}: {difference.mean():+.2f} ± {standard_error:.2f} nats per token")

# %% [markdown]
# Wanda raises the loss, but magnitude pruning raises it by much more. The difference between the two is about 20
# times its standard error. Is that enough? The standard error of four windows is itself uncertain, so the usual rule
# of two standard errors is too lenient: by **Student's t distribution** a mean of four values must be 3.2 standard
# errors from zero. All verdicts of this course use this rule. The loss is measured in **nats**, that is, with the
# natural logarithm. A difference of 1.8 nats means a perplexity that is $e^{1.8} \approx 6$ times higher.
#
# ## 7. Results: what holds for larger models, and what it costs
#
# Your measurement used 2,048 tokens for calibration and four windows for evaluation. For the next table and figure,
# `course reproduce wanda` used 8,192 tokens for calibration, 16 windows for the table and 12 for the figure. So its
# numbers differ from yours: for example, magnitude's perplexity at 50 % is 8 times Wanda's there, and about 6 times
# in your run. The table compares our results with the numbers that the authors publish with their code. The texts
# differ, so perplexities cannot be compared, but ratios can: we divide the perplexity of each pruned model by that of
# the same model before pruning.

# %%
tables.perplexity_ratios()

# %% [markdown]
# In the row *Wanda 50 %*, our model has 2.3 times its dense perplexity, and the published LLaMA-2 models 1.2 to 1.3
# times. In every column and for every pattern, magnitude pruning has the higher ratio of the two methods. But our
# small model loses more than the larger ones with either method. Two likely reasons, which we have not tested, are
# that a small model has fewer weights to spare, and that its weights had been rounded to 4 bits before we pruned
# them. A tighter pattern costs more: compare 50 %, 4:8 and 2:4 of the same method.
#
# How far can we go?

# %%
plots.sweep()

# %% [markdown]
# At 30 % sparsity magnitude pruning (dark, circles) already has 1.6 times the dense perplexity (dotted line), and
# Wanda (red, dashed) is still near it. At 50 % magnitude's perplexity is 8 times Wanda's, and at 70 % more than 100
# times. But Wanda also has its limits: from 60 % on, its perplexity is several times the dense one, and the model is
# of little use.
#
# Does the paper's main claim hold for our model?

# %%
print(claims.BELOW_MAGNITUDE.judge())

# %% [markdown]
# The other claims, such as the number of calibration windows, are on [the page of claims](../docs/claims.md) under
# "All claims by lesson", each with our number, its error and a verdict.
#
# ### What it costs, and when it does not pay off

# %%
tables.cost()

# %% [markdown]
# - **Time.** Nearly all of the time goes into running each block twice, which every method needs that uses the inputs
#   from the pruned blocks. The paper reports 0.54 s for the scores of LLaMA-7B. SparseGPT, a method that lesson 03
#   introduces, needs 203 s for its scores. Both times leave out the forward passes. On an H200 we measured 72 ms for
#   Wanda's scores, and 7.2 s for all of SparseGPT at 50 % (one run), for a model of Llama-3-8B's shape with random
#   weights (second table below).
# - **Memory.** Wanda needs one number per input feature. SparseGPT needs a matrix of all pairs of features. For
#   example, for the widest layer of LLaMA-2-70B with its 28,672 inputs, that is 115 kB against 3.3 GB.
# - **It does not pay off** when nothing makes use of the zeros. A matrix that is half zeros but stored densely is as
#   large and as slow as before. Lesson 01 counts the bytes of other formats: with a bitmap, a matrix at 50 % sparsity
#   takes 1.8 times less memory in 16 bits, but needs kernels that can read it.
# - **2:4** is the format that GPUs can multiply directly, and its higher perplexity is the price.
#
# How much faster is 2:4 on a GPU? We measured PyTorch's own 2:4 product and the dense one. The second table lists the
# times of pruning all 32 blocks, without the forward passes:

# %%
two_four = {"contests": ("2:4, tokens: 1", "2:4, tokens: 4096"), "sides": ("dense", "torch semi-structured")}
print(gpu.provenance())
display(gpu.table("nm_matmul", **two_four))
gpu.whole_model("pruning", contests=("32 blocks, Wanda", "32 blocks, SparseGPT"))

# %% [markdown]
# With a single token, as in decoding with batch size 1, the 2:4 product takes nearly three times as long as the dense
# one. With 4,096 tokens it is 1.2 times as fast, although a 2:4 matrix needs only half of the multiplications. The
# second table shows that pruning with Wanda is cheap there too: 75 ms for half of each row, and 57 ms for 2:4.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 8. Optional: where the score comes from
#
# Wanda asks how much the output changes when we remove a weight and change nothing else. SparseGPT (Frantar and
# Alistarh, 2023) allows the other weights of the row to change as well, so that they can make up for the removed one.
# How much can they help?
#
# Let a row of $W$ change by a vector $\delta$. Its outputs on the calibration set change by $X\delta$, and the
# squared norm of this is $\delta^\top H \delta$ with $H = X^\top X$. The solution needs the inverse of $H$, which
# does not exist if, for example, two inputs are copies of each other. We therefore add a small multiple of the
# identity to it, as in lesson 03. This is called **damping**. From here on, $H$ is the damped matrix.

# %% [markdown]
# ### What a removal costs
# **Exercise** · difficulty 4 of 5 · 15 minutes · 4 points
#
# Removing $W_{ij}$ means $\delta_j = -W_{ij}$. Return two costs $\delta^\top H \delta$ for every weight: *alone*,
# where all other entries of $\delta$ are 0, and *helped*, where the other entries are chosen so that the cost is as
# small as possible. The first one is a line of algebra. For the second one, minimise under the constraint, with a
# Lagrange multiplier or by completing the square.


# %% exercise="wanda.obs_score"
def obs_score(weight, hessian):
    """Compute the cost of removing each weight.

    weight: (O, I). hessian: (I, I), the matrix H, already damped.
    Returns (alone, helped), both (O, I).
    """
    ### BEGIN SOLUTION
    alone = weight.square() * hessian.diagonal()
    return alone, weight.square() / torch.linalg.inv(hessian).diagonal()
    ### END SOLUTION


# %%
check("wanda.obs_score", obs_score)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Without help, $\delta = -W_{ij} e_j$, and the cost is $W_{ij}^2 H_{jj}$. With help, we minimise
# $\delta^\top H \delta$ under the constraint on $\delta_j$. Setting the derivative of the Lagrangian to zero gives
# $2 H \delta = \mu e_j$, so $\delta$ is a multiple of column $j$ of $H^{-1}$. The constraint fixes the multiple:
# $\delta = -W_{ij}\, H^{-1} e_j / [H^{-1}]_{jj}$. Inserting this leaves
#
# $$ \text{alone: } W_{ij}^2 H_{jj} \qquad \text{helped: } \frac{W_{ij}^2}{\left[H^{-1}\right]_{jj}} $$
#
# The first cost is the square of Wanda's score (except for the damping), and squares do not change a ranking. The
# second is the score of the optimal brain surgeon (lesson 02), which SparseGPT uses. If the columns of $X$ are
# orthogonal, $H$ is diagonal, $[H^{-1}]_{jj} = 1 / H_{jj}$, and the two are equal. In other words, **Wanda uses
# SparseGPT's score with the off-diagonal entries of $H$ ignored, and it does not update the other weights.**
#
# </details>
#
# How much do the off-diagonal entries matter in our example layer?

# %%
hessian = inputs.T @ inputs
hessian += 0.01 * hessian.diagonal().mean() * torch.eye(len(hessian))
cost_alone, cost_helped = mine("wanda.obs_score", obs_score)(weight, hessian)
saved = 1 - cost_helped.sum(dim=0) / cost_alone.sum(dim=0)  # one number per input feature
print(f"the other weights could save {100 * saved.median():.0f} % of the cost of a removal (median input)")
plots.score_ranks(cost_helped, score)

# %% [markdown]
# The other weights could save nearly two thirds of the cost, and yet both scores rank the weights in nearly the same
# order. How can both be true? The ratio of the two costs depends on the input alone, and not on the weight. Where
# this ratio is about the same for all inputs, help makes all removals cheaper, but it does not change their order.
#
# Similar rankings do not yet mean equally good masks, as section 4 has shown. So we measured the output error in all
# 210 layers (`course reproduce masks`): without the update of the other weights, SparseGPT's score has a larger error
# than Wanda's in 203 of them. So the score alone does not make SparseGPT better than Wanda. Two other things differ:
# SparseGPT updates the weights that are kept, and it ranks all rows of a block together, after earlier updates
# (lesson 03).
#
# ## 9. Optional: accuracy and its error
#
# Perplexity uses the probability of every token of a text. A benchmark is less generous: each question only tells us
# whether the answer was right. Accuracies are therefore noisy, and you need to know their errors before you compare
# two of them.

# %% [markdown]
# ### How sure is an accuracy?
# **Exercise** · difficulty 2 of 5 · 6 minutes · 2 points
#
# From the number of right answers, compute the accuracy and its 95 % interval with the normal approximation, that is,
# 1.96 standard errors to either side. Whether you estimate the variance of a single answer with $n$ or with $n - 1$
# is up to you.


# %% exercise="wanda.interval"
def interval(n_right, n):
    """Compute the accuracy with its 95 % interval.

    Returns (accuracy, lower, upper) as fractions.
    """
    ### BEGIN SOLUTION
    accuracy = n_right / n
    standard_error = (accuracy * (1 - accuracy) / n) ** 0.5
    return accuracy, accuracy - 1.96 * standard_error, accuracy + 1.96 * standard_error
    ### END SOLUTION


# %%
check("wanda.interval", interval)

# %% [markdown]
# What does "95 %" promise? If we computed many such intervals, 95 % of them should contain the true accuracy. For $n$
# questions we can compute this exactly: for a given true accuracy, add up the probabilities of all counts whose
# interval contains it. The figure does this for 100 questions, for your interval and for **Wilson's interval**
# (1927). Yours takes the standard error from the observed accuracy $\hat p$. Wilson's takes it from the true one: it
# contains every $p$ with $|\hat p - p| \le 1.96 \sqrt{p (1 - p) / n}$.

# %%
plots.coverage(mine("wanda.interval", interval))

# %% [markdown]
# In the middle, both curves stay close to the promised 95 %. At a true accuracy of 1 % or 99 % the interval by the
# normal approximation (solid) contains the truth in only 63 % of the cases, and closer to 0 and 1 in even fewer,
# because it estimates the error from the observed accuracy. For example, with 1 right answer of 100 its interval
# starts below 0, and with 0 right answers it has no width at all. The next figure therefore uses Wilson's interval.
# It shows the benchmarks of the paper and four more, for the dense model and for both methods at 50 %.

# %%
plots.zero_shot()

# %% [markdown]
# A task can show what pruning does only if the dense model is clearly above chance on it. This is the case for the
# four tasks on the left, `sciq` to `arc_easy`. On the shaded tasks even the dense model is at chance level, so a
# difference there means nothing: **no signal, no conclusion**. For example, the paper reports the mean of seven tasks,
# and our dense model is above chance on two of them. Over these seven, Wanda is 1.2 points below magnitude pruning,
# with a standard error of 3.2 points, which decides nothing. We judge the claim on the mean of the four tasks that the
# dense model can do:

# %%
print(claims.ACCURACY_WITH_SIGNAL.judge())

# %% [markdown]
# ## 10. Optional: an open task
#
# So far every layer lost the same fraction of its weights. This is not necessarily the best choice. Some layers may
# be able to lose more, and then others can lose less. *OWL* (Yin and others, 2024) is one answer: it counts the
# unusually large scores of each block and gives a lower sparsity to blocks that have many. The authors report that at
# 70 % sparsity Wanda gives LLaMA-7B a perplexity of 85.8, and Wanda with OWL 24.6.
#
# Now it is your turn. Choose the sparsity of every layer so that the model as a whole loses 40 % of its block weights
# and has the lowest perplexity that you can reach. There is no right answer, and nothing is graded. Your rule returns
# one number per layer. Only proportions count: a layer with 2 loses twice as much as a layer with 1, and the library
# scales all of them until the whole model loses 40 %. What do the figures of sections 1 and 7 suggest?


# %%
def relative_sparsity(part, depth):
    """Choose how much sparsity a layer gets relative to the others.

    part: the matrix, such as "mlp.up_proj" or "self_attn.q_proj".
    depth: 0 for the first block, 1 for the last.
    Returns a number from 0 on.
    """
    return 1.0


# %%
tables.layer_sparsity(layer_sparsity.measure(relative_sparsity))

# %% [markdown]
# The rows above yours are simple ideas that we measured on the same text (`course reproduce layer_sparsity`). The
# last column compares each of them with equal sparsity, window by window. A difference is clear if its absolute value
# is more than about twice its standard error. Is any idea clearly better than equal sparsity? Is yours?
#
# ## To take home
#
# 1. The effect of a weight depends on the input that it multiplies. Wanda therefore scores a weight by the product of
#    its magnitude and the norm of its input.
# 2. Outlier features are large on most tokens, and magnitude pruning removes most of their weights. Massive activations
#    are large at single tokens.
# 3. The comparison group is part of the method. Within one input, Wanda and magnitude pruning are the same.
# 4. A pruning loop with hooks needs about 25 lines: collect, prune, run the block again.
# 5. A number needs its standard error. Where a difference is not larger than two of them (3.2 with only four samples),
#    nothing follows from it.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>Divide all weights of input 3 by 10, and let the layer before make that input 10 times larger.
# What changes for magnitude pruning, and what for Wanda?</summary>
#
# The layer computes the same as before, and Wanda's score does not change at all. For magnitude pruning, however, the
# weights of this input are now small, so within a row or a layer they are removed first.
#
# </details>
#
# <details><summary>In block 11 one input feature of down_proj is 1,235 times as large as the median, because of the
# first token alone. How many weights per row can this feature change in Wanda's mask?</summary>
#
# At most two: the feature's own weight, which is now kept, and the one weight of the row that is removed in its
# place. A larger norm of one feature changes the score of one weight per row. Whether this is good depends on the
# other tokens. An outlier feature deserves its weights, because it is large everywhere. The feature in block 11 is
# small on all tokens but one per window, and Wanda keeps its weights for the sake of that token.
#
# </details>
#
# <details><summary>Two pruned models answer 100 questions. One gets 57 right, the other 52, and each accuracy has a
# standard error of 5 points. What do you need to judge the difference?</summary>
#
# You need the answers question by question. The error of the difference comes from the questions on which the two
# models disagree, and is usually smaller than $\sqrt{5^2 + 5^2} = 7$ points, which would hold for two independent
# samples. With either error, 5 points are not enough here.
#
# </details>
#
# ## Reading
#
# - Sun, Liu, Bair, Kolter: *A Simple and Effective Pruning Approach for Large Language Models*, ICLR 2024,
#   [arXiv:2306.11695](https://arxiv.org/abs/2306.11695). Read section 3 and the ablations.
# - Frantar, Alistarh: *SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot*, ICML 2023,
#   [arXiv:2301.00774](https://arxiv.org/abs/2301.00774).
# - Dettmers, Lewis, Belkada, Zettlemoyer: *LLM.int8()*, NeurIPS 2022,
#   [arXiv:2208.07339](https://arxiv.org/abs/2208.07339). Outlier features.
# - Sun, Chen, Kolter, Liu: *Massive Activations in Large Language Models*, 2024,
#   [arXiv:2402.17762](https://arxiv.org/abs/2402.17762).
# - Yin and others: *Outlier Weighed Layerwise Sparsity (OWL)*, ICML 2024,
#   [arXiv:2310.05175](https://arxiv.org/abs/2310.05175). Sparsity by layer.
# - Han, Pool, Tran, Dally: *Learning both Weights and Connections for Efficient Neural Networks*, NeurIPS 2015,
#   [arXiv:1506.02626](https://arxiv.org/abs/1506.02626). Magnitude pruning, with retraining.
# - Wilson: *Probable Inference, the Law of Succession, and Statistical Inference*, JASA 22, 1927,
#   [doi:10.1080/01621459.1927.10502953](https://doi.org/10.1080/01621459.1927.10502953). The interval.
