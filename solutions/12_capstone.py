# %% [markdown]
# # 12 · Capstone: one model, one budget
#
# Each of the lessons 01 to 11 made one thing smaller: weights, bits, the cache, the neurons that a token computes, the
# keys that a query reads. In practice we combine such methods, and then new questions appear. Two methods can help or
# hurt each other. Their savings must be counted in the same unit, bytes. And we need a way to choose among many
# combinations.
#
# In this lesson you put a compressed model together under a budget of bytes, measure its loss with an error, and find
# out which of its parts cost most. The lesson ends with a challenge: reach the lowest loss with a third of the bytes.
#
# **Afterwards you can** combine a pruning loop and an evicting cache in one model, say when it pays to store zeros,
# compare two models on the same windows, split the cost of a combination among its parts, and read off a Pareto front
# which models are worth considering. If you also do the optional section 4, you can make a mask and a quantization grid
# fit together.
#
# **You need** lessons 00, 01, 03, 04 and 07. Two parts of the combinations come from other lessons: CATS (09) and a
# learned prompt (10). Lesson 11 prepares the optional section 12.
#
# **Time**: the core path, sections 1 to 3 and 5 to 9, takes about two hours, 28 minutes of it for exercises. Section 4
# takes half an hour, 12 minutes of it for an exercise. It is optional, like section 10 (a few minutes) and sections 11
# to 13 (another hour, 31 minutes of it for exercises). The challenge is open-ended.

# %%
import copy

import torch

from course_lib.compose.build import build
from course_lib.compose.draft import drafting
from course_lib.compose.recipe import from_json
from course_lib.data import corpora
from course_lib.kv.cache import evicting
from course_lib.lessons.capstone import challenge, claims, estimates, live, methods, plots, tables, widgets
from course_lib.lessons.common.by_mask import ByMask
from course_lib.models import load_model
from course_lib.workbook import check, earlier, mine
from course_lib.workbook.ledger.view import claims as all_claims

# %%
model, tokenizer = load_model()
calibration = corpora.windows("wikipedia", 4, 128, tokenizer, split="calibration", seed=0)  # 4 windows of 128 tokens
evaluation = corpora.windows("wikipedia", 4, 128, tokenizer, split="evaluation", seed=0)
recipes = estimates.recipes()  # 89 recipes that we measured before: bytes, and the loss of each window
print(tables.provenance())

# %% [markdown]
# ## 1. The idea in one picture
#
# A **recipe** lists the parts that make a model smaller: how its weights are pruned and rounded, which tokens its cache
# keeps, which neurons each token uses (lesson 09), and a learned prompt (lesson 10). The figure starts with the dense
# model on the left and adds one part after another.

# %%
plots.parts_added()

# %% [markdown]
# Look at the upper panel first. The dense model takes 293 MB: 269 MB for its weights and 24 MB for a cache of 1,024
# tokens, all in 16 bits. The next two steps together leave 94 MB of weights: half of the weights of the blocks are
# pruned, and the others are rounded to 3 bits. H2O in 4 bits shrinks the cache from 24 MB to 2 MB. CATS (lesson 09),
# which skips half of the neurons, saves no memory at all: every neuron is needed by some token. It saves **bytes read
# per token**, which the figure does not show.
#
# The lower panel shows the price. The **loss increase** is the loss of a model minus the loss of the dense model on
# the same text, in nats per token. Each of the first four parts adds to it, and the learned prompt takes back a little.
# For example, all five parts together cost 2.1 nats on Wikipedia: the perplexity is $e^{2.1} \approx 8$ times as high.
# This is far too much for practice.
#
# Three questions follow from this picture. How many bytes are stored, counting everything (section 3)? How large is the
# loss increase, and could it be chance (section 5)? And which part costs how much of it (section 6)?
#
# ## 2. One recipe from your own functions
#
# Let us assemble the first recipe by hand. It has two parts: half of the weights of each layer are pruned, and the
# cache keeps the newest 64 tokens. You have written everything that it needs:
#
# | from lesson | your function | what it does here |
# |:--|:--|:--|
# | 03 | `inverse_factor`, `sparsegpt` | prune a layer, with an update of the weights that are kept |
# | 04 | `accumulate`, `wanda_score`, `keep_rows` | prune a layer by Wanda, which is faster |
# | 07 | `window_keep` | choose the tokens that stay in the cache |
#
# `earlier` looks for each function in your notebooks of those lessons. Where it finds no right answer, it takes the
# course's function.

# %%
names = ("sparsegpt.factor", "sparsegpt.prune", "wanda.accumulate", "wanda.score", "wanda.keep_rows", "kv.window")
inverse_factor, sparsegpt, accumulate, wanda_score, keep_rows, window_keep = map(earlier, names)

# %% [markdown]
# The next cell is the first part. `prune_blocks` is the loop of lesson 04 with one change: the method is now an
# argument, a function of a weight and its inputs. So the same loop can prune by Wanda or by SparseGPT. A hook before
# each linear layer stores its inputs. A hook after each block prunes the layers of the block and runs it again, so that
# the next block receives what the pruned block computes.
#
# To save time, this section works with the first six of the 30 blocks of the model. Such a short model predicts text
# badly, but it is enough to see that two ways to build a recipe give the same model.


# %%
@torch.no_grad()
def prune_blocks(model, token_ids, prune_layer):
    """Prune every linear layer of every transformer block in place, in the order of the blocks."""
    inputs, hooks = {}, {}

    def collect(linear, arguments):
        inputs[linear] = arguments[0]  # (windows, tokens, inputs)

    def prune_and_rerun(decoder, arguments, keywords, dense_output):
        for linear in [module for module in decoder.modules() if module in inputs]:
            hooks.pop(linear).remove()  # the second run of the block must not be collected
            linear.weight.copy_(prune_layer(linear.weight, inputs.pop(linear)))
        return decoder.forward(*arguments, **keywords)  # not decoder(...), which would call this hook again

    for decoder in model.model.layers:
        for module in decoder.modules():
            if isinstance(module, torch.nn.Linear):
                hooks[module] = module.register_forward_pre_hook(collect)
        hooks[decoder] = decoder.register_forward_hook(prune_and_rerun, with_kwargs=True)
    model.model(token_ids, use_cache=False)
    for handle in hooks.values():
        handle.remove()


def by_wanda(weight, inputs):
    norms = accumulate(torch.zeros(weight.shape[1]), inputs).sqrt()
    return weight * keep_rows(wanda_score(weight, norms[None]), 0.5)


def by_sparsegpt(weight, inputs):
    x = inputs.flatten(0, 1)
    hessian = x.T @ x
    damped = hessian + 0.01 * hessian.diagonal().mean() * torch.eye(len(hessian))
    return sparsegpt(weight, inverse_factor(damped), 0.5, 128)


short_model = copy.deepcopy(model)
del short_model.model.layers[6:]
short_model.config.num_hidden_layers = 6

pruned_model = copy.deepcopy(short_model)
prune_blocks(pruned_model, calibration, by_wanda)  # or by_sparsegpt, which takes longer
is_zero = torch.cat([(p == 0).flatten() for name, p in pruned_model.named_parameters() if "proj" in name])
print(f"{100 * is_zero.float().mean():.1f} % of {len(is_zero):,} weights of the six blocks are zero")

# %% [markdown]
# The second part is the cache. A policy with your `window_keep` decides which slots (places in the cache) stay whenever
# there are more than 64. How do we measure such a model? If we read a text in one pass, nothing is evicted before the
# end. So we read the first half of each window in one pass and the rest in pieces of 16 tokens. After each pass the
# cache evicts, and the loss of the next tokens shows what is missing.


# %%
@torch.no_grad()
def continued_losses(model, token_ids, cache, piece=16):
    """Read half of each window in one pass, the rest in pieces; return the rest's mean loss."""
    half, losses = token_ids.shape[1] // 2, []
    model(token_ids[:, :half], past_key_values=cache, use_cache=True, logits_to_keep=1)
    for start in range(half, token_ids.shape[1] - 1, piece):
        end = min(start + piece, token_ids.shape[1] - 1)
        logits = model(token_ids[:, start:end], past_key_values=cache, use_cache=True).logits
        targets = token_ids[:, start + 1 : end + 1]
        losses.append(torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none"))
    return torch.cat(losses, dim=1).double().mean(dim=1)


# ByMask makes a cache policy from a function that returns a mask of the slots that stay.
newest_64 = ByMask(64, stays=lambda slots: window_keep(slots.position.long(), 64))
with evicting(pruned_model, newest_64) as cache:
    by_hand = continued_losses(pruned_model, evaluation, cache)
print("loss of four windows:", *(f"{loss:.3f}" for loss in by_hand))

# %% [markdown]
# Now the same recipe as data. In the course a recipe is a few lines of **JSON**: the parts, and the settings of each
# part. `build` makes the model from it, and each part can say in one sentence what it does.

# %%
# The pattern is a sparsity here; "2:4" would keep two of four weights.
recipe = from_json('{"weights": {"method": "Wanda", "pattern": 0.5}, "cache": {"policy": "Window", "budget": 64}}')
print(*recipe.in_words(), sep="\n")
built = build(recipe, short_model, calibration)
with built.running() as cache:
    from_recipe = continued_losses(built.model, evaluation, cache)
n_different = sum(
    int(((p == 0) != (built.model.get_parameter(name) == 0)).sum())
    for name, p in pruned_model.named_parameters()
    if "proj" in name
)
print(f"largest difference of a loss: {(from_recipe - by_hand).abs().max():.4f} nats per token")
print(f"weights that are zero in only one of the two models: {n_different}")

# %% [markdown]
# Both numbers should be zero or nearly zero. (The course stores the kept weights in 16 bits and measures the model that
# comes back from those bytes, which changes a few digits.) From here on we can work with JSON, and you know what it
# stands for. A recipe as data has three advantages: it can be checked field by field, it can be handed in without any
# code, and the same recipe gives the same model on every machine.
#
# **Cost**: two runs of each block for Wanda. SparseGPT inverts one matrix per layer in addition.
#
# ## 3. Bytes: when does it pay to store zeros?
#
# "Half of the weights at 4 bits" sounds like an eighth of 16 bits. But codes need a **quantization grid**, the set of
# values that a rounded weight can take, and something must say where the zeros are. Lesson 10 counts one format, the
# bitmap. Here we compare it with two others. Take a layer with $O$ rows and $I$ columns, of which $K$ weights are not
# zero, with codes of $b$ bits:
#
# - **All codes**: $b$ bits for every weight, and each row fills whole bytes. A zero is a code like any other. This
#   needs a grid that contains 0, which is true for a grid with a whole zero point.
# - **Bitmap**: three things. The codes of the $K$ kept weights in one run take $\lceil K b / 8 \rceil$ bytes. The
#   bitmap has one bit for every weight, and each row fills whole bytes: $O \lceil I / 8 \rceil$. The starts of the rows
#   are $O + 1$ numbers of 4 bytes.
# - **Index**: the same run of codes and the same row starts, and 2 bytes for the column of each kept weight.
#
# All three formats also store the same grids: for each row $\lceil I / g \rceil$ scales of 2 bytes, and as many zero
# points of $b$ bits, which fill whole bytes per row.
#
# For example, a layer of 2 × 64 weights at 4 bits has 64 bytes of codes. The row starts take 12 bytes and the bitmap
# 16. With 40 kept weights, the bitmap format takes 20 + 16 + 12 = 48 bytes instead of 64, each plus the same grids, so
# it pays.

# %% [markdown]
# ### When does it pay to store zeros?
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# How many weights may a layer keep so that the bitmap still takes *fewer* bytes than all codes? And how many with an
# index? One of the arguments does not matter. Which one, and why?


# %% exercise="capstone.bytes"
def most_kept(rows, columns, bits, group):
    """Compute how many weights may be kept so that a format takes fewer bytes than all codes.

    rows, columns: of the layer. bits: of a code and of a zero point: 2, 3, 4 or 8. group: columns
    that share a scale and a zero point; the last group of a row may be shorter.
    Returns (with a bitmap, with an index), two whole numbers. −1 where a format takes as many bytes
    as all codes or more even if no weight is kept.
    """
    ### BEGIN SOLUTION
    left = rows * -(-columns * bits // 8) - 4 * (rows + 1)
    by_bitmap = 8 * (left - rows * -(-columns // 8) - 1) // bits
    by_index = 8 * (left - 1) // (bits + 16)
    return max(by_bitmap, -1), max(by_index, -1)
    ### END SOLUTION


# %%
check("capstone.bytes", most_kept)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# The grids are in all formats, so they cancel, and `group` does not matter. The codes of the kept weights must fit
# into the rest, $R = O \lceil I b / 8 \rceil - O \lceil I / 8 \rceil - 4 (O + 1)$ bytes with a bitmap. "Fewer" means
# at most $R - 1$ bytes, so $\lceil K b / 8 \rceil \le R - 1$, and the largest such $K$ is $\lfloor 8 (R - 1) / b
# \rfloor$. With an index there is no bitmap, and each weight takes $b + 16$ bits in all.
#
# In the example $R = 64 - 16 - 12 = 36$, so 35 bytes remain for codes of half a byte: $K = 70$ of 128 weights.
#
# </details>
#
# Which sparsity do the layers of our model need? Here is your answer for one matrix of the MLP, next to the bytes of a
# real layer: we prune its smallest weights and count.

# %%
up_proj = model.model.layers[12].mlp.up_proj
weight = up_proj.weight.detach()
(rows, columns), most = weight.shape, mine("capstone.bytes", most_kept)
for bits in (2, 3, 4, 8):
    by_bitmap, by_index = (100 - 100 * n_kept / weight.numel() for n_kept in most(rows, columns, bits, 64))
    print(f"{bits} bits: a bitmap pays above {by_bitmap:.1f} % zeros, an index above {by_index:.1f} %")

sparsities = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
order, bits_by_way = weight.abs().flatten().argsort(), {4: {}, 2: {}}
for sparsity in sparsities:
    pruned = weight.flatten().index_fill(0, order[: round(sparsity * len(order))], 0.0).reshape(weight.shape)
    for bits, sizes in bits_by_way.items():
        for way, n_bytes in methods.ways_to_store(pruned, bits, 64).items():
            sizes.setdefault(way, []).append(8 * n_bytes / weight.numel())
plots.bits_per_weight(bits_by_way, sparsities)

# %% [markdown]
# Find the crossing of the dark line (all codes) with the line of the bitmap in each panel. At 4 bits it is at 26 %
# zeros, at 2 bits at 53 %: these are your numbers. A bitmap costs one bit per weight and saves $b$ bits per zero, so it
# pays above a sparsity of about $1/b$; the row starts add the rest. The index pays only for very sparse layers: at 2
# bits above 89 %.
#
# In other words, the fewer bits a code has, the less a zero saves. How does this compare with the sizes that papers
# report?

# %%
display(tables.published_sizes(recipes))
print(claims.TIMES_SMALLER.judge())

# %% [markdown]
# Compare the columns *published* and *ours*. Scissorhands reports 20 times less memory for a fifth of the tokens in 4
# bits, which is the product $5 \cdot 4$. We count 11.9 times with H2O and 16.5 times with Scissorhands itself, because
# scales, positions and a policy's scores are stored too. The last two rows are half of the weights in 4 bits instead of
# 16: the product $2 \cdot 4$ promises 8 times. In the blocks 4.8 times remain, and 2.7 times in the whole model, whose
# embedding was not compressed.
#
# ## 4. Optional: pruned and rounded
#
# There are two kinds of quantization grids. Section 3 counts a scale and a zero point. The zero point is a whole
# number, so 0 is always a value of the grid. The weights of our model came from a file with the other kind of grid,
# Q4_1: in each group of 32 weights there are a smallest value and a step, and each weight is a code of 4 bits. Such a
# grid runs from the smallest to the largest weight of its group, and in general 0 is not one of its values. With a
# bitmap this is no problem, because no code has to represent a zero.
#
# $$ \text{step} = \frac{\max - \min}{2^b - 1}, \qquad
# \hat w = \min + \text{step} \cdot \mathrm{round}\left(\frac{w - \min}{\text{step}}\right) $$
#
# Both ends, $\min$ and $\max$, are taken over the *kept* weights of the group. For example, take the kept weights 1,
# 4.5 and 7 with 2 bits. The step is $(7 - 1) / 3 = 2$, the grid is 1, 3, 5, 7, and 4.5 becomes 5.

# %% [markdown]
# ### A mask and a grid
# **Exercise** · difficulty 4 of 5 · 12 minutes · 4 points
#
# The mask is Wanda's: in each row, keep the weights with the largest $|w_{ij}| \cdot \lVert x_j \rVert$. Prune and
# round a layer with it. You have to decide which weights are kept, where each grid ends, and when pruned weights become
# zero. The order of these decisions matters: for example, scores that are computed after rounding keep other weights.
# And what is the step of a group with a single kept weight?


# %% exercise="capstone.combine"
def prune_and_round(weight, norm, n_kept, bits, group):
    """Prune and round a layer.

    weight: (O, I). norm: (I,), above 0, of each input. In each row, the n_kept weights with the
    largest |w| · norm are kept, judged by the weights as they are given; all others become 0.
    group: columns that share a grid; it divides I. A grid has 2**bits values, evenly spaced from
    the smallest to the largest kept weight of its group and row; each kept weight becomes the
    nearest value. A single kept weight is its grid's only value. A group without kept weights is 0.
    Equal scores and weights halfway between two values do not occur.
    Returns (O, I).
    """
    ### BEGIN SOLUTION
    score = weight.abs() * norm
    keep = torch.zeros_like(score, dtype=torch.bool).scatter(1, score.topk(n_kept).indices, True)
    low = weight.masked_fill(~keep, torch.inf).unflatten(1, (-1, group)).amin(2, keepdim=True)
    high = weight.masked_fill(~keep, -torch.inf).unflatten(1, (-1, group)).amax(2, keepdim=True)
    step = (high - low) / (2**bits - 1)
    code = torch.where(step > 0, (weight.unflatten(1, (-1, group)) - low) / step, 0).round()
    return torch.where(keep, (low + code * step).flatten(1), 0)
    ### END SOLUTION


# %%
check("capstone.combine", prune_and_round)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The scores use the weights as they are given, so the mask comes first. Both ends of a grid are taken over the kept
# weights only. If a group has a single kept weight, both ends are equal and the step is 0: the weight stays as it is,
# and dividing by the step would give NaN. At the end the mask is applied again, because the grid need not contain 0.
#
# </details>
#
# What happens if you make one of these decisions elsewhere? The next cell makes four versions of the same layer, with
# half of its weights pruned and the others on 3 bits in groups of 64. It compares their outputs on a text with the
# output of the dense layer, by the relative squared error of lesson 04.

# %%
inputs_by_layer, prune_round = [], mine("capstone.combine", prune_and_round)
handle = up_proj.register_forward_pre_hook(lambda layer, arguments: inputs_by_layer.append(arguments[0][0]))
with torch.no_grad():
    model.model(calibration[:1], use_cache=False)
handle.remove()
inputs, half, ones = inputs_by_layer[0], columns // 2, torch.ones(columns)
norm = inputs.norm(dim=0)
keep = torch.zeros_like(weight).scatter(1, (weight.abs() * norm).topk(half).indices, 1.0)
rounded = prune_round(weight, ones, columns, 3, 64)  # nothing pruned
keep_after_rounding = torch.zeros_like(weight).scatter(1, (rounded.abs() * norm).topk(half).indices, 1.0)
versions = {
    "mask, then a grid\nof the kept weights": prune_round(weight, norm, half, 3, 64),
    "mask, and a grid\nof all weights": rounded * keep,
    "rounded first,\nthen pruned": rounded * keep_after_rounding,
    "pruned, and zeros\nrounded too": prune_round(weight * keep, ones, columns, 3, 64),
}
energy = (inputs @ weight.T).square().sum()
errors = {name: float((inputs @ (weight - other).T).square().sum() / energy) for name, other in versions.items()}
plots.output_errors(errors)

# %% [markdown]
# The first bar is the version of the exercise. A grid of all weights (second bar) has the same error, because at 50 %
# sparsity the ends of a group are mostly among the kept weights. It would differ for a mask that prunes the smallest or
# the largest weight of many groups. If we round first, the mask is made from rounded scores, and the error is 1.16
# times as large. The last bar is the largest, 1.21 times the first: rounded zeros become the nearest value of a grid
# that has no 0, so every pruned weight comes back as a small error.
#
# A layer is not a model. SparseGPT and GPTQ (lesson 03) update the remaining weights to make up for what they change,
# so the second method can repair the damage of the first one. Does the order matter then? We measured the whole model:

# %%
display(plots.orders())
print(claims.ZEROS_FIRST.judge())

# %% [markdown]
# Each panel is one text. The first two rows show the loss of *rounding first* minus the loss of *pruning first*: right
# of zero, pruning first is better. It is better for both methods and on both texts: with Wanda by 0.4 nats, with
# SparseGPT by 0.1 to 0.2. A likely reason is that GPTQ can make up for pruned weights, while pruning after rounding
# removes weights that GPTQ had adjusted. (SparseGPT after GPTQ also moves the kept weights off their grid. We do not
# round them once more, so the loss of that order is a lower bound.)
#
# The last row shows the loss of one after the other minus the loss of SparseGPT's joint sweep, which prunes and rounds
# column by column. The sweep is better by 0.1 nats on Wikipedia, and the same on BoolQ within the error.
#
# ## 5. How large is the loss increase, and could it be chance?
#
# Some windows of text are difficult for every model. The perplexity of a few windows says more about these windows than
# about the model. But two models can read the *same* windows, and the difficulty of a window cancels in the difference:

# %%
plots.paired_windows()

# %% [markdown]
# Each line is one window, with the dense model on the left and the pruned one on the right. The windows differ by
# nearly a nat, but all lines rise by a similar amount. So the mean difference, +0.74 nats, has a standard error of only
# 0.07. If we ignored the pairs, the error would be 0.17.
#
# Let $d_w$ be the difference in window $w$, with mean $\bar d$ and standard deviation $s$. The ratio of the two
# perplexities and an interval of two standard errors are
#
# $$ r = e^{\bar d}, \qquad \left[ e^{\bar d - 2 s / \sqrt N},\ e^{\bar d + 2 s / \sqrt N} \right] . $$

# %% [markdown]
# ### How many windows are enough?
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# Now plan an experiment. A small pilot has measured the losses of two models on the same windows. How many windows do
# you need, those of the pilot included, so that each end of the interval is at most a factor $f$ away from the ratio?
# For example, $f = 1.05$ asks for a ratio that is known to within about 5 %. And how many windows would you need for
# *each* model if the two models read *different* windows? Assume that the pilot shows the true spread.


# %% exercise="capstone.ratio"
def windows_needed(losses, dense, factor):
    """Compute how many windows determine the ratio of two perplexities to within a factor.

    losses, dense: (N,), of a model and of the dense one, in nats per token, for the same N windows,
    N ≥ 2. factor: above 1; each end of the interval of two standard errors may be at most this
    factor away from the ratio.
    Returns (as pairs, independently), two whole numbers, both at least 2, since one window has no
    standard error. Independently means that each model reads that many windows of its own.
    Variances have N − 1 in the denominator.
    """
    ### BEGIN SOLUTION
    losses, dense = losses.double(), dense.double()
    variances = torch.stack([(losses - dense).var(), losses.var() + dense.var()])
    n = (4 * variances / torch.tensor(factor).double().log() ** 2).ceil().clamp(min=2)
    return tuple(int(each) for each in n)
    ### END SOLUTION


# %%
check("capstone.ratio", windows_needed)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# The upper end is $e^{2 s / \sqrt n}$ times the ratio, and the lower end is the ratio divided by the same number. So
# $2 s / \sqrt n \le \log f$, that is, $n \ge (2 s / \log f)^2$, rounded up. As pairs, $s^2$ is the variance of the
# differences. For independent windows the variances of both models add up.
#
# </details>
#
# The pilot is the figure above: eight windows, the dense model, and the model with half of its weights pruned.

# %%
dense_row, pruned_row = (estimates.find(recipes, name) for name in ("dense", "SparseGPT 50.0 %"))
losses, dense_losses = (torch.tensor(row["wikipedia"]) for row in (pruned_row, dense_row))
needed = mine("capstone.ratio", windows_needed)
for factor in (1.1, 1.05, 1.02):
    paired, independent = needed(losses, dense_losses, factor)
    print(f"to within a factor of {factor}: {paired} windows as pairs, {independent} independent ones for each model")

# %% [markdown]
# Pairing saves a factor of nearly seven here. It also shows what is within reach: to know the ratio to within 2 %, you
# would have to read 348 windows. With eight windows and an error of 0.07, as in this pilot, a difference of less than
# 0.14 nats is undecided. Between two similar recipes the error can be smaller.
#
# Next we apply this to a whole recipe, which stores fewer bits: codes of 4 bits with one grid per row. `build` makes it
# within seconds.

# %%
built = build(from_json('{"weights": {"bits": 4, "rounding": "nearest"}}'), model, calibration)
own = live.measure("mine", built, tokenizer)  # bytes, and the losses of two windows of each text
for domain in ("wikipedia", "boolq"):
    differences = torch.tensor(own[domain]) - torch.tensor(dense_row[domain][:2])
    mean, error = differences.mean(), differences.std() / len(differences) ** 0.5
    low, high = (mean - 2 * error).exp(), (mean + 2 * error).exp()
    print(f"{domain}: {mean.exp():.2f} times the perplexity of the dense model, {low:.2f} to {high:.2f}")
tables.own_recipe(own, dense_row)

# %% [markdown]
# The table says where the bytes are: the embedding, which was not rounded, takes more than half of the weights' bytes.
# With two windows the interval is wide, and even its width is hardly known: the standard error is computed from two
# numbers. Take it as a hint, and read more windows before you decide.
#
# ## 6. Which part costs how much?
#
# A part can be cheap alone and expensive together with the others. So what is "its" cost? Here is the smallest example,
# with our own numbers for Wikipedia. Pruning alone costs 0.742 nats, rounding to 3 bits alone 0.978, and both together
# 1.448. This is less than the sum, 1.720. Now add the parts one after the other, in both orders:
#
# | order | pruning costs | rounding costs | together |
# |:--|--:|--:|--:|
# | pruning, then rounding | 0.742 | 1.448 − 0.742 = 0.707 | 1.448 |
# | rounding, then pruning | 1.448 − 0.978 = 0.470 | 0.978 | 1.448 |
# | **mean** | **0.606** | **0.842** | **1.448** |
#
# (All numbers are computed from unrounded losses, so the last digit of a difference can be off by one.) The cost of a
# part depends on the order, but the mean over both orders treats the parts alike, and the means add up to the total.
# This mean is the **Shapley value** (1953), which comes from game theory: it divides a bill fairly among the guests.
# The cell below computes the table from the stored losses.

# %%
values = estimates.values_of(estimates.parts_results(), "wikipedia")  # losses by set of parts
loss = {parts: float(each.mean()) for parts, each in values.items()}
nothing, pruning, rounding, both = (frozenset(parts) for parts in ((), ("prune",), ("round",), ("prune", "round")))
pruning_costs = loss[pruning] - loss[nothing], loss[both] - loss[rounding]  # added first, added last
rounding_costs = loss[rounding] - loss[nothing], loss[both] - loss[pruning]
for name, costs in {"pruning": pruning_costs, "rounding": rounding_costs}.items():
    print(f"{name}: {costs[0]:.3f} added first, {costs[1]:.3f} added last, Shapley value {sum(costs) / 2:.3f}")
print(f"both together: {loss[both] - loss[nothing]:.3f}")

# %% [markdown]
# With five parts there are 120 orders but only 32 sets of parts. So 32 models are enough to compute the Shapley values
# exactly. All sets with a prompt use the same one, which was trained on the pruned and rounded model. With $v(S)$ for
# the loss of the model with the parts $S$, and $B_i$ for the parts that come before part $i$,
#
# $$ \varphi_i = \frac{1}{120} \sum_{\text{orders}} \left( v(B_i \cup \{i\}) - v(B_i) \right), \qquad
# \sum_i \varphi_i = v(\text{all}) - v(\text{none}) . $$

# %%
display(plots.part_costs())
print(claims.LAST_MINUS_ALONE.judge())

# %% [markdown]
# The bars are the Shapley values, for Wikipedia on the left and for BoolQ on the right. Rounding to 3 bits is the most
# expensive part on both texts, about 1 nat of 2.1 to 2.2. Compare the markers *alone* and *added last*. Pruning is
# cheaper when it is added last. The cache and the skipped neurons are more expensive when they are added last, as if a
# damaged model were more sensitive. The prompt does nothing for the dense model and gains 0.1 to 0.2 nats when it is
# added last, to a model with the pruned and rounded weights that it was trained on. (In lesson 10 the dense model gains
# from a prompt that was trained on the dense model.) Which pairs are responsible?

# %%
plots.interactions()

# %% [markdown]
# Each field shows by how much two parts cost more together than the sum of their costs alone. The hatched field at the
# top is pruning with rounding, at −0.27 and −0.20 nats. A likely reason is that SparseGPT does both in one sweep, so
# that each update also makes up for the other damage. The dark fields are rounding with the cache, and rounding with
# skipped neurons: these parts hurt each other. In most white fields the difference is smaller than its error. (On
# Wikipedia, skipped neurons with the prompt are hatched too, at −0.02 nats.) A white field does not prove that two
# parts are independent.
#
# ## 7. The Pareto front
#
# Which of 89 recipes would you choose? A recipe can be forgotten if another recipe takes no more bytes and has a lower
# loss. The recipes that remain form the **Pareto front**. Two details need care.
#
# - A loss has an error. So recipe $i$ **beats** recipe $j$ only if the *paired* difference of their losses is more than
#   two standard errors.
# - Two models can have exactly the same loss in every window, for example if a part has no effect on the text. Then the
#   smaller one beats the other. If they also have the same size, both remain.
#
# For example, take three models of 100, 90 and 80 MB. Let the paired differences of the second and the third from the
# first be 0.00 ± 0.05 and 0.20 ± 0.05 nats. The second takes fewer bytes, but it does not beat the first, because its
# loss is not clearly lower. So all three are on the front. In other words, this front is generous: it drops only models
# that are clearly beaten. If you cannot tell two models apart, take the smaller one.

# %% [markdown]
# ### Which models are on the front?
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Return which models no other model beats, by the rule above. Compare all pairs. It is not enough to sort by cost and
# compare each model with the best so far: its loss may vary so much from window to window that it beats fewer models
# than a slightly worse one does.


# %% exercise="capstone.front"
def front(cost, losses):
    """Find the models that no other model beats.

    cost: (M,), bytes; less is better. losses: (M, N), of N windows, at least two, the same for all
    models; less is better. i beats j if cost[i] <= cost[j] and the mean over windows of
    losses[j] - losses[i] is more than 2 of its standard errors (2, not 1.96). i also beats j if
    their losses are exactly equal in every window and cost[i] < cost[j].
    Returns (M,), bool, True where a model is on the front.
    """
    ### BEGIN SOLUTION
    more = losses.double()[None] - losses.double()[:, None]  # [i, j]: by how much j has a higher loss
    error = more.std(dim=2) / losses.shape[1] ** 0.5
    no_more_bytes, fewer_bytes = cost[:, None] <= cost, cost[:, None] < cost
    clearly = no_more_bytes & (more.mean(dim=2) > 2 * error)
    equal = (more == 0).all(dim=2) & fewer_bytes
    return ~(clearly | equal).any(dim=0)
    ### END SOLUTION


# %%
check("capstone.front", front)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# A table of all pairs $(i, j)$ holds the differences of their losses in every window. Mean and standard error over the
# windows say whether $i$ clearly beats $j$, provided that $i$ takes no more bytes. The second rule adds pairs whose
# differences are all 0, where $i$ takes fewer bytes. A model is on the front if no $i$ beats it.
#
# </details>
#
# The next cell uses your function on all recipes of this lesson. In the figure below it, choose the text and the
# budget. The star is the recipe that you measured in section 5.

# %%
cost = torch.tensor([row["stored"] + row["cache"] for row in recipes])
on_front = mine("capstone.front", front)(cost, torch.tensor([row["wikipedia"] for row in recipes]))
print(f"{int(on_front.sum())} of {len(recipes)} recipes are on the front")
for place in [place for place in cost.argsort().tolist() if on_front[place]][:8]:
    print(f"  {100 * cost[place] / cost.max():.0f} %", recipes[place]["name"])

print(claims.BEST_WITHIN.judge())

# %%
widgets.pareto_front(recipes, [own])

# %% [markdown]
# The two panels show different costs. **Bytes in memory** decide whether a model fits on a machine. **Bytes read per
# token** decide how fast it can be at best, since every token has to wait for them. The front is steep on the left:
# below 40 % of the bytes the loss rises quickly. On its right end, from 92 % of the bytes on, only the cache is
# smaller. In the left panel no recipe between 46 % and 92 % is on the front. At half of the bytes the best recipe costs
# 0.52 nats. (It was chosen on the windows that measure it, so this number may be a little too low.)

# %% [markdown]
# ## 8. The challenge
#
# **Find the recipe with the lowest loss that keeps to a third of the bytes in memory and a quarter of the bytes read
# per token.** Both are fractions of the dense model's bytes, weights and a cache of 1,024 tokens together.
#
# You hand in data: a recipe, and at most 64 kB of numbers if it has a prompt of its own. The grader builds the model
# with its own library, counts the bytes itself, and measures the loss on windows of two texts that are chosen at random
# after you hand in. No number of yours is used.
#
# **How it is scored.** Two models set the scale in each of the two texts: a *uniform* recipe (Wanda at 50 %) and the
# course's own recipe. The score is the fraction of the way from the uniform loss $L_u$ to the loss of the course's
# recipe $L_c$ that your loss $L$ covers:
#
# $$ \text{points} = 20 \cdot \min_{\text{texts}} \frac{L_u - L}{L_u - L_c}, \quad \text{limited to } 0 \ldots 20 . $$
#
# For example, with these made-up losses:
#
# | nats per token | uniform | course's | yours | fraction of the way |
# |:--|--:|--:|--:|--:|
# | Wikipedia | 3.90 | 3.30 | 3.60 | 0.30 / 0.60 = 0.50 |
# | BoolQ | 3.80 | 3.40 | 3.55 | 0.25 / 0.40 = 0.625 |
#
# The smaller fraction counts, so this recipe gets $20 \cdot 0.50 = 10$ points. It does not help to be good on one text
# only. A recipe that exceeds the budget gets 0 points, however low its loss is, and one that is better than the
# course's recipe gets 20.
#
# These are the most important fields of a recipe. Leave out parts and fields that you do not want.
#
# | part | field | values | lesson |
# |:--|:--|:--|:--|
# | `embedding` | `bits` | 2, 3, 4 or 8 | |
# | | `group` | columns that share a grid, 16 or more; without it, each row has one grid | |
# | `weights` | `method` | `Magnitude`, `Wanda`, `SparseGPT`, `Refit`, `SparseSwaps`; or left out | 03, 04 |
# | | `pattern` | a sparsity up to 0.95, or `"2:4"` | 01 |
# | | `allocation` | of the sparsity over the blocks: `Uniform`, `OWL`, `OneRanking` | 04 |
# | | `bits`, `group` | as for the embedding | 03 |
# | | `rounding` | `gptq` or `nearest`; none with SparseGPT, which rounds as it prunes | 03 |
# | `neurons` | `selector` | `CATS`, `LowRank`, `Static` and others | 09 |
# | | `density` | the fraction of neurons that a token uses | 09 |
# | `cache` | `policy` | `Full`, `Window`, `StreamingLLM`, `H2O`, `Scissorhands`, `SnapKV`, `TOVA` and others | 07 |
# | | `budget` | slots per head, such as 300, or a fraction of the tokens, such as 0.2 | 07 |
# | | `bits` | 4 or 8; without it, 16 | 07 |
# | `prompt` | `file` | a learned prompt next to the recipe | 10 |
#
# For example, this recipe has all five kinds of parts of section 1:
#
# ```json
# {"weights": {"method": "SparseGPT", "pattern": 0.5, "bits": 3, "group": 64},
#  "cache": {"policy": "H2O", "budget": 0.2, "recent": 16, "bits": 4},
#  "neurons": {"selector": "CATS", "density": 0.5},
#  "prompt": {"file": "prompt.safetensors"}}
# ```
#
# If a name or value is wrong, the message lists those that are possible. Each part is a file in
# `course_lib/compose/parts/`, which describes all fields.
#
# Below you can try up to eight recipes at once on two windows of 256 tokens, with a smaller calibration set, so that
# each takes some twenty seconds. Two windows show gross mistakes; do not choose between close recipes with them. One
# recipe is there already. Change it, and add others. (A cache with room for 256 tokens evicts nothing in such a short
# window. Measure it in full, as described below.)

# %%
my_recipes = {
    "3 bits": {
        "embedding": {"bits": 4, "group": 32},
        "weights": {"bits": 3, "group": 64, "rounding": "nearest"},
        "cache": {"policy": "Full", "bits": 4},
    },
}
tries = challenge.try_recipes(my_recipes, model, tokenizer)
display(plots.tries(tries))
tables.tries(tries)

# %% [markdown]
# The dotted lines are the budget. A filled dot keeps to both limits. Which part would you change first? Section 6 says
# what parts cost, and section 7 which combinations are on the front.
#
# When you are content, write the folder to hand in, and measure your recipe as the grader does, on more windows and
# both texts:
#
# ```python
# challenge.hand_in(my_recipes["3 bits"], "my_challenge")
# ```
#
# Then run `course challenge my_challenge/recipe.json` in a terminal.
#
# **Your own number is not the grade.** `course challenge` reads four windows of each text. The grader reads 32, from
# the same articles, chosen by a seed that is set later. The loss increase changes with the windows by about its
# standard error. The scale of the points changes too, since the grader measures both models of the scale on its own
# windows. And another processor adds numbers in another order, so that a weight can be rounded to the neighbouring
# value, or another token evicted. If two of your recipes differ by less than their standard errors, they may change
# places.
#
# ## 9. Cost, and when it does not pay off
#
# Bytes are not seconds. Fewer bytes save time only if the processor really skips what is not needed, and if the extra
# work costs less than it saves:

# %%
display(plots.bytes_and_time())
print(claims.FEWER_BYTES_LESS_TIME.judge())

# %% [markdown]
# The horizontal axis shows the bytes that are read, the vertical axis the speedup on a CPU. On the solid line the time
# falls with the bytes: half of the bytes take half of the time. Close to the line are structured pruning and evicted
# tokens: both leave smaller dense tensors. Far below it are formats that must be unpacked before each product (bitmaps,
# 2:4, 3 bits as stored); they take 23 to 68 times as long as the dense computation. Chosen neurons and CSR, which
# stores a column index for each value, are between the two. CSR is faster than dense at 60 % of the bytes and below,
# chosen neurons at about a third and below.
#
# The next table shows whole recipes as the course runs them, after a text of 1,024 tokens, and two drafts of
# speculative decoding (lesson 11).

# %%
tables.timed_recipes()

# %% [markdown]
# Compare *speedup* with *promised*. Where does the promised time go?
#
# - **Pruned and rounded weights** are unpacked once and kept as dense floats (1.02 times instead of 2.48). Unpacked for
#   each product, they take 23 times as long as the dense model.
# - **H2O** adds up attention scores and sorts slots for each token, which a cache of 1,024 tokens cannot pay for (0.58
#   times). StreamingLLM only drops tokens, but a cache is a small part of the bytes at this length.
#   Where the cache dominates, H2O pays: on an H200 (lesson 07) it decodes 2.03 times as fast as the full cache, with 32
#   sequences of 8,192 tokens.
# - **CATS** computes all gates in order to choose neurons, and copies rows (0.77 times).
# - **Drafts** pay if they cost nothing, like prompt lookup. A draft whose passes take as long as the model's cannot
#   pay.
#
# What should you try first? It depends on what is scarce:
#
# - **Bytes in memory**: fewer bits first. Then zeros, which save bytes only above a sparsity of about $1/b$ (section
#   3). A smaller cache saves almost nothing at 100 tokens, but most of the bytes at 100,000.
# - **Time**: structured pruning and evicted tokens first, since they leave smaller dense tensors. Fewer bits save time
#   only with a kernel that computes with codes as they are stored.
# - **Time for a single text**: also chosen neurons and drafts. Chosen neurons save nothing in a large batch, where
#   other tokens need other neurons. Drafts leave the text as it is, and clearly pay if they cost about a tenth of the
#   model or less.
#
# This is the end of the core path. Go on with the optional sections, or jump to *To take home*.
#
# ## 10. Optional: the claims and their verdicts
#
# Every claim of the lectures and papers that this course uses has a record: what is claimed, how a lesson measures it,
# and a verdict from an effect and its error. Choose a verdict below; [the page of claims](../docs/claims.md) has them
# all. Look for a claim that you believed and that does not hold here. What would change the verdict?

# %%
all_claims()

# %% [markdown]
# ## 11. Optional: a budget for all parts
#
# Each part of a model could be stored at several sizes. How should a budget of bytes be divided among the parts? Start
# with the smallest size of every part. Then ask again and again: which step to the next larger size saves most loss
# *per byte*?
#
# For example, one step saves 0.5 nats for 20 bytes, that is, 0.025 per byte, and another one 0.25 nats for 5 bytes,
# that is, 0.05 per byte. The second step is taken first, although it saves less in total. Suppose that each step of a
# part saves less per byte than the step before it. Then every choice on the way is the best one for the bytes that it
# takes (Fox, 1966), until the first step that does not fit. After that, smaller steps use up the rest, and this is only
# a good guess.

# %% [markdown]
# ### Where the next byte goes
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# Return the level of each part after this procedure. Compute the savings again after every step, since each step
# changes what the next step of its part saves. If the best step does not fit, go on: a smaller one may fit.


# %% exercise="capstone.split"
def split(sizes, losses, budget):
    """Choose the level of each part under a budget of bytes.

    sizes: (P, L), whole numbers, the bytes of each of P parts at each of L levels, from the
    smallest to the largest; each level takes at least one byte more than the one before. losses:
    (P, L), the loss increase from that part at that level; it falls along a row. Start with every
    part at level 0, which fits. A step takes one part up one level. As long as a step fits, so that
    all parts together take at most budget bytes, take the one of those that fit that saves most
    loss per additional byte. No two of them save the same.
    Returns (P,), whole numbers.
    """
    ### BEGIN SOLUTION
    levels = [0] * len(sizes)
    left = budget - int(sizes[:, 0].sum())
    while True:
        steps = []
        for part, level in enumerate(levels):
            if level + 1 < sizes.shape[1]:
                more = int(sizes[part, level + 1] - sizes[part, level])
                saved = float(losses[part, level]) - float(losses[part, level + 1])
                if more <= left:
                    steps.append((saved / more, part, more))
        if not steps:
            return torch.tensor(levels)
        _, best, more = max(steps)
        levels[best], left = levels[best] + 1, left - more
    ### END SOLUTION


# %%
check("capstone.split", split)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# A loop keeps the level of each part and the bytes that are left. In each round it lists the next step of every part
# that is not at its highest level and that fits, and takes the step with the largest saving divided by additional
# bytes. It ends when the list is empty, not when the best step does not fit.
#
# </details>
#
# Three parts of the real model, the embedding, the first five blocks and the last five, can each be stored on three
# grids: 3 bits in groups of 64, 4 bits with one grid per row, and 4 bits in groups of 64. We measure the loss with one
# part rounded at a time, on a window of calibration text. Your split may take as many bytes as 4 bits with one grid per
# row for all three parts, and is compared with that on other text.

# %%
curves, grids = live.level_curves(model, calibration[:1]), list(live.LEVELS)
levels = mine("capstone.split", split)(curves.sizes, curves.losses, int(curves.sizes[:, 1].sum()))
by_split = live.losses_at(model, evaluation, dict(zip(curves.names, map(int, levels), strict=True)))
uniform = live.losses_at(model, evaluation, dict.fromkeys(curves.names, 1))
lower, error = (uniform - by_split).mean(), (uniform - by_split).std() / len(uniform) ** 0.5
print(f"the split has a lower loss than {grids[1]} for all parts by {lower:.3f} ± {error:.3f} nats per token")
tables.levels(curves.names, grids, curves.sizes, curves.losses, levels)

# %% [markdown]
# The embedding is the LM head as well. It holds a fifth of all weights, and every token reads it. The losses of single
# parts are added up here as if they were independent. Section 6 has shown that they are not, so this split is a guess
# that has to be measured, as the cell does.
#
# ## 12. Optional: the small model drafts for the large one
#
# A compressed model usually has a higher loss than the dense one. But in **speculative decoding** (lesson 11; Leviathan
# and others, 2023) it does not have to write worse text: it drafts $k$ tokens, and the dense model checks them in one
# pass. You know the rule from lesson 11. With $q$ for the distribution of the draft and $p$ for that of the dense
# model, a drafted token $x$ is accepted with probability $\min(1, p(x) / q(x))$. At the first rejection the pass ends
# with another token, sampled from the residual distribution: $p - q$ with negative values set to 0, divided by its sum.
# If all drafted tokens are accepted, one more is sampled from $p$ at the next place.
#
# In lesson 11 you decided which tokens are accepted. New here are the sampling, the end of the text, and the cost.

# %% [markdown]
# ### A whole drafted block
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# To sample a token from a distribution with a uniform random number in [0, 1), add up its probabilities in order and
# take the first token at which the sum is above the random number.


# %% exercise="capstone.speculate"
def block(drafted, q, p, uniform, stop):
    """Compute the tokens that one pass adds to a text: 1 to k + 1 of them.

    drafted: (k,), token ids. q: (k, V), the distributions that they were sampled from. p:
    (k + 1, V), the model's at the same places and at the next one. uniform: (k + 1,), random
    numbers in [0, 1). Token x at place i is accepted if uniform[i] < p[i, x] / q[i, x]. The first
    one that is not is replaced and ends the pass; if all are accepted, one token is added. The
    replacement or addition is sampled with uniform[k], the last number. stop: the token that ends a
    text. It belongs to the text, and tokens after it do not.
    Returns whole numbers.
    """
    ### BEGIN SOLUTION
    tokens, weights = [], p[-1]
    for i, x in enumerate(drafted.tolist()):
        if uniform[i] * q[i, x] >= p[i, x]:
            weights = torch.relu(p[i] - q[i])
            break
        tokens.append(x)
    reached = weights.double().cumsum(dim=0) / weights.double().sum()
    tokens.append(int((reached <= uniform[-1]).sum().clamp(max=len(reached) - 1)))
    return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens
    ### END SOLUTION


# %%
check("capstone.speculate", block)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Go through the drafted tokens until one is rejected. The last token comes from the residual distribution at that
# place, or from the last row of $p$ if no token was rejected. Instead of normalizing the residual, you can compare
# cumulative sums with the random number times the total. At the end, cut the text after the first stop token, which
# may be a drafted token or the last one.
#
# </details>
#
# The recipe of section 5 drafts for the dense model. For comparison, prompt lookup copies from the text so far and
# costs nothing. The task is to repeat a short text.

# %%
ids, one_pass = live.repetition_task(tokenizer), mine("capstone.speculate", block)
with drafting(built) as small:
    for name, draft in {"the recipe": small, "prompt lookup": live.prompt_lookup(model)}.items():
        new, passes = live.write(model, ids, 16, draft, one_pass, k=4, temperature=0.5, stop=tokenizer.eos_token_id)
        print(f"{name}: {len(new)} tokens in {len(passes)} passes of the dense model")
        print("   ", tokenizer.decode(new).replace("\n", " "))

# %% [markdown]
# Fewer passes are not yet fewer bytes. If each drafted token is accepted with probability $\alpha$, independently of
# the others, a pass adds
#
# $$ 1 + \alpha + \dots + \alpha^k = \frac{1 - \alpha^{k+1}}{1 - \alpha} $$
#
# tokens on average (equation 1 of the paper), and the draft is read $k$ times for it.

# %% [markdown]
# ### What a draft is worth
# **Exercise** · difficulty 2 of 5 · 7 minutes · 2 points
#
# The model checks the newest token of the text and the $k$ drafted ones in a single pass, which costs a little more
# than a pass over the newest token alone. By how much does a token become cheaper? The answer has the unit of the
# costs, seconds or bytes.


# %% exercise="capstone.gain"
def gain(acceptance, k, model, further, draft):
    """Compute the tokens per pass, and a token's cost without a draft minus its cost with one.

    acceptance: the probability that a drafted token is accepted, 0 to 1, both possible. k: drafted
    tokens per pass, 1 or more. model: the cost of a pass of the model over one token, which is also
    a token's cost without a draft. A pass that checks k drafted tokens reads k + 1 tokens. further:
    what each token after the first adds to its cost. draft: the cost of one drafted token. All
    costs have the same unit.
    Returns two numbers; the second one is below 0 if the draft does not pay.
    """
    ### BEGIN SOLUTION
    tokens = sum(acceptance**i for i in range(k + 1))
    return tokens, model - (model + k * (further + draft)) / tokens
    ### END SOLUTION


# %%
check("capstone.gain", gain)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# A pass costs the model's pass over one token, and $k$ times the cost of a further token and of a drafted one. Divide
# by the tokens per pass to get the cost of a token, and subtract it from the cost without a draft. The fraction in the
# formula is not defined at $\alpha = 1$, where the sum is $k + 1$; so add up the powers.
#
# </details>
#
# We measure both numbers for the recipe: what it reads per token, and how often its tokens are accepted. The acceptance
# rate is the overlap of the two distributions, $\sum_x \min(p(x), q(x))$. Costs are in weight loads of the dense model.

# %%
with torch.no_grad(), built.running():
    p, q = (each(ids[None], use_cache=False).logits[0].double().softmax(dim=-1) for each in (model, built.model))
alpha, read = float(torch.minimum(p, q).sum(dim=-1).mean()), own["read"] / dense_row["read"]
gain_of = mine("capstone.gain", gain)
gain_by_draft = {
    f"{name}, α = {alpha:.2f}": [gain_of(alpha, k, 1.0, 0.0, cost)[1] for k in range(1, 13)]
    for name, cost in {"the recipe": read, "equally good at a tenth of the bytes": 0.1}.items()
}
plots.gains(gain_by_draft)

# %% [markdown]
# A drafted token of the recipe is accepted with a probability of about 0.55 (at temperature 1 and on the text of the
# task, so it need not fit the run above), but each one costs 0.46 loads. So the gain is small for $k = 1$ (0.06 loads
# per token) and negative for every larger $k$. An equally good draft that reads a tenth of the bytes would save 0.35
# loads per token with $k = 3$. How do other drafts do?

# %%
display(tables.drafts())
print(claims.COMPRESSED_DRAFT_BYTES.judge())

# %% [markdown]
# With nearly every draft the dense model needs fewer passes, but only a few drafts save bytes. At temperature 1,
# prompt lookup hardly ever guesses right. In greedy decoding a model of this size repeats itself, and repetitions are
# easy to look up; this tells you more about the text than about the draft. Compressed drafts reach about three tokens
# per pass, but each of their own passes reads a third of the model's bytes or more. The row of the oracle shows an
# upper limit: it chooses neurons with the help of the full computation, so it saves nothing.
#
# ## 13. Optional: an open task
#
# Section 6 measured five parts. Which sixth part would you add, and what does it cost together with the others? There
# is no right answer, and nothing is graded. A part is one file. Start small: copy
# `course_lib/compose/parts/embedding.py`, change the name, the place in the order and the rule, and measure four
# models: without your part, with it alone, with all other parts, and with all. [This
# page](../docs/contributing.md#everything-else) lists the tests of a part.
#
# ## To take home
#
# 1. Count everything that is stored: codes, grids, bitmaps, row starts and the cache.
# 2. Zeros pay only above a sparsity of about $1/b$ for codes of $b$ bits.
# 3. Compare models on the same windows, and give the standard error of the difference. Pairing can save most of the
#    windows.
# 4. The cost of a part depends on what is there already. Report it alone and added last, or as a Shapley value.
# 5. Fewer bytes are less time only with smaller dense tensors or with a kernel that reads the packed format.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>A layer with codes of 2 bits has 40 % zeros. A colleague stores the codes of the other weights and a
# bitmap. What do you tell them?</summary>
#
# That takes $0.6 \cdot 2 + 1 = 2.2$ bits per weight and the row starts, while all codes take 2. With 2 bits, zeros pay
# only above 50 %. They may still save multiplications, but not bytes.
#
# </details>
#
# <details><summary>Two recipes have loss increases of 0.30 ± 0.06 and 0.36 ± 0.06 nats on the same eight windows. Is
# the first one better?</summary>
#
# You cannot tell from these numbers. Both errors belong to the difference from the dense model. What makes a window
# hard for both recipes is in both errors and cancels when you compare the recipes directly. Take the difference window
# by window: its error may be 0.01, or 0.08.
#
# </details>
#
# <details><summary>A draft has an acceptance rate of 0.6 and reads half of the model's bytes. What is the best
# k?</summary>
#
# One, and even that gains little: 1.6 tokens for 1.5 loads are 0.94 loads per token. With $k = 2$ it is 2 loads for
# 1.96 tokens, more than without a draft. At a tenth of the bytes, $k = 3$ would need 1.3 loads for 2.18 tokens, that
# is, 0.60 per token.
#
# </details>
#
# ## Reading
#
# - Leviathan, Kalman, Matias: *Fast Inference from Transformers via Speculative Decoding*, 2023,
#   [arXiv:2211.17192](https://arxiv.org/abs/2211.17192).
# - Frantar, Alistarh: *SparseGPT*, 2023, [arXiv:2301.00774](https://arxiv.org/abs/2301.00774). Section 3.5 is about
#   pruning and rounding in one sweep.
# - Liu and others: *Scissorhands*, 2023, [arXiv:2305.17118](https://arxiv.org/abs/2305.17118). The sizes of section 3.
# - Xu and others: *Compress, Then Prompt*, 2023, [arXiv:2305.11186](https://arxiv.org/abs/2305.11186). Lesson 10.
# - Shapley: *A value for n-person games*, 1953, [doi](https://doi.org/10.7249/P0295).
# - Fox: *Discrete optimization via marginal analysis*, 1966, [doi](https://doi.org/10.1287/mnsc.13.3.210).
