# %% [markdown]
# # 11 · Sparse attention: skip blocks of the prompt, draft the next tokens
#
# A language model spends its time in two phases, and each has its own bottleneck. In the **prefill** it processes all
# tokens of the prompt in parallel, and every query attends to every key before it, so the work grows with the square
# of the length. In **decoding** it writes one token after the other, and loads all of its weights from memory for each.
#
# The core path of this lesson has one method for each phase. **FlexPrefill** (Lai and others, 2025) gives every
# attention head as many blocks of keys as it needs and skips the rest. **Speculative decoding** (Leviathan and others,
# 2023) lets something cheap draft several tokens, and checks all of them in one pass of the model, without changing
# the distribution of the text. You write the parts of both, and then run both as short loops on the real model.
#
# **Afterwards you can** choose a pattern and a number of blocks for each attention head, replace the attention of a
# Hugging Face model by a function of your own, decode with drafted tokens without changing the distribution of the
# text, and say when each method saves time.
#
# **You need** lesson 00, and causal attention with a softmax. Lessons 07 (KV cache) and 08 (attention sinks) help.
# The last part of section 9 compares drafts from lessons 04, 05 and 09; you can read it without them.
#
# **Time**: the core path has two halves, which you can study in two sittings. Sections 1 to 8 (prefill) take about an
# hour and three quarters, section 9 (decoding) another 45 minutes; 48 minutes of both are for exercises. The optional
# parts are independent of each other: the ends of sections 8 and 9 take 20 minutes, and sections 10 to 13 about 75
# minutes, 30 of them for exercises.

# %%
import torch
from transformers import AttentionInterface, DynamicCache

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.baselines import RandomBlocks
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.lines import block_means, last_weights, on_block_diagonals, on_columns
from course_lib.data import corpora, residents
from course_lib.lessons.common import gpu
from course_lib.lessons.sparse_attention import claims, heads, inputs, optional_plots, plots, tables, widgets
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model
from course_lib.workbook import check, mine

# %% [markdown]
# Our model has 30 layers with 9 query heads each. Three query heads share one key-value head. The next cell runs the
# model on a text of 1,024 tokens and stores, for every layer, the queries and keys that enter the attention, after
# their rotation by position.

# %%
model, tokenizer = load_model()
evaluation = corpora.windows("wikipedia", 2, 1024, tokenizer, split="evaluation", seed=0)
qk = heads.heads_of_text(model, evaluation[0])
BLOCK = heads.BLOCK  # 64 tokens
print(f"layer 0: queries {tuple(qk.query[0].shape)}, keys {tuple(qk.keys[0].shape)} as (heads, tokens, channels)")

# %% [markdown]
# ## 1. What do heads attend to?
#
# We cut the text into **blocks** of 64 tokens. (In this lesson a block is always a block of tokens; the blocks of the
# model are called layers.) With 16 blocks of queries and 16 blocks of keys, and because no query attends to later
# keys, 136 pairs of blocks remain. The figure shows three of the 270 heads. The darker a square, the more of the
# attention of its queries goes to its keys. (Weak attention is drawn darker than it is.)

# %%
example_heads = [(17, 4), (2, 2), (11, 6)]  # (layer, query head)
for head in example_heads:
    weights = qk.weights(head)  # (1024, 1024), rows sum to 1
    on_first_token, on_own_token = weights[:, 0].mean(), weights.diagonal().mean()
    print(
        f"{head}: {100 * on_first_token:.0f} % on the first token, {100 * on_own_token:.0f} % on the query's own token"
    )
plots.maps({head: qk.weights(head) for head in example_heads})

# %% [markdown]
# Look at where the dark squares are. Head 4 of layer 17 (left) spends 88 % of its attention on the first token. Such a
# token is called an **attention sink** (lesson 08). Head 2 of layer 2 (middle) attends to the blocks near the diagonal,
# that is, to recent tokens. Head 6 of layer 11 (right) spends 69 % on the query's own token and spreads the rest over
# many blocks. No head needs all blocks for 95 % of its attention (the titles), and no fixed pattern fits all three.
#
# So the question of the first half of this lesson is: **which blocks does each head need, and how can we find out
# without computing all of them?**
#
# ## 2. Two kinds of heads
#
# FlexPrefill computes the attention of the last block of queries exactly, because these queries see (nearly) all keys.
# For the other queries it has to generalise. It knows two ways to do so, and decides head by head.
#
# - A **query-aware** head gets a guess for each block of queries: take the mean query of the block and the mean key of
#   every block of keys, and use their attention.
# - A **vertical-slash** head gets the same columns and diagonals for all blocks of queries: those that the last block
#   of queries attends to.
#
# How do we know whether the guess is good? We test it on the last block, where we know the truth. Let $\bar a$ be the
# guess, a distribution over blocks of keys, and $\hat a$ the true attention, averaged over the last queries and summed
# over the keys of each block. (Following the paper, the hat marks the truth here, and the bar is a reminder of the
# means.) The **Jensen–Shannon divergence** measures how different two distributions $p$ and $q$ are. It compares both
# of them with their mean $m$:
#
# $$ \mathrm{JSD}(p, q) = \tfrac12 \sum_j p_j \log \frac{p_j}{m_j} + \tfrac12 \sum_j q_j \log \frac{q_j}{m_j}, \qquad
# m = \tfrac12 (p + q) . $$
#
# It is 0 for equal distributions and $\log 2 \approx 0.69$ for distributions that share nothing. A head is query-aware
# if $\sqrt{\mathrm{JSD}(\bar a, \hat a)} < \tau$ with $\tau = 0.1$. Since $\sqrt{\mathrm{JSD}}$ is between 0 and 0.83,
# this is strict.

# %%
plots.divergence_pairs()

# %% [markdown]
# Both heads are made up; the titles give $\sqrt{\mathrm{JSD}}$. On the left the guess (hatched) is close to the truth
# in every block, so the head is query-aware. On the right the guess puts nearly half of the attention on block 0,
# where the truth has none, and the head is vertical-slash.

# %% [markdown]
# ### How far apart two distributions are
# **Exercise** · difficulty 2 of 5 · 8 minutes · 2 points
#
# Compute the divergence of each head. Be careful: after a softmax in 32 bits many blocks have a probability of exactly
# 0, in one of the distributions or in both. What should such a block contribute, and what does PyTorch compute?


# %% exercise="sparse_attention.divergence"
def divergence(p, q):
    """Compute the Jensen–Shannon divergence of two distributions, in nats.

    p, q: (H, N), one distribution over N blocks for each of H heads. Rows sum to 1; entries may
    be 0 in one of them or in both. Returns (H,).
    """
    ### BEGIN SOLUTION
    middle, total = (p + q) / 2, 0
    for each in (p, q):
        total = total + torch.where(each > 0, each * (each / middle).log(), 0).sum(dim=1)
    return total / 2
    ### END SOLUTION


# %%
check("sparse_attention.divergence", divergence)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The limit of $x \log x$ for $x \to 0$ is 0, so a block with $p_j = 0$ contributes nothing to the first sum. PyTorch
# computes $0 \cdot \log 0 = 0 \cdot (-\infty) = \mathrm{NaN}$ instead, and a single NaN makes the whole sum NaN.
# `torch.where(p > 0, …, 0)` selects the right value. The released code of FlexPrefill does not do this. There a NaN is
# compared with $\tau$, the comparison is false, and the head silently becomes a vertical-slash head.
#
# </details>
#
# Now we compute guess, truth and divergence for all 270 heads of our text. Three imported functions do the bookkeeping:
# `block_means` averages the keys of each block, `last_weights` computes the attention of the last block of queries, and
# `on_columns` sums it over the keys of each block:

# %%
guesses, truths = [], []
for query, keys in zip(qk.query, qk.keys, strict=True):  # one layer: (9, tokens, 64) and (3, tokens, 64)
    keys = keys.repeat_interleave(3, dim=0)  # three query heads share one key head
    mean_query = query[:, -BLOCK:].mean(dim=1, keepdim=True)
    guesses.append((mean_query @ block_means(keys, BLOCK).mT * qk.scaling).softmax(dim=-1)[:, 0])
    truths.append(on_columns(last_weights(query, keys, qk.scaling, BLOCK), BLOCK))
distance = mine("sparse_attention.divergence", divergence)(torch.cat(guesses), torch.cat(truths)).clamp(min=0).sqrt()
plots.divergences(distance.view(30, 9), tau=0.1)

# %% [markdown]
# Each mark is a head. Only nine of them, the red squares below the dotted line, are query-aware. They are in layers 0,
# 1, 2 and 11. For all other heads the mean keys are not a good guess. So in this model nearly everything depends on
# the vertical-slash pattern, and we turn to it now.
#
# **Cost** of the test: one product per block of keys for the guess, and one block of queries times all keys for the
# truth. At 1,024 tokens the truth is 16 of the 136 pairs of blocks, or 12 % of dense attention. At 8,192 tokens it is
# 1.6 %.
#
# ## 3. How many blocks does a head need?
#
# A sliding window gives all heads the same number of keys. FlexPrefill fixes a *fraction of the attention* instead,
# called $\gamma$, and lets the number of blocks follow. With $a_j$ for the attention to block $j$ it takes the
# smallest set $S$ that holds this fraction:
#
# $$ \min |S| \quad \text{subject to} \quad \sum_{j \in S} a_j \ge \gamma \sum_j a_j . $$
#
# For example, let a head give its four blocks the attention 0.1, 0.6, 0.1 and 0.2. For $\gamma = 0.75$ it needs two
# blocks, 0.6 and 0.2. A head with 0.25 in every block needs three.

# %% [markdown]
# ### As few as hold a fraction
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# Choose this set for every row, without a loop over the entries if you can. Mind the end of the set: the entry with
# which the fraction is reached belongs to it, and no further one does.


# %% exercise="sparse_attention.smallest_set"
def smallest_set(mass, share):
    """Choose the largest entries of each row, as few as hold a fraction of the row's sum.

    mass: (R, N), not negative; every row has a positive entry and may have any sum.
    share: the fraction, above 0 and below 1. Returns (R, N), bool, True = chosen. Among equal
    entries you may choose any, but only as many as are needed.
    """
    ### BEGIN SOLUTION
    largest, order = mass.double().sort(dim=1, descending=True)
    before = largest.cumsum(dim=1) - largest
    needed = before < share * largest.sum(dim=1, keepdim=True)
    return torch.zeros_like(mass, dtype=torch.bool).scatter(1, order, needed)
    ### END SOLUTION


# %%
check("sparse_attention.smallest_set", smallest_set)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Sort each row in descending order. An entry is needed if the sum of the entries *before* it does not yet reach
# $\gamma$ times the row's sum. With this rule the entry that reaches the fraction is included, because the sum before
# it is too small, and the next one is not. `scatter` along the sort order puts the answer back in place.
#
# </details>
#
# How many of the 16 blocks of keys hold 80, 90, 95 and 99 % of what the last queries attend to? `truths` has the
# attention of every head, so we only count:


# %%
def count_blocks(attention, smallest_set):
    """The number of blocks that each head needs, by gamma."""
    return {gamma: smallest_set(attention, gamma).sum(dim=1).float() for gamma in (0.8, 0.9, 0.95, 0.99)}


plots.needed(count_blocks(torch.cat(truths), mine("sparse_attention.smallest_set", smallest_set)), n_columns=16)

# %% [markdown]
# Each line is one value of $\gamma$, with the heads sorted by how many blocks they need. The lines are steep: for
# $\gamma = 0.95$ some heads need one or two blocks, others 15 of 16. The last percents are expensive: in the middle of
# the figure, going from 95 to 99 % takes a head from about 9 to 13 blocks.
#
# A warning: FlexPrefill's released code counts how many *tokens* hold the fraction, and divides by the block size.
# This is right only if the strong tokens are neighbours. For example, if 13 blocks contain one strong token each, all
# 13 are needed, but 13 tokens would fit into a single block, so the code takes one.
#
# ## 4. Vertical and slash lines
#
# For a vertical-slash head we need the columns and diagonals of its attention. A **vertical line** is a key that many
# queries attend to, such as the first token. A **slash line** is a distance at which many queries attend, such as the
# previous token. We estimate both from the last block of queries.

# %% [markdown]
# ### Columns and diagonals
# **Exercise** · difficulty 3 of 5 · 9 minutes · 3 points
#
# Compute what each key and each distance receives from the $R$ last queries, on average:
#
# $$ v_j = \frac1R \sum_r a_{rj}, \qquad s_\delta = \frac1R \sum_{r}\, a_{r,\; i(r) - \delta} . $$
#
# Row $r$ is token $i(r) = T - R + r$. The largest distances exist for only a few of the $R$ queries. Divide by $R$ all
# the same, so that $v$ and $s$ both sum to 1 and are comparable.


# %% exercise="sparse_attention.lines"
def lines(weights):
    """Compute the attention that each key and each distance receives: (vertical, slash).

    weights: (R, T), the attention of the last R of T tokens. Row 0 is token T - R, the last row
    is token T - 1; rows sum to 1 and are 0 at later keys. vertical: (T,), one entry per key.
    slash: (T,), one entry per distance delta = query - key; delta = 0 is the query itself. Both
    are sums over the queries, divided by R.
    """
    ### BEGIN SOLUTION
    n_last, n_tokens = weights.shape
    offsets = [n_tokens - n_last - delta for delta in range(n_tokens)]
    slash = torch.stack([weights.diagonal(offset).sum() for offset in offsets])
    return weights.mean(dim=0), slash / n_last
    ### END SOLUTION


# %%
check("sparse_attention.lines", lines)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# The keys at distance $\delta$ form a diagonal of `weights`. Row 0 is token $T - R$, so its key at distance $\delta$
# is in column $T - R - \delta$. This is the offset of the diagonal: `weights.diagonal(T - R - delta).sum()`. For a
# large $\delta$ the offset is negative, and the diagonal starts in a later row.
#
# </details>

# %%
last_queries = [qk.weights(head, BLOCK) for head in example_heads]  # (64, 1024) each
by_head = dict(zip(example_heads, map(mine("sparse_attention.lines", lines), last_queries), strict=True))
for head, (vertical, slash) in by_head.items():
    print(f"{head}: largest column {100 * vertical.max():.0f} % at key {vertical.argmax()}, ", end="")
    print(f"largest diagonal {100 * slash.max():.0f} % at distance {slash.argmax()}")
plots.lines(by_head)

# %% [markdown]
# The left panel adds up $v$ from the first key to the last, the right panel adds up $s$ from distance 0 on. Steep steps
# are lines. Head 4 of layer 17 (dark) has a vertical line: key 0 receives 93 % (88 % in section 1, where all queries
# count, and not only the last 64). Head 6 of layer 11 (green) has a slash line: distance 0 receives 72 %. Head 2 of
# layer 2 (red) has no single strong line, but rises within the first 64 distances on the right, which lie on the first
# two diagonals of blocks. The steep rise at the right end of each panel is not another line, but the attention of the
# other panel: for example, key 0 is 960 to 1,023 tokens before the last 64 queries, so on the right the dark curve
# rises there.
#
# ## 5. From lines to a mask
#
# A processor loads whole blocks, not single keys. So columns and diagonals become columns and diagonals *of blocks*.
# For diagonals this needs a rule: a key at distance 1 is in the same block as its query or, for the first token of a
# block, in the block before. In general, a distance of $64k + r$ lies partly on diagonal $k$ of blocks and partly on
# diagonal $k + 1$. We divide its attention in proportion: $(64 - r)/64$ of $s_\delta$ goes to diagonal $k$, and $r/64$
# to diagonal $k + 1$.
#
# Then we take columns until they alone hold $\gamma$, and diagonals until they alone hold $\gamma$. Their union may
# hold more. Two lines are always included: the first column of blocks, because the sink is there, and the main
# diagonal, so that every query attends at least to itself.

# %% [markdown]
# ### A mask of blocks
# **Exercise** · difficulty 3 of 5 · 11 minutes · 3 points
#
# Build the mask of all tokens from chosen columns and diagonals of blocks. Block $i$ of queries reads block $j$ of
# keys if column $j$ or diagonal $i - j$ is chosen, or if one of the two lines that are always included contains it.
# The last block may be shorter than the others. What happens inside a block on the diagonal?


# %% exercise="sparse_attention.block_mask"
def block_mask(columns, diagonals, n_tokens, block_size):
    """Compute which keys each query reads: (T, T), bool, True = read.

    columns: (N,), True for a chosen column of blocks. diagonals: (N,), True at k for a chosen
    diagonal of blocks, query block i - key block j = k. N = T / block_size, rounded up; token t
    is in block t // block_size. n_tokens: T. A query never reads later keys. The first column of
    blocks and the main diagonal of blocks are always read.
    """
    ### BEGIN SOLUTION
    i = torch.arange(n_tokens) // block_size
    apart = i[:, None] - i
    read = columns[i] | (i == 0) | diagonals[apart.clamp(min=0)] | (apart == 0)
    return read.tril()
    ### END SOLUTION


# %%
check("sparse_attention.block_mask", block_mask)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Let `i = arange(T) // S` be the block of each token. Indexing with `columns[i]` and `diagonals[i[:, None] - i]`
# answers the question for all pairs of tokens. Differences of blocks above the diagonal are negative and would
# index from the end, so clamp them. `tril` then removes later keys, including those inside a block on the diagonal.
#
# </details>
#
# The next cell combines your three functions on real heads. Move $\gamma$ and choose a head:

# %%
functions = (
    mine("sparse_attention.lines", lines),
    mine("sparse_attention.smallest_set", smallest_set),
    mine("sparse_attention.block_mask", block_mask),
)
widgets.explore_masks({head: heads.Chosen(qk.weights(head), *functions) for head in example_heads}, gamma=0.9)

# %% [markdown]
# The title of the figure compares two numbers: how many of the causal entries are read, and how much of the attention
# of *all* queries they hold. We required $\gamma$ only for the last block of queries. The other queries may attend
# elsewhere, so the fraction for all queries can be higher or lower than $\gamma$.
#
# ## 6. The whole method on the real model
#
# The next cell is all of FlexPrefill. `choose_keys` decides for one head: it computes the attention of the last block,
# tests whether the head is query-aware, and builds the mask of its pattern. For a query-aware head it chooses among
# all pairs of blocks together, not row by row, so a block of queries with a clear favourite may get fewer keys than
# another. `enough` wraps your `smallest_set`: the lines that are always read count towards $\gamma$, and your function
# chooses among the others.
#
# Then we need the model to use this mask. Hugging Face models call an **attention function** in every layer, and
# `AttentionInterface.register` lets us supply our own. It receives queries of shape (batch, heads, tokens, channels),
# keys and values with fewer heads, and returns the output as (batch, *tokens, heads*, channels) and, if it has them,
# the weights.


# %%
def choose_keys(query, keys, scaling, gamma, divergence, smallest_set, lines, block_mask):
    """Choose what each query of one head reads. query, keys: (T, D). Returns (T, T), bool."""
    last = last_weights(query[None], keys[None], scaling, BLOCK)  # attention of the last queries, (1, 64, T)
    products = block_means(query, BLOCK) @ block_means(keys, BLOCK).T * scaling  # (N, N)
    first = torch.arange(len(products)) == 0

    def enough(mass, always):
        others = mass.masked_fill(always, 0)
        missing = gamma * mass.sum() - mass[always].sum()
        if missing <= 0:
            return always
        return always | smallest_set(others[None], float(missing / others.sum()))[0]

    if divergence(products[-1:].softmax(dim=1), on_columns(last, BLOCK)).sqrt() < 0.1:  # query-aware
        causal = torch.ones_like(products, dtype=torch.bool).tril()
        guess = products.masked_fill(~causal, -torch.inf).softmax(dim=1)
        always = first | torch.eye(len(first), dtype=torch.bool)
        read, block = enough(guess.flatten(), always.flatten()).view_as(guess), torch.arange(len(keys)) // BLOCK
        return read[block[:, None], block].tril()
    vertical, slash = lines(last[0])
    columns = enough(on_columns(vertical[None, None], BLOCK)[0], first)
    diagonals = enough(on_block_diagonals(slash[None], BLOCK)[0], first)
    return block_mask(columns, diagonals, len(keys), BLOCK)


def sparse_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    # `exercises`, your four functions, is defined in the next cell.
    output, group = torch.empty_like(query), query.shape[1] // key.shape[1]
    for head in range(query.shape[1]):
        q, k, v = query[0, head], key[0, head // group], value[0, head // group]
        logits = (q @ k.T * scaling).masked_fill(~choose_keys(q, k, scaling, 0.95, *exercises), -torch.inf)
        output[0, head] = logits.softmax(dim=-1) @ v
    return output.transpose(1, 2), None


# %%
AttentionInterface.register("flexprefill", sparse_attention)
exercises = (
    mine("sparse_attention.divergence", divergence),
    mine("sparse_attention.smallest_set", smallest_set),
    mine("sparse_attention.lines", lines),
    mine("sparse_attention.block_mask", block_mask),
)
model.set_attn_implementation("flexprefill")
loss_by_loop = window_losses(model, evaluation[:1], progress=False)
model.set_attn_implementation("sdpa")  # PyTorch's own attention again
# min_budget=0: without the minimum budget, which section 7 introduces.
with prefilling(model, FlexPrefill(gamma=0.95, block_size=BLOCK, min_budget=0), measured="none") as watch:
    loss_by_library = window_losses(model, evaluation, progress=False)  # of both windows, for the next cell
density = float(watch.density.mean())
print(f"loss with your functions {loss_by_loop.item():.4f}, with the library {loss_by_library[0]:.4f}")
print(f"read: {100 * density:.0f} % of the blocks, on average over layers and heads")

# %% [markdown]
# The two losses should agree. Our loop is easy to read, but it saves nothing, because it computes all logits before it
# masks them. The library chooses the same blocks, computes only these, and handles batches and padding.
#
# Is the *choice* of the blocks any good, or would the same number of random blocks do as well? That is the baseline:

# %%
losses = {
    "dense": (window_losses(model, evaluation, progress=False), 1.0),
    "FlexPrefill, γ = 0.95": (loss_by_library, density),
}
with prefilling(model, RandomBlocks(density=density, block_size=BLOCK), measured="none") as watch:
    losses["random blocks"] = window_losses(model, evaluation, progress=False), float(watch.density.mean())
tables.losses_by_rule(losses)

# %% [markdown]
# Compare the last column. For the same fraction of blocks, random blocks increase the loss by 0.060 nats per token,
# and FlexPrefill's blocks by 0.014. (These are two windows only. Like FlexPrefill, the random rule always reads the
# first column and the diagonal.)
#
# ## 7. Results: the loss over γ and length
#
# Two windows of 1,024 tokens are a small and short sample. `course reproduce sparse_attention` and
# `sparse_attention_further` used eight windows per length and blocks of 128 tokens as in the paper. As in the paper,
# there is also a **minimum budget**: every head reads at least 512 tokens of columns and of diagonals.

# %%
print(claims.READ_AT_NO_LOSS.judge())
plots.over_gamma()

# %% [markdown]
# The left panel shows how much is read, the right panel what that costs. Follow one line on the left: a higher $\gamma$
# reads more blocks. Now compare the lines at $\gamma = 0.95$: the fraction falls from 85 % at 1,024 tokens to 55 % at
# 4,096, for two reasons. The minimum budget of 512 tokens is half of a text of 1,024 tokens but only an eighth of
# 4,096, and a head's sink and its recent tokens are a smaller part of a longer text. On the right, the loss increase
# stays below 0.015 nats per token everywhere, and it shrinks as $\gamma$ approaches 1. The verdict above the figure
# takes "no loss" to mean less than 0.05 nats per token, or 5 % more perplexity, as everywhere in this course. With a
# limit of 0.02 nats, only $\gamma = 0.8$ at 4,096 tokens would be too close to be decided.
#
# Which of FlexPrefill's ideas is responsible for this? The next table, for texts of 2,048 tokens, compares it with
# three simpler rules that read the same number of blocks: **StreamingLLM** (lesson 08), which reads the first tokens
# and a window, the same for all heads; vertical and slash lines with one budget for all heads; and random blocks.

# %%
tables.prefill_rules()

# %% [markdown]
# Compare the first four rows, in the last column. Random blocks increase the perplexity by 6 %, but StreamingLLM and
# vertical-slash lines with one budget for all heads are as good as FlexPrefill within the errors, although the blocks
# that they read hold less of the attention. On running text, the first and the recent tokens are most of what a model
# needs. A task that asks for something far back in the prompt would separate the rules; we did not measure one.
#
# The fifth row is the released code, which counts tokens instead of blocks (section 3) and so reads fewer. Now compare
# the last two rows: at $\gamma = 0.8$ without a minimum budget the perplexity rises by 11 %, and with it by 1 %. In
# other words, a part of the quality comes from the minimum and not from $\gamma$. Further claims are on [the page of
# claims](../docs/claims.md).
#
# ## 8. Cost, and when sparse prefill pays off
#
# Reading half of the blocks means half of the multiplications. Does it also mean half of the time? There are two
# obstacles. Choosing the blocks takes time too, and a loop over blocks runs slower per block than one fused call of
# dense attention. `course bench sparse_prefill` measured both on a CPU:

# %%
print(claims.WHOLE_FASTER.judge())
plots.over_density()

# %% [markdown]
# The grey curve is the ideal speedup, 1 / density, and the dotted line is dense attention. Compare the panels: on the
# right only the chosen blocks are read, on the left the choice is timed as well. At 2,048 tokens all points of both
# panels are below the dotted line, so sparse attention is slower. At 8,192 tokens all points are above it: at a
# density of 23 % choosing and reading is 1.6 times as fast, although the ideal would be 4.3 times. The prefill of the
# whole model, in the verdict above the figure, gains nothing up to 4,096 tokens.
#
# - **It pays off** for long prompts, where attention dominates the prefill. On a GPU, choosing and reading a third of
#   the blocks of 32,768 tokens is 2.4 to 2.6 times as fast as dense attention, and the whole prefill 1.26 times (next
#   part).
# - **It does not pay off** for short prompts. Up to 4,096 tokens our small model gains nothing, because attention is
#   only a part of the work, and choosing and reading takes about as long as reading all.
# - **Memory** does not change: all keys and values stay in the cache. Lesson 07 evicts them.
#
# ### Optional: measured on a GPU
#
# (Section 9 does not need this part.) On a GPU, sparse prefill needs a kernel that reads the blocks of an index
# (`kernels/cache/block_sparse_prefill.py`). We measured it on an H200, with queries and keys in the shape of one layer
# of Llama 3 8B, and with a whole model of that shape. Random numbers have no structure that FlexPrefill could find. In
# the attention we therefore planted it: in some blocks the keys share a component with all queries, so that these
# blocks get most of the attention. The model has random weights and nearly even attention; there we chose a small
# $\gamma$ that leads to a similar density. In other words, the tables show speed, and nothing about the quality of the
# output.

# %%
print(gpu.provenance())
of_attention = ("32768 tokens, blocks, density 0.32", "32768 tokens, lines, density 0.33")
of_attention += ("8192 tokens, blocks, density 0.29",)  # chosen by the means of blocks, or by lines
display(gpu.table("prefilling", contests=[f"attention, {name}" for name in of_attention]))
gpu.whole_model("prefilling", contests=("whole model, 32768 tokens", "whole model, 8192 tokens"))

# %%
print(claims.READ_FASTER_ON_A_GPU.judge())

# %% [markdown]
# In the first table compare *index and attention* with *sdpa*, PyTorch's fused attention over all blocks. At 32,768
# tokens, choosing and reading about a third of the blocks is 2.4 to 2.6 times as fast. At 8,192 tokens it is slower
# (0.92 times), because the choice costs more time than it saves: *index alone* takes longer than *attention alone*. The
# verdict counts two more densities at 32,768 tokens. In the second table the prefill of the whole model is only 1.26
# times as fast at 32,768 tokens, since attention is a part of the work. At 8,192 tokens the difference is within the
# spread of the repetitions (0.98 times).
#
# The kernel itself, without the choice, is faster than PyTorch's fused attention even when it reads all blocks: 1.08
# times at 8,192 tokens and 1.10 times at 32,768. At a density of 50 % it is 1.9 and 2.1 times as fast, and at 10 % and
# 32,768 tokens 8.6 times.
#
# ## 9. Speculative decoding: fewer weight loads
#
# Now to the second phase. To write 100 tokens one by one, a model makes 100 forward passes, and each pass loads all
# weights from memory. With batch size 1 these **weight loads** take nearly all of the time: decoding is memory-bound.
# A pass over five tokens loads the weights once as well. As long as it is memory-bound (lesson 00), it takes hardly
# longer than a pass over one. Can we write five tokens in one pass?
#
# The problem is that token 2 depends on token 1. **Speculative decoding** guesses. Something cheap, the **draft**,
# proposes $k$ tokens. The **target model** reads all of them in one pass, which gives its distribution $p$ at every
# position. Then it accepts the drafted tokens up to the first rejection:
#
# | | | | | |
# |:--|:--|:--|:--|:--|
# | drafted | the | cat | sat | down |
# | target model | accepted | accepted | rejected: *slept* instead | discarded |
#
# Here one pass gives three tokens: two drafted ones and the replacement. If all four are accepted, the pass gives
# five, since the target model also has a distribution for the position after the last drafted token.
#
# What must we accept, so that the text is distributed *exactly* as if the target model had written it alone? Let the
# draft sample token $x$ with probability $q(x)$, while the target model would sample it with probability $p(x)$.
#
# - If $q(x) \le p(x)$, the draft proposes $x$ too rarely. We always accept it.
# - If $q(x) > p(x)$, the draft proposes $x$ too often. We accept it with probability $p(x) / q(x)$.
#
# For example, if the draft proposes "the" in 80 % of the cases and the target model would write it in 40 %, we accept
# half of the proposals. In both cases $x$ is proposed *and* accepted with probability $\min(p(x), q(x))$.

# %%
p, q = torch.tensor([0.4, 0.1, 0.3, 0.15, 0.05]), torch.tensor([0.2, 0.4, 0.1, 0.2, 0.1])
print(f"accepted: {100 * torch.minimum(p, q).sum():.0f} % of the proposals")
plots.overlaps()

# %% [markdown]
# The dark bars are $\min(p, q)$. They add up to 0.6, so 60 % of the proposals are accepted. After a rejection we have
# to sample another token. From which distribution? The white part above a dark bar is the probability that this token
# still lacks. You decide how to fill them.

# %% [markdown]
# ### Which drafted tokens are accepted
# **Exercise** · difficulty 3 of 5 · 11 minutes · 4 points
#
# Accept drafted tokens in order, up to the first rejection, and return the distribution from which the next token is
# sampled. First derive on paper, for a single position: from which distribution must the replacement be sampled, so
# that every token $x$ comes out with probability exactly $p(x)$?
#
# The random numbers are arguments, so that your result can be checked. Accept a token if its uniform random number is
# less than $p(x) / q(x)$.


# %% exercise="sparse_attention.accept"
def accept(drafted, q, p, uniforms):
    """Accept or reject the drafted tokens of one pass: (n, distribution).

    drafted: (k,), token ids. q: (k, V), the draft's distributions, from which they were sampled.
    p: (k + 1, V), the target model's distributions at the same positions and at the one after
    them. uniforms: (k,), random numbers in [0, 1). n: how many tokens are accepted before the
    first rejection. distribution: (V,), from which the next token must be sampled so that the
    text has the target model's distribution; it sums to 1.
    """
    ### BEGIN SOLUTION
    for n, token in enumerate(drafted):
        if uniforms[n] * q[n, token] >= p[n, token]:
            residual = torch.relu(p[n] - q[n])
            return n, residual / residual.sum()
    return len(drafted), p[len(drafted)]
    ### END SOLUTION


# %%
check("sparse_attention.accept", accept)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# Token $x$ comes out as an accepted proposal with probability $\min(p(x), q(x))$. The rest,
# $p(x) - \min(p(x), q(x)) = \max(p(x) - q(x), 0)$, must come from replacements. A replacement happens with probability
# $1 - \sum_y \min(p(y), q(y))$, and this is the same number as $\sum_y \max(p(y) - q(y), 0)$. So we sample it from
#
# $$ p'(x) = \frac{\max(p(x) - q(x), 0)}{\sum_y \max(p(y) - q(y), 0)} , $$
#
# the **residual distribution**. After a rejection the later drafted tokens continue a text that no longer exists, so
# they are discarded. If nothing is rejected, the next token is sampled from the last row of $p$. Nothing in this
# argument depends on how good the draft is: **a poor draft costs speed, never quality.**
#
# </details>
#
# We can verify this without sampling. With five tokens and one drafted token, the next cell adds up all cases: each
# token that the draft can propose, with 100 evenly spaced uniform numbers.


# %%
def output_distribution(p, q, accept, n=100):
    """The distribution of the first token of a pass that drafts one token."""
    output = torch.zeros_like(p)
    for token in range(len(p)):
        for uniform in (torch.arange(n) + 0.5) / n:
            n_accepted, replacement = accept(torch.tensor([token]), q[None], torch.stack([p, p]), uniform[None])
            token_comes_out = torch.eye(len(p))[token] if n_accepted else replacement
            output += q[token] / n * token_comes_out
    return output


p, q = (1.2 * torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).softmax(dim=1)
plots.exactness(p, q, output_distribution(p, q, mine("sparse_attention.accept", accept)), list("abcde"))

# %% [markdown]
# Compare the first and the third bar of each token. The draft (hatched) is far off, and yet the output has the target
# model's probabilities. The small difference in the title comes from the 100 steps. For $k$ drafted tokens the
# argument is repeated at each position.
#
# ### The whole method: prompt-lookup decoding
#
# Which draft should we use? The cheapest draft has no model at all. **Prompt-lookup decoding** (Saxena, 2023) searches
# the text so far for an earlier occurrence of the last few tokens and proposes what followed there. For example, after
# "Ada lives in" it finds "Ada lives in Paris" further up and proposes "Paris". This draft is always certain, that is,
# its $q$ is 1 for the proposed token and 0 for all others.
#
# The next cell is the whole method on the real model. Look at two details. The model gets only the tokens that its
# **KV cache** does not contain yet, plus the draft. After a rejection, `crop` removes the keys and values of the
# discarded tokens. (The newest token is not in the cache either, since the model has not read it yet.)


# %%
def look_up(tokens, k, longest=3):
    """Propose up to k tokens that followed the last tokens when they occurred before."""
    for n in range(longest, 0, -1):
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tokens[-n:]:
                return tokens[start + n : start + n + k]
    return []


@torch.no_grad()
def decode_with_lookup(model, prompt, n_new, accept, k=4, temperature=0.5, seed=0):
    """Write at least n_new tokens; return them and the number of forward passes."""
    generator, cache = torch.Generator().manual_seed(seed), DynamicCache()
    tokens, n_passes = list(prompt), 0
    while len(tokens) < len(prompt) + n_new:
        draft = look_up(tokens, k)
        new = torch.tensor([tokens[cache.get_seq_length() :] + draft])
        logits = model(new, past_key_values=cache, logits_to_keep=len(draft) + 1).logits[0]
        p, n_accepted = (logits.double() / temperature).softmax(dim=-1), 0
        distribution = p[0]
        if draft:
            q = torch.nn.functional.one_hot(torch.tensor(draft), p.shape[1]).double()
            uniforms = torch.rand(len(draft), generator=generator, dtype=torch.float64)
            n_accepted, distribution = accept(torch.tensor(draft), q, p, uniforms)
        tokens += [*draft[:n_accepted], int(torch.multinomial(distribution, 1, generator=generator))]
        cache.crop(len(tokens) - 1 - cache.get_seq_length())  # minus the number of tokens to remove
        n_passes += 1
    return tokens[len(prompt) :], n_passes


# %% [markdown]
# The model has two tasks: repeat a made-up passage, and continue it.


# %%
def count_weight_loads(tasks, text, accept):
    for task in tasks:
        prompt = inputs.chat_tokens(tokenizer, f"{task}:\n\n{text}")
        written, n_passes = decode_with_lookup(model, prompt, 48, accept)
        print(f"{task}: {len(written)} tokens in {n_passes} passes. {tokenizer.decode(written[:20])!r} …")
        print(f"    {100 * n_passes / len(written):.0f} weight loads per 100 tokens")


(passage,) = residents.passages(1, seed=3)
tasks = ("Repeat this text word for word", "Continue this text")
count_weight_loads(tasks, passage.text, mine("sparse_attention.accept", accept))

# %% [markdown]
# Compare the two tasks. To repeat the text, the model needs only 29 weight loads per 100 tokens, because the draft
# finds what comes next in the prompt. For the continuation it needs 98: new text has few matches.
#
# ### How many tokens does a pass give?
#
# A proposal is accepted with probability $\alpha = \sum_x \min(p(x), q(x))$, the **acceptance rate**. If it were the
# same at every position, a pass would give on average
#
# $$ 1 + \alpha + \alpha^2 + \dots + \alpha^k = \frac{1 - \alpha^{k+1}}{1 - \alpha} $$
#
# tokens (equation 1 of the paper). For example, $\alpha = 0.8$ and $k = 4$ give 3.36 tokens per pass, that is, 30
# weight loads per 100 tokens.

# %%
for rate in (0.2, 0.5, 0.8, 0.95):
    tokens = {k: (1 - rate ** (k + 1)) / (1 - rate) for k in (1, 2, 4, 8, 16)}
    print(f"tokens per pass with α = {rate:.2f}: " + "   ".join(f"k = {k}: {n:.2f}" for k, n in tokens.items()))

# %% [markdown]
# Follow a line from left to right. At $\alpha = 0.5$ hardly anything is gained from more than four drafted tokens,
# because later tokens are useful only if all earlier ones are accepted. At $\alpha = 0.95$ even 16 are worthwhile.
#
# The draft itself must be loaded as well, unless it is a lookup. For example, a draft of half the size that proposes
# four tokens loads two more models per pass.
#
# - **It pays off** when weight loads are the bottleneck, that is, for small batches, and when the draft is either
#   nearly free or much smaller than the target model and usually right. The authors report 2 to 3 times faster
#   decoding for T5-XXL.
# - **It does not pay off** for large batches. There the weights are loaded once for many texts, and the additional
#   tokens that are read and then rejected cost real time.
# - **Count the draft's own bytes**: of the five drafts in the optional part that follows, only prompt lookup and an
#   oracle read fewer bytes in total than decoding without a draft.
#
# This is the end of the core path. Go on with any of the optional sections, or jump to *To take home*.
#
# ### Optional: five drafts measured
#
# `course reproduce drafts` measured five drafts: prompt lookup, an **early exit** (the first 24 of the 30 layers and
# then the LM head), a model pruned by Wanda (lesson 04), a structurally pruned model (lesson 05), and the model with
# half of its neurons. This last one is an **oracle**: it computes all neurons in order to choose the best half, so no
# real draft could do it. It shows what a perfect predictor of neurons (lesson 09) would reach.

# %%
print(claims.FEWER_BYTES.judge())
tables.drafts_by_text()

# %% [markdown]
# Read the rows of running text first. The Wanda draft has $\alpha = 0.56$ and needs 39 weight loads of the target
# model per 100 tokens. But every draft pass reads 66 % of the target's bytes, and there are up to four of them per
# pass (3.7 on average, since the last passes of a text need fewer). So in total *more* bytes are read: the last column
# is 0.74, below 1. Prompt lookup reads nothing and saves 4 %. (The draft gives 2.5 tokens per pass, more than the
# 2.14 predicted from $\alpha$. The difference is smaller than two standard errors.)
#
# Now the rows of copying, where the same text has just been read once. To measure $\alpha$, the model reads the text
# and its copy, and we average the probability that it gives to each next token of the copy: 0.88. To count passes, the
# model has to write the copy itself. At temperature 1 it soon samples another token and leaves the copy, and from then
# on few proposals are accepted. So it writes 1.15 tokens per pass, and not the predicted 3.95. (In your run above, the
# model was asked to repeat, at temperature 0.5.)
#
# We counted loads and bytes here, not seconds. Section 9 of lesson 12 has the times of two drafts.
#
# ## 10. Optional: DeltaLLM, or sending only what has changed
#
# The keys of neighbouring tokens are similar. If a processor has the last key already, can we send it only the
# channels that have changed? This is the question of **DeltaLLM** (Qi and others, 2025). We could only read its
# abstract, so the method here is our own, after **delta networks** (Neil and others, 2016), on which it builds.
#
# Every channel has a threshold $\theta$. A channel of the first key is always sent. Later, a channel is sent if it has
# changed by $\theta$ or more, and the receiver keeps its old value otherwise. But changed compared with *what*? The
# figure shows two answers, rule A and rule B, on a channel that drifts in small steps.

# %%
optional_plots.walk()

# %% [markdown]
# Rule A (solid) always stays in the grey band of $\pm\theta$ around the key. Rule B (dashed) leaves it after a few
# tokens and never returns: at the end it is off by about eight times $\theta$.

# %% [markdown]
# ### Send what has changed
# **Exercise** · difficulty 2 of 5 · 8 minutes · 3 points
#
# Find out what rule A compares a key with, and write it. The reconstruction must differ from the key by less than
# $\theta$ at every token and in every channel, and a value is sent only where this requires it. For $\theta = 0$ every
# value is sent.


# %% exercise="sparse_attention.delta"
def delta_keys(keys, theta):
    """Reconstruct the keys from the channels that are sent: (reconstructed, sent).

    keys: (T, D). theta: (D,), not negative, one threshold per channel.
    reconstructed: (T, D), the values that the receiver has at each token. sent: (T, D), bool, True
    where a value is sent, which is everywhere for the first token. A value that is sent is exact; a
    channel that is not sent keeps the receiver's value.
    """
    ### BEGIN SOLUTION
    reconstructed, sent = keys.clone(), torch.ones_like(keys, dtype=torch.bool)
    for j in range(1, len(keys)):
        sent[j] = (keys[j] - reconstructed[j - 1]).abs() >= theta
        reconstructed[j] = torch.where(sent[j], keys[j], reconstructed[j - 1])
    return reconstructed, sent
    ### END SOLUTION


# %%
check("sparse_attention.delta", delta_keys)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Rule A compares with the value that was *sent last*, which is what the receiver has. If the difference is below
# $\theta$, keeping that value is within the bound; if not, the value is sent. Rule B compares with the token before.
# There, many small steps in one direction are each below $\theta$, none of them is sent, and the error adds up.
#
# </details>
#
# Now the keys of one head, with $\theta$ equal to half of the standard deviation of each channel:

# %%
_, (keys,) = qk.of((10, 3))
theta = 0.5 * keys.std(dim=0)
reconstructed, sent = mine("sparse_attention.delta", delta_keys)(keys, theta)
error = keys - reconstructed
logit_error = error @ qk.of((10, 3))[0][0, -1] * qk.scaling  # of the last query
print(f"below θ in every channel of all {len(keys)} tokens: {bool((error.abs() < theta).all())}")
print(f"mean error of the last query's logits: {logit_error.abs().mean():.2f}")
optional_plots.sent(sent[:160], "layer 10, keys of head 3")

# %% [markdown]
# Each row is a channel, each column a token, and white means not sent: 41 % of all values, and between 19 and 72 % by
# channel. The logits of a query follow the same way: $q \cdot \hat K_j = q \cdot \hat K_{j-1} + q \cdot \hat d_j$,
# where $\hat K_j$ is the reconstructed key of token $j$ and $\hat d_j$ its change from the token before. It has a zero
# for each channel that was not sent, so these products can be left out.
#
# `course reproduce delta` coded the keys of the whole model, except for a window of the 64 most recent tokens and the
# four first ones:

# %%
print(claims.NOTHING_LOST.judge())
optional_plots.over_threshold()

# %% [markdown]
# The left panel shows what is left out as $\theta$ grows. Follow the solid line on the right: up to a third of the
# products can be left out for 0.003 nats per token, but at 53 % the cost is 0.035 nats, and at 69 % it is 0.2. Without
# the window of exact keys (the square at the upper edge), $\theta = 1$ costs 0.55 nats instead of 0.035. Coding the
# first tokens too (triangle) changes little.
#
# **Cost**: in PyTorch nothing is saved, because single zeros at arbitrary places cost as much as other numbers
# (lesson 01). Only hardware that skips single channels can use them.
#
# ## 11. Optional: AutoPASTA, or attending to one sentence
#
# Sparse attention can also serve another aim than speed. Suppose that one sentence of the prompt contains the answer.
# Can we make the model attend to it? **PASTA** (Zhang and others, 2023) does so in chosen heads: it multiplies the
# attention weight of every *other* prompt token by $\alpha = 0.01$ and rescales each row so that it sums to 1.
# **AutoPASTA** (2024) lets the model name the sentence itself. (This $\alpha$ is not the acceptance rate of section 9.)

# %%
optional_plots.steered_weights()

# %% [markdown]
# In this made-up row, the weight of the five lowered tokens is nearly gone, and the two highlighted ones gain. The
# first token keeps most of the attention. It is the sink, and we do not lower it; the paper does.

# %% [markdown]
# ### Steered attention
# **Exercise** · difficulty 3 of 5 · 10 minutes · 3 points
#
# You get the logits, that is, the numbers before the softmax. What must you add to a logit, so that its weight is
# multiplied by $\alpha$ before the row is rescaled? Three kinds of columns are not lowered: highlighted tokens, tokens
# that the model has generated itself, and the first token.


# %% exercise="sparse_attention.steer"
def steer(logits, highlighted, chosen, alpha):
    """Compute attention weights with some heads steered to the highlighted tokens: (H, Q, T).

    logits: (H, Q, T), of the newest Q of T tokens; at keys later than the query they are -10,000,
    so that their weight is 0. highlighted: (P,), bool, for the P tokens of the prompt, which are
    the first P of the T tokens; generated tokens follow. chosen: (H,), bool, True for heads that
    are steered. alpha: positive. Rows of the result sum to 1. In chosen heads the weights of prompt
    tokens that are not highlighted are multiplied by alpha before the rows are rescaled; token 0
    and generated tokens are spared.
    """
    ### BEGIN SOLUTION
    scale = torch.ones(logits.shape[2], dtype=logits.dtype)
    scale[1 : len(highlighted)][~highlighted[1:]] = alpha
    weights = logits.softmax(dim=2)
    scaled = weights * scale
    return torch.where(chosen[:, None, None], scaled / scaled.sum(dim=2, keepdim=True), weights)
    ### END SOLUTION


# %%
check("sparse_attention.steer", steer)

# %% [markdown]
# <details><summary>Solution (open it once your check is right)</summary>
#
# Since $e^{\,l + \log \alpha} = \alpha\, e^{\,l}$, adding $\log \alpha$ to a logit multiplies its weight by $\alpha$,
# and the softmax rescales the row: $\tilde A = \mathrm{softmax}(l + \log \alpha \cdot \text{lowered})$. Multiplying
# after the softmax and dividing by the new sum gives the same result.
#
# </details>
#
# We test it on a made-up passage about six residents of six cities, so that the model cannot know the answers by
# heart. Step one of AutoPASTA: which sentence does the model name? The sentence closest to what it writes is shown on a
# dark background, and the one that answers the question is underlined.

# %%
widgets.explore_passage(passage, widgets.name_key_sentences(model, tokenizer, passage, n=3))

# %% [markdown]
# Step two: your function in all heads of all layers, again through the attention interface. The model has begun its
# answer with the name and "lives in". Which city comes next?


# %%
@torch.no_grad()
def steered_logits(sentences, steer):
    """The logits of the next token, by condition, with all heads steered to a sentence."""
    next_logits = {}
    for condition, sentence in sentences.items():
        ids, highlighted = inputs.question(tokenizer, passage, sentence)
        chosen = torch.full((9,), sentence is not None)

        def attention(module, query, key, value, attention_mask, scaling, h=highlighted, c=chosen, **kwargs):
            keys, values = (each[0].repeat_interleave(3, dim=0) for each in (key, value))
            logits = query[0] @ keys.mT * scaling
            later = torch.ones(logits.shape[1:], dtype=torch.bool).triu(1)
            weights = steer(logits.masked_fill(later, -1e4), h, c, 0.01)
            return (weights @ values).transpose(0, 1)[None], None

        AttentionInterface.register("steered", attention)
        model.set_attn_implementation("steered")
        next_logits[condition] = model(ids, use_cache=False).logits[0, -1]
    model.set_attn_implementation("sdpa")
    return next_logits


another = passage.sentences[(passage.key + 1) % len(passage.sentences)]
sentences = {"no steering": None, "the key sentence": passage.key_sentence, "another sentence": another}
next_logits = steered_logits(sentences, mine("sparse_attention.steer", steer))
cities = {condition: inputs.by_city(tokenizer, passage, each) for condition, each in next_logits.items()}
optional_plots.cities(cities, passage.answer)

# %% [markdown]
# Compare the three pairs of bars. Steering is strong, but it does not know what is true: steered to another sentence,
# the model answers with the city of that sentence. Everything depends on the sentence.
#
# One passage says little, so `course reproduce steering` asked 32 such questions, also with **chosen heads** that were
# selected on other passages:

# %%
print(claims.STEERED.judge())
optional_plots.answers()

# %% [markdown]
# Without steering (first bar) the model is right about as often as by chance (one in six), 16 %. With the key sentence
# named in the prompt it reaches 28 %, with all heads steered to it 88 %, and with chosen heads 94 %. The controls are
# just as clear: steered to a random sentence, no answer is right. If the model has to name the sentence itself, 50 %
# are right, since it names the key sentence for 17 of 32 questions.
#
# On questions from SciQ, which the model answers well without any help, 32 questions are not enough to show a
# difference (see the claims page).
#
# **Cost**: steering saves nothing. It needs a second pass to find the sentence, and logits that can be changed, which
# fused attention kernels do not offer.
#
# ## 12. Optional: VFlowOpt, or pruning image tokens
#
# A vision-language model reads an image as hundreds of **visual tokens**, one per patch. Most of them show nothing
# that a question asks for. Which ones can we prune before the question is even known? **VFlowOpt** (Yang and others,
# 2025) gives every patch an importance:
#
# $$ I_i = a_i + \alpha\, \mathrm{softmax}(H)_i, \qquad H_i = - \sum_v p_v \log_2 p_v . $$
#
# Here $a_i$ is the attention that patch $i$ receives from the *prominent* patches, which receive more attention than
# average themselves, and $H_i$ is the **entropy** of its grey levels in bits (equations 1 to 4). For example, a patch
# with a single grey level has 0 bits; a patch of 16 pixels that are all different has 4 bits. Pruned tokens are not
# thrown away. They are **recycled**: the pruned tokens of a cell of neighbours are fused into one token, which takes
# the place of the most important one.

# %% [markdown]
# ### What a patch is worth
# **Exercise** · difficulty 3 of 5 · 12 minutes · 4 points
#
# First the importance: $p_v$ is how often grey level $v$ occurs among the pixels of the patch. What do levels
# contribute that do not occur? Then the fused token, which you have to derive. Suppose that a reader of the image adds
# up all tokens, weighted by importance: $\sum_i I_i x_i$. In this sum, one token with the importance
# $\sum_{i \in c} I_i$ replaces the tokens of cell $c$. Which token leaves the sum unchanged?


# %% exercise="sparse_attention.recycle"
def recycle(grey, attention, alpha, tokens, cell):
    """Compute the importance of N patches and the fused tokens: (importance, fused, place).

    grey: (N, P), integers 0 to 255, the pixels of each patch. attention: (N,), not negative, what
    each patch receives. alpha: the weight of the entropies, not negative. tokens: (N, D).
    cell: (N,), integers: the cell, 0 to C - 1, of each pruned token, and -1 for tokens that are
    kept. Every cell has a token, and no cell's importances sum to 0.
    importance: (N,), the attention plus alpha times the softmax, over all N patches, of the
    entropies in bits. fused: (C, D), one token per cell; with the sum of the cell's importances as
    its weight it contributes what the cell's tokens contribute with theirs. place: (C,), the index,
    among all N, of the most important token of each cell (ties do not occur).
    """
    ### BEGIN SOLUTION
    entropy = []
    for row in grey:
        p = row.unique(return_counts=True)[1] / len(row)
        entropy.append(-(p * p.log2()).sum())
    importance = attention + alpha * torch.stack(entropy).softmax(dim=0)
    fused, place = [], []
    for number in range(int(cell.max()) + 1):
        members = (cell == number).nonzero().flatten()
        weight = importance[members] / importance[members].sum()
        fused.append(weight @ tokens[members])
        place.append(members[weight.argmax()])
    return importance, torch.stack(fused), torch.stack(place)
    ### END SOLUTION


# %%
check("sparse_attention.recycle", recycle)

# %% [markdown]
# <details><summary>Derivation and solution (open it once your check is right)</summary>
#
# The fused token $x_c$ must satisfy $\big(\sum_{i \in c} I_i\big)\, x_c = \sum_{i \in c} I_i x_i$. So it is the mean of
# the tokens weighted by importance, $x_c = \sum_{i \in c} I_i\, x_i \big/ \sum_{i \in c} I_i$ (equations 6 and 7). For
# the entropy, count only levels that occur (`unique` with `return_counts`): $0 \log 0$ is NaN in PyTorch, and its limit
# is 0. The softmax runs over all patches, kept ones included.
#
# </details>
#
# We trained a small vision-language model for this section (`course reproduce visual_model`). It sees a canvas of
# 12 × 12 patches with digits and clutter, and answers five questions about the digits. The next cell keeps the 36 most
# important of the 144 tokens and fuses the pruned ones of each cell of 3 × 3 patches, without the entropy and with it:


# %%
def prune_canvas(canvas, alphas, recycle, n_kept=36):
    """By alpha: the importance of the patches, which are kept, and the places of fused tokens."""
    pruned = {}
    for alpha in alphas:
        importance, _, _ = recycle(canvas.grey, canvas.attention, alpha, canvas.tokens, canvas.cell)
        keep = torch.zeros(len(importance), dtype=torch.bool)
        keep[importance.topk(n_kept).indices] = True
        cell = torch.full_like(canvas.cell, -1)
        cell[~keep] = canvas.cell[~keep].unique(return_inverse=True)[1]  # numbered without gaps
        _, _, place = recycle(canvas.grey, canvas.attention, alpha, canvas.tokens, cell)
        pruned[f"α = {alpha}"] = importance, keep, place
    return pruned


canvas = inputs.canvas(seed=3)
pruned = prune_canvas(canvas, (0, 50), mine("sparse_attention.recycle", recycle))
optional_plots.patches(canvas.drawn, pruned)

# %% [markdown]
# Squares are kept tokens, rings are fused ones. With attention alone (middle) all twelve patches with digits are kept,
# but so are empty patches at the bottom left. With a large weight of the entropy (right) the kept tokens cluster where
# the grey levels vary, that is, at the digits and at the clutter.
#
# The full method prunes in three stages, one before each third of the layers, and calibrates its settings so that the
# last token's vector keeps its direction. `course reproduce visual_tokens` asked 1,000 questions:

# %%
print(claims.A_TENTH.judge())
optional_plots.accuracy_over_share()

# %% [markdown]
# Follow VFlowOpt (dark circles) from right to left: 97 % right answers with three quarters of the tokens, 81 % with
# one quarter, and 84 % with a tenth, where it relies on fused tokens: without recycling it answers 48 percentage
# points less. Random tokens fall to 41 % there. Surprisingly, an oracle that knows where the digits are is not better
# than attention alone: after the encoder, the information about a digit is no longer only in its own patches.
#
# The paper reports 85.5 % of the accuracy of all tokens at a tenth, and we have 85.5 % as well. By coincidence: models
# and questions differ. The abstract calls the performance *comparable* to that with all tokens. We would not.
#
# **Cost**: time and cache shrink in proportion to the tokens read, averaged over the layers. The encoder still reads
# the whole image.
#
# ## 13. Optional: an open task
#
# Let every head read 30 % of the causal blocks, the same number for all heads, and lose as little as possible. What is
# a good score for a block? There is no right answer, and nothing is graded. The function below scores near blocks
# highest. The queries and keys are those of one layer.


# %%
def my_blocks(query, keys, scaling):
    """Score all pairs of blocks: (heads, N, N); blocks with a high score are read.

    query, keys: (heads, T, D), with keys repeated for the query heads that share them. Blocks have
    64 tokens. The first column and the main diagonal are read in any case.
    """
    n = -(-query.shape[1] // BLOCK)
    block = torch.arange(n)
    return -(block[:, None] - block).float().expand(len(query), n, n)


# %%
tables.block_scores(inputs.losses_with_scores(my_blocks, model, evaluation))

# %% [markdown]
# The other rows are simple ideas on the same two windows (`course reproduce block_scores` has eight). The oracle
# computes the attention itself in order to choose blocks, so it costs as much as dense attention; it shows how much
# better a score could be. Tune your score on other text: with
# `tuning = corpora.windows("wikipedia", 2, 1024, tokenizer, split="calibration", seed=0)`, compare
# `inputs.losses_with_scores(my_blocks, model, tuning)` with `window_losses(model, tuning)`.
#
# ## To take home
#
# 1. A fraction of the attention is a promise about quality, a number of blocks is a budget. Heads differ so much that
#    the same fraction takes very different numbers of blocks.
# 2. With `AttentionInterface.register` you can replace the attention of a Hugging Face model in a few lines.
# 3. Fewer operations are not less time: choosing blocks costs time, and a loop over blocks is slower per block. Here
#    sparse *attention* is faster at 8,192 tokens and slower at 2,048. For the whole prefill we found no gain up to
#    4,096 tokens.
# 4. Accepted tokens contribute min(p, q) and replacements contribute max(p − q, 0). Together they are p, whatever the
#    draft is. A good draft only saves weight loads.
# 5. Count the draft's own bytes. Of five drafts only the nearly free lookup and an oracle read fewer bytes in total.
#
# Three questions. Answer first, then unfold.
#
# <details><summary>FlexPrefill reaches γ = 0.95 on the last block of queries. Why may a query in the middle of the text
# have less than 95 % of its attention?</summary>
#
# The lines were chosen by what the last queries attend to. An earlier query may attend to a key that none of the last
# queries needs. FlexPrefill guarantees nothing for it, so the coverage of all queries has to be measured. For example,
# in the table of section 7 it is 98.2 % at γ = 0.95. That is more than γ requires, because of the minimum budget.
#
# </details>
#
# <details><summary>A draft model is right for 90 % of the tokens and half as large as the target model. With k = 4, is
# decoding faster?</summary>
#
# Somewhat. A pass gives (1 − 0.9⁵) / 0.1 = 4.1 tokens. It loads the target model once and the draft four times, that
# is, three models in total: 3 / 4.1 = 0.73 loads per token instead of 1. With a draft of a tenth of the size it would
# be 1.4 / 4.1 = 0.34.
#
# </details>
#
# <details><summary>A colleague accepts every drafted token that is the target model's most likely token, and rejects
# all others. Is the text still distributed as the target model's own?</summary>
#
# Only for greedy decoding, where the target model always takes its most likely token. With sampling, the most likely
# token would come out too often. For example, with p = (0.6, 0.4) and a draft that always proposes the first token,
# this rule writes it every time, instead of in 60 % of the cases.
#
# </details>
#
# ## Reading
#
# - Lai, Lu, Luo, Ma, Zhou: *FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient Long-Sequence
#   Inference*, ICLR 2025, [arXiv:2502.20766](https://arxiv.org/abs/2502.20766).
# - Leviathan, Kalman, Matias: *Fast Inference from Transformers via Speculative Decoding*, ICML 2023,
#   [arXiv:2211.17192](https://arxiv.org/abs/2211.17192).
# - Saxena: *Prompt Lookup Decoding*, 2023,
#   [github.com/apoorvumang/prompt-lookup-decoding](https://github.com/apoorvumang/prompt-lookup-decoding).
# - Qi and others: *DeltaLLM*, 2025, [arXiv:2507.19608](https://arxiv.org/abs/2507.19608). It builds on Neil and others,
#   *Delta Networks*, 2016, [arXiv:1612.05571](https://arxiv.org/abs/1612.05571).
# - Zhang and others: *Tell Your Model Where to Attend*, 2023, [arXiv:2311.02262](https://arxiv.org/abs/2311.02262), and
#   *Model Tells Itself Where to Attend*, 2024, [arXiv:2409.10790](https://arxiv.org/abs/2409.10790). PASTA, AutoPASTA.
# - Yang and others: *VFlowOpt*, ICCV 2025, [arXiv:2508.05211](https://arxiv.org/abs/2508.05211).
